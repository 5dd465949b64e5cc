"""A first verdict in a few minutes: PPO on CartPole, six backends in their best mode, a small model."""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BACKENDS

STUDY = Study(
    name="smoke",
    description="PPO on CartPole in six backends, best mode, small model: a first verdict in five minutes.",
    products=(
        Product(
            label="smoke",
            axes={"variant": variants(tuple(BACKENDS))},
            fixed={"env": "gymnax/CartPole-v1", "model": "small"},
        ),
    ),
    min_blocks=3,
    max_blocks=3,
    keep_caches=True,
    aa=False,  # an A/A pair would take a tenth of the time
    timeout_s=300.0,
)
