"""The work that every side does: one algorithm of one shape on one environment, in benchback's own vocabulary."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from benchback.algorithms.dqn import config as dqn
from benchback.algorithms.ppo import config as ppo
from benchback.algorithms.td3 import config as td3
from benchback.measure.peers.demand import demand
from benchback.measure.record import Cell

UNUSED = ("normalise_obs", "normalise_reward", "exploration", "epsilons")
"""Fields without a meaning in these workloads: nothing is normalised, and epsilon is linear."""
OF_REAL_ACTIONS = ("initial_log_std",)
"""Fields without a meaning where actions are discrete."""


class Task(NamedTuple):
    """An environment without its suite: each side has its own implementation of it."""

    name: str
    observation_size: int
    action_size: int
    """Number of actions, or of their components."""
    real: bool = False
    """Whether actions are real-valued."""


CARTPOLE, BREAKOUT = Task("CartPole-v1", 4, 2), Task("Breakout-MinAtar", 400, 3)
PENDULUM, CHEETAH = Task("Pendulum-v1", 3, 1, real=True), Task("HalfCheetah-v5", 17, 6, real=True)
REACHER = Task("reacher", 11, 2, real=True)
TASKS = {task.name: task for task in (CARTPOLE, BREAKOUT, PENDULUM, CHEETAH, REACHER)}


@dataclass(frozen=True)
class Workload:
    """A training that any implementation of its algorithm can run."""

    name: str
    task: Task
    config: Any
    """Of the algorithm."""
    agents: int = 1
    """Agents that are trained together."""
    quick_iterations: int = 8
    """Iterations in a quick comparison."""

    @property
    def algorithm(self) -> str:
        """ppo, dqn or td3."""
        return self.config.algorithm

    @property
    def env(self) -> str:
        """Name of the environment."""
        return self.task.name

    @property
    def network(self) -> str:
        """Kind of network."""
        return getattr(self.config, "network", "mlp")

    def to_dict(self) -> dict[str, Any]:
        """Flat and JSON-able: the input of a program, without the seed."""
        flat = {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self.config).items()}
        unused = UNUSED if self.algorithm == "ppo" and self.task.real else (*UNUSED, *OF_REAL_ACTIONS)
        many = {"agents": self.agents} if self.agents > 1 else {}
        named = {"algorithm": self.algorithm, "env": self.env}
        return named | {name: x for name, x in flat.items() if name not in unused} | many

    def demand(self, hidden_sizes: Sequence[int] = ()) -> dict[str, Any]:
        """What an iteration asks of the machine, see `demand`; of a side whose layers are others, with those."""
        config = replace(self.config, hidden_sizes=tuple(hidden_sizes)) if hidden_sizes else self.config
        return demand(config, self.task.observation_size, self.task.action_size, self.agents)

    def with_iterations(self, num_iterations: int) -> "Workload":
        """The same work for another number of iterations."""
        return replace(self, config=replace(self.config, num_iterations=num_iterations))


# The peers keep the learning rate constant unless told otherwise.
_PPO = ppo.Config(hidden_sizes=(64, 64), anneal=False)
_LARGE_BATCH = replace(_PPO, num_envs=32, num_steps=256, num_minibatches=8, num_epochs=10)
_SMALL_BATCH = replace(_PPO, num_envs=4, num_steps=128, num_minibatches=4, num_epochs=4)
_MANY_ENVS = replace(_PPO, num_envs=64, num_steps=32, num_minibatches=8, num_epochs=4)
_CHEETAH = replace(_PPO, num_envs=8, num_steps=256, num_minibatches=32, num_epochs=10)
_RECURRENT = replace(_SMALL_BATCH, network="gru", hidden_sizes=(128,))
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
        Workload("A", CARTPOLE, replace(_LARGE_BATCH, num_iterations=24)),
        Workload("B", CARTPOLE, replace(_SMALL_BATCH, num_iterations=200)),
        Workload("C", BREAKOUT, replace(_LARGE_BATCH, num_iterations=10)),
        Workload("D", CARTPOLE, _DQN, quick_iterations=1_500),
        Workload("E", PENDULUM, _TD3, quick_iterations=1_500),
        Workload("F", REACHER, replace(_MANY_ENVS, num_iterations=50)),
        Workload("G", CHEETAH, replace(_CHEETAH, num_iterations=10)),
        Workload("H", CARTPOLE, replace(_RECURRENT, num_iterations=40)),
        Workload("I", CARTPOLE, replace(_SMALL_BATCH, num_iterations=30), agents=32),
    )
}
FIELDS_OF_CELL = ("workload", "variant")
"""Fields of a cell beyond the work itself: its name, and its implementation."""


def told(cell: Cell, seed: int) -> dict[str, Any]:
    """The input of a program from its cell: the same for all sides of a block."""
    return {name: x for name, x in cell.run.items() if name not in FIELDS_OF_CELL} | {"seed": seed}
