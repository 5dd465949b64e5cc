"""Host environments: they live in Python, and every step of all copies crosses to them and back once.

A suite says how its copies start and advance (`Copies`). What all of them share is here: actions kept within their
bounds, fresh starts in the step that ends an episode, episode statistics, and a count of what crossing costs. How
arrays cross is each framework's own: `host/jax.py` calls back from inside the compiled program, `host/torch.py`
steps between two calls of the policy.

Such an environment cannot be copied, so a state is only good for one step, the next; and it cannot be written to a
file, so a resumed run starts new episodes where another one would continue them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchback.agent import Weights
from benchback.envs.interface import Box, Discrete, Step


class Copies(NamedTuple):
    """A suite's environment, all copies at once, without auto-reset. Arrays are NumPy's, observations flat."""

    observation_size: int
    observation_dtype: np.dtype
    actions: Discrete | Box
    start: Callable[[int], np.ndarray]
    """Seed -> observations of all copies, each in an episode of its own."""
    advance: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    """Actions -> observation, reward, terminated, truncated; arrays that nobody else writes into."""
    restart: Callable[[np.ndarray], np.ndarray]
    """Numbers of some copies -> their observations in fresh episodes."""


@dataclass
class Crossings:
    """What the steps of an environment outside of the program have cost so far."""

    transfers: int = 0
    """Times that arrays went over, in either direction."""
    bytes: int = 0
    """What they held."""
    seconds: float = 0.0
    """Spent in the environment itself."""


class HostState(NamedTuple):
    """The place in an environment's history at which a state is good."""

    turn: Any

    def to_weights(self, prefix: str) -> Weights:
        """Nothing: what lives in Python objects cannot be written to a file and continued."""
        return {}


class Host:
    """`num_envs` copies of an environment, and the only thing in this package that remembers."""

    def __init__(self, id: str, num_envs: int, copies: Copies) -> None:
        self.id, self.num_envs, self.copies = id, num_envs, copies
        self.crossings = Crossings()
        self.turn = 0
        self._episode_return = np.zeros(num_envs, np.float32)
        self._episode_length = np.zeros(num_envs, np.int32)

    def reset(self, seed: int) -> tuple[int, np.ndarray]:
        """The turn that begins, and the first observations of new episodes."""
        obs = self.copies.start(seed)
        self._episode_return[:], self._episode_length[:] = 0, 0
        self.turn += 1
        return self.turn, obs

    def step(self, turn: int, action: np.ndarray) -> tuple[int, Step]:
        """The next turn, and the outcome in arrays that are never written into again."""
        if turn != self.turn:
            raise RuntimeError(
                f"{self.id} is at turn {self.turn} and was asked to go on from {turn}: a host environment has one "
                "state, the latest; make another environment for another agent"
            )
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
        self.turn += 1
        self.crossings.seconds += time.perf_counter() - started
        return self.turn, Step(obs, reward, terminated, truncated, final_obs, *statistics)

    def crossed(self, *arrays: np.ndarray) -> None:
        """Count arrays that went over together."""
        self.crossings.transfers += 1
        self.crossings.bytes += sum(x.nbytes for x in arrays)
