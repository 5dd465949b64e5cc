"""The work that every side does: PPO of one shape on one environment, in benchback's own vocabulary."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from benchback.algorithms.ppo.config import Config
from benchback.measure.record import Cell

UNUSED = ("initial_log_std", "normalise_obs", "normalise_reward")
"""Fields without a meaning in these workloads: actions are discrete, and nothing is normalised."""


@dataclass(frozen=True)
class Workload:
    """A training that any PPO implementation can run."""

    name: str
    env: str
    """Environment, without the suite: each side has its own implementation of it."""
    config: Config

    def to_dict(self) -> dict[str, Any]:
        """Flat and JSON-able: the input of a program, without the seed."""
        flat = {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self.config).items()}
        return {"env": self.env} | {name: x for name, x in flat.items() if name not in UNUSED}

    def shortened(self, num_iterations: int) -> "Workload":
        """The same work for fewer iterations."""
        return replace(self, config=replace(self.config, num_iterations=num_iterations))


# The peers keep the learning rate constant unless told otherwise.
_PPO = Config(hidden_sizes=(64, 64), anneal=False)
_LARGE_BATCH = replace(_PPO, num_envs=32, num_steps=256, num_minibatches=8, num_epochs=10)
_SMALL_BATCH = replace(_PPO, num_envs=4, num_steps=128, num_minibatches=4, num_epochs=4)

WORKLOADS = {
    work.name: work
    for work in (
        Workload("A", "CartPole-v1", replace(_LARGE_BATCH, num_iterations=24)),
        Workload("B", "CartPole-v1", replace(_SMALL_BATCH, num_iterations=200)),
        Workload("C", "Breakout-MinAtar", replace(_LARGE_BATCH, num_iterations=10)),
    )
}
QUICK_ITERATIONS = 8
"""Iterations of any workload in a quick comparison."""
FIELDS_OF_CELL = ("workload", "variant")
"""Fields of a cell beyond the work itself: its name, and its implementation."""


def told(cell: Cell, seed: int) -> dict[str, Any]:
    """The input of a program from its cell: the same for all sides of a block."""
    return {name: x for name, x in cell.run.items() if name not in FIELDS_OF_CELL} | {"seed": seed}
