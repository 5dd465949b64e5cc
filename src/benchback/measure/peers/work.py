"""The work that every side does: one algorithm of one shape on one environment, in benchback's own vocabulary."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from benchback.algorithms.dqn import config as dqn
from benchback.algorithms.ppo import config as ppo
from benchback.algorithms.td3 import config as td3
from benchback.measure.record import Cell

UNUSED = ("initial_log_std", "normalise_obs", "normalise_reward", "exploration", "epsilons")
"""Fields without a meaning in these workloads: PPO's actions are discrete, nothing is normalised, epsilon is linear."""


@dataclass(frozen=True)
class Workload:
    """A training that any implementation of its algorithm can run."""

    name: str
    env: str
    """Environment, without the suite: each side has its own implementation of it."""
    config: Any
    """Of the algorithm."""
    quick_iterations: int = 8
    """Iterations in a quick comparison."""

    @property
    def algorithm(self) -> str:
        """ppo, dqn or td3."""
        return self.config.algorithm

    def to_dict(self) -> dict[str, Any]:
        """Flat and JSON-able: the input of a program, without the seed."""
        flat = {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self.config).items()}
        return {"algorithm": self.algorithm, "env": self.env} | {
            name: x for name, x in flat.items() if name not in UNUSED
        }

    def with_iterations(self, num_iterations: int) -> "Workload":
        """The same work for another number of iterations."""
        return replace(self, config=replace(self.config, num_iterations=num_iterations))


# The peers keep the learning rate constant unless told otherwise.
_PPO = ppo.Config(hidden_sizes=(64, 64), anneal=False)
_LARGE_BATCH = replace(_PPO, num_envs=32, num_steps=256, num_minibatches=8, num_epochs=10)
_SMALL_BATCH = replace(_PPO, num_envs=4, num_steps=128, num_minibatches=4, num_epochs=4)
# Of PureJaxRL's shape, but learning starts after 1,000 steps: what comes before it is not timed in all sides.
_DQN = dqn.Config(hidden_sizes=(120, 84), learning_starts=1_000, num_iterations=10_000)
# A gradient step after every step, as rejax has it.
_TD3 = td3.Config(
    num_steps=1,
    num_iterations=5_000,
    num_updates=1,
    replay_capacity=100_000,
    start_steps=100,
    update_after=100,
    hidden_sizes=(64, 64),
)

WORKLOADS = {
    work.name: work
    for work in (
        Workload("A", "CartPole-v1", replace(_LARGE_BATCH, num_iterations=24)),
        Workload("B", "CartPole-v1", replace(_SMALL_BATCH, num_iterations=200)),
        Workload("C", "Breakout-MinAtar", replace(_LARGE_BATCH, num_iterations=10)),
        Workload("D", "CartPole-v1", _DQN, quick_iterations=1_500),
        Workload("E", "Pendulum-v1", _TD3, quick_iterations=1_500),
    )
}
FIELDS_OF_CELL = ("workload", "variant")
"""Fields of a cell beyond the work itself: its name, and its implementation."""


def told(cell: Cell, seed: int) -> dict[str, Any]:
    """The input of a program from its cell: the same for all sides of a block."""
    return {name: x for name, x in cell.run.items() if name not in FIELDS_OF_CELL} | {"seed": seed}
