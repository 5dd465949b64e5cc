"""A first verdict in a few minutes: PPO on CartPole, six backends in their best mode, a small model."""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BACKENDS

STUDY = Study(
    name="smoke",
    description="PPO on CartPole in six backends, best mode, small model, two blocks: a first look, not a verdict.",
    products=(
        Product(
            label="smoke",
            axes={"variant": variants(tuple(BACKENDS))},
            fixed={"env": "gymnax/CartPole-v1", "model": "small", "num_iterations": 32},
        ),
    ),
    min_blocks=2,
    max_blocks=2,
    aa=False,  # an A/A pair would take a tenth of the time, and two blocks of it show nothing
    rerun_noisy=False,
    timeout_s=300.0,
)
