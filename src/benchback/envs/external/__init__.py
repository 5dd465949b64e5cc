"""External environments, which run in Python: every step transfers arrays there and back once for all copies.

A suite defines how its copies start and advance (`Copies`). What all suites share is here: clipping of
actions to their bounds, reset of an ended episode in the step that ended it, episode statistics, and a count of the
transfers. How arrays are transferred depends on the framework: `external/jax.py` calls back from inside the compiled
program, `external/torch.py` steps between two calls of the policy.

Such an environment cannot be copied, so a state is valid for one step only, the next; and it cannot be written to a
file, so a resumed run starts new episodes where a device environment would continue them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchback.agent import Weights
from benchback.envs.interface import Box, Discrete, Step


class Copies(NamedTuple):
    """All copies of a suite's environment, without auto-reset. NumPy arrays; observations are `[E, *O]`."""

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    actions: Discrete | Box
    start: Callable[[int], np.ndarray]
    """Seed -> first observations of all copies."""
    advance: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    """Actions -> observation, reward, terminated, truncated; arrays are not reused."""
    restart: Callable[[np.ndarray], np.ndarray]
    """Indices of copies -> their first observations of new episodes."""
    render: Callable[[], Any] | None = None
    """A picture of the first copy, `[height, width, 3]` in bytes; None if there is none."""
    notes: tuple[str, ...] = ()
    """What a user should know of how its spaces were changed."""


@dataclass
class TransferStats:
    """Transfers and time of an external environment so far."""

    transfers: int = 0
    """Number of transfers, in either direction."""
    bytes: int = 0
    """Size of all arrays transferred."""
    seconds: float = 0.0
    """Time spent in the environment itself."""


class ExternalState(NamedTuple):
    """Index of the next step; the state itself stays in Python."""

    step_index: Any

    def to_weights(self, prefix: str) -> Weights:
        """Nothing: Python objects cannot be written to a file and continued."""
        return {}


class ExternalEnv:
    """`num_envs` copies of an environment that runs in Python: the only mutable state of this package."""

    def __init__(self, id: str, num_envs: int, copies: Copies) -> None:
        self.id, self.num_envs, self.copies = id, num_envs, copies
        self.transfer_stats = TransferStats()
        self.step_index = 0
        self._episode_return = np.zeros(num_envs, np.float32)
        self._episode_length = np.zeros(num_envs, np.int32)

    def reset(self, seed: int) -> tuple[int, np.ndarray]:
        """The index of the next step, and the first observations of new episodes."""
        obs = self.copies.start(seed)
        self._episode_return[:], self._episode_length[:] = 0, 0
        self.step_index += 1
        return self.step_index, obs

    def step(self, step_index: int, action: np.ndarray) -> tuple[int, Step]:
        """The index of the next step, and the outcome in arrays that are never written into again."""
        self.check_latest(step_index)
        started = time.perf_counter()
        actions = self.copies.actions
        if isinstance(actions, Box):
            action = np.clip(action, actions.low, actions.high)
        final_obs, reward, terminated, truncated = self.copies.advance(action)
        self._episode_return += reward
        self._episode_length += 1
        statistics = self._episode_return.copy(), self._episode_length.copy()
        obs, done = final_obs, terminated | truncated
        if done.any():
            ended = np.flatnonzero(done)
            obs = final_obs.copy()
            obs[ended] = self.copies.restart(ended)
            self._episode_return[ended], self._episode_length[ended] = 0, 0
        self.step_index += 1
        self.transfer_stats.seconds += time.perf_counter() - started
        return self.step_index, Step(obs, reward, terminated, truncated, final_obs, *statistics)

    def check_latest(self, step_index: int) -> None:
        """Raise an error unless it is asked to go on from its latest state."""
        if step_index != self.step_index:
            raise RuntimeError(
                f"{self.id} is at step {self.step_index} and was asked to go on from step "
                f"{step_index}: an external environment has one state, the latest; make another one for another agent"
            )

    def count_transfer(self, *arrays: np.ndarray) -> None:
        """Count arrays that were transferred together."""
        self.transfer_stats.transfers += 1
        self.transfer_stats.bytes += sum(x.nbytes for x in arrays)
