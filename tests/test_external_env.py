"""Environments in Python, with a suite that is a list of lengths: statistics, resets and bounds by hand."""

import numpy as np
import pytest

from benchback.envs.external import Copies, ExternalEnv
from benchback.envs.interface import Box

LENGTHS = (2, 3)
"""After so many steps an episode of each copy ends; the second copy's by its time limit."""


class Suite:
    """Counts its steps; the reward of a step is the action."""

    def __init__(self) -> None:
        self.steps, self.restarted, self.taken = np.zeros(2, np.int32), [], []

    def start(self, seed: int) -> np.ndarray:
        self.steps[:] = 0
        return np.full((2, 1), 100.0 + seed, np.float32)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        self.taken.append(action[:, 0].tolist())
        self.steps += 1
        over = self.steps == LENGTHS
        obs = self.steps.astype(np.float32)[:, None]
        return obs, action[:, 0].astype(np.float32), over & [True, False], over & [False, True]

    def restart(self, index: np.ndarray) -> np.ndarray:
        self.restarted.append(index.tolist())
        self.steps[index] = 0
        return np.full((len(index), 1), -1.0, np.float32)


@pytest.fixture
def suite() -> Suite:
    return Suite()


@pytest.fixture
def env(suite: Suite) -> ExternalEnv:
    bounds = Box((-2.0,), (2.0,))
    copies = Copies((1,), np.dtype(np.float32), bounds, suite.start, suite.advance, suite.restart)
    return ExternalEnv("double", 2, copies)


def test_statistics_are_those_of_one_episode(env: ExternalEnv, suite: Suite) -> None:
    index, obs = env.reset(5)
    assert obs.ravel().tolist() == [105.0, 105.0]
    lengths, returns, ends, seen, final = [], [], [], [], []
    for step in range(1, 7):
        index, found = env.step(index, np.full((2, 1), 0.5 if step % 2 else 1.0))
        lengths.append(found.episode_length.tolist())
        returns.append(found.episode_return.tolist())
        ends.append((found.terminated.tolist(), found.truncated.tolist()))
        seen.append(found.obs.ravel().tolist())
        final.append(found.final_obs.ravel().tolist())
    assert lengths == [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2], [2, 3]]
    assert returns == [[0.5, 0.5], [1.5, 1.5], [0.5, 2.0], [1.5, 1.0], [0.5, 1.5], [1.5, 2.5]]
    assert [terminated[0] for terminated, _ in ends] == [False, True] * 3
    assert [truncated[1] for _, truncated in ends] == [False, False, True] * 2
    assert seen == [[1, 1], [-1, 2], [1, -1], [-1, 1], [1, 2], [-1, -1]]
    assert final == [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2], [2, 3]]
    assert suite.restarted == [[0], [1], [0], [0, 1]]


def test_a_reset_begins_new_episodes(env: ExternalEnv) -> None:
    index, _ = env.reset(0)
    index, _ = env.step(index, np.ones((2, 1)))
    index, _ = env.reset(1)
    _, found = env.step(index, np.ones((2, 1)))
    assert (found.episode_length.tolist(), found.episode_return.tolist()) == ([1, 1], [1.0, 1.0])


def test_actions_are_kept_within_their_bounds(env: ExternalEnv, suite: Suite) -> None:
    index, _ = env.reset(0)
    env.step(index, np.array([[7.0], [-7.0]]))
    assert suite.taken == [[2.0, -2.0]]
