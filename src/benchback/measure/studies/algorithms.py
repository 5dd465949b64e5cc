"""Four algorithms in six backends, each in its best mode, on an environment each: a first look at the whole matrix."""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

SHORT = {
    "ppo": {"env": "gymnax/CartPole-v1", "num_iterations": 30},
    "vpg": {"env": "gymnax/CartPole-v1", "num_iterations": 30},
    "dqn": {"env": "gymnax/CartPole-v1", "num_iterations": 600, "learning_starts": 1000},
    "td3": {
        "env": "gymnax/Pendulum-v1",
        "num_iterations": 60,
        "start_steps": 500,
        "update_after": 1_000,
        "replay_capacity": 100_000,
    },
}
"""Algorithm -> a run that is long enough to settle; off-policy ones learn from early on."""

STUDY = Study(
    name="algorithms",
    description="Four algorithms x six backends, each in its best mode, small runs on CartPole and Pendulum.",
    products=tuple(
        Product(
            label=algorithm,
            axes={"variant": variants(tuple(BUILT_IN_BACKENDS))},
            fixed={"algorithm": algorithm, **fields},
        )
        for algorithm, fields in SHORT.items()
    ),
    timeout_s=900.0,
)
