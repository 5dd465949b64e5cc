"""A first verdict in five minutes: PPO on CartPole, six backends in their best mode, a small model.

A batch of 1024 steps and 16 gradient steps per iteration: short calls, so that a relay of 10 s has 24 rounds.
"""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

STUDY = Study(
    name="smoke",
    description="PPO on CartPole in six backends, best mode, small model: a first verdict in five minutes.",
    products=(
        Product(
            label="smoke",
            axes={"variant": variants(tuple(BUILT_IN_BACKENDS))},
            fixed={
                "env": "gymnax/CartPole-v1",
                "model": "small",
                "num_envs": 16,
                "num_steps": 64,
                "num_epochs": 4,
                "num_minibatches": 4,
                "num_iterations": 500,
            },
        ),
    ),
    min_blocks=3,
    max_blocks=12,
    precision=0.01,
    relay_s=10.0,
    keep_caches=True,
    budget_s=285.0,
    aa=False,  # an A/A pair would take a tenth of the time
    timeout_s=300.0,
)
