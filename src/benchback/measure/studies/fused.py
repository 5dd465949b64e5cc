"""Does the framework cost anything once training is one program? The five JAX backends, whole chunks of iterations."""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

FAMILY = tuple(name for name, spec in BUILT_IN_BACKENDS.items() if spec.family == "jax")

STUDY = Study(
    name="fused",
    description="PPO on CartPole as one program per eight iterations in the five JAX backends, best mode.",
    products=(
        Product(
            label="fused",
            axes={"variant": variants(FAMILY, ("chunk",))},
            fixed={"env": "gymnax/CartPole-v1", "model": "small", "num_iterations": 96, "chunk": 8},
        ),
    ),
    min_blocks=6,
    max_blocks=20,
    timeout_s=600.0,
)
