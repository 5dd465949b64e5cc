"""The comparison for an hour: six backends in their best mode, three model sizes, four environments.

A batch of 512 steps and 4 gradient steps per iteration: with the largest model an iteration takes two seconds on one
core. Environments from cheap to costly, observations from 4 to 600 numbers.
"""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

ENVS = ("CartPole-v1", "Acrobot-v1", "Breakout-MinAtar", "SpaceInvaders-MinAtar")

STUDY = Study(
    name="hour",
    description="4 environments x 3 model sizes x six backends, each in its best mode: an answer within an hour.",
    products=(
        Product(
            label="hour",
            axes={
                "env": tuple(f"gymnax/{env}" for env in ENVS),
                "model": ("small", "medium", "large"),
                "variant": variants(tuple(BUILT_IN_BACKENDS)),
            },
            fixed={"num_envs": 16, "num_steps": 32, "num_epochs": 2, "num_minibatches": 2, "num_iterations": 1000},
        ),
    ),
    min_blocks=2,
    max_blocks=12,
    relay_s=15.0,
    keep_caches=True,
    budget_s=57 * 60.0,
    timeout_s=600.0,
)
