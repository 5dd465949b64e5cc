"""How long many agents take: one program of N agents in the five JAX backends, and one agent at a time in all six.

The work of PureJaxRL's "thousands of agents": PPO on CartPole, 4 environments x 128 steps, half a million steps per
agent. Each size is eight times the one before. 4,096 agents come last, and only if the budget leaves time for them.
"""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BACKENDS

FAMILY = tuple(name for name, spec in BACKENDS.items() if spec.populations)
WORK = {
    "env": "gymnax/CartPole-v1",
    "model": "small",
    "num_envs": 4,
    "num_steps": 128,
    "num_minibatches": 4,
    "num_epochs": 4,
    "num_iterations": 976,
}

STUDY = Study(
    name="population",
    description="1 to 4,096 agents of PPO on CartPole: in one program, and for comparison one at a time.",
    products=(
        Product(label="one agent", axes={"variant": variants(tuple(BACKENDS), ("iteration",))}, fixed=WORK),
        Product(
            label="many agents",
            axes={"members": (8, 64, 512), "variant": variants(FAMILY, ("iteration",))},
            fixed=WORK,
        ),
        Product(
            label="4096 agents",
            axes={"members": (4096,), "variant": variants(FAMILY, ("iteration",))},
            fixed=WORK,
            last=True,
        ),
    ),
    min_blocks=2,
    max_blocks=12,
    relay_s=15.0,
    keep_caches=True,
    budget_s=30 * 60.0,
    timeout_s=900.0,
)
