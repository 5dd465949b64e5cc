"""Vectorised device environments, with one that shows its keys and actions: bounds, time limits, statistics, keys."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchback.envs.interface import Box, Env
from benchback.envs.vectorise import vectorise

NUM_ENVS, LIMIT = 4, 3


class Inner(NamedTuple):
    time: Any
    start: Any
    """Drawn by the reset."""


class Suite:
    """Rewards the action it is given, ends above 1.5 of it, or by its time limit; observes what it has drawn."""

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Inner]:
        start = jax.random.uniform(key)
        return jnp.array([start, 0.0]), Inner(jnp.int32(0), start)

    def step_env(self, key: Any, inner: Inner, action: Any, params: Any) -> tuple[Any, Inner, Any, Any, dict]:
        after = Inner(inner.time + 1, inner.start)
        return jnp.array([inner.start, jax.random.uniform(key)]), after, action[0], action[0] > 1.5, {}

    def is_truncated(self, inner: Inner, params: Any) -> Any:
        return inner.time >= LIMIT


@pytest.fixture(scope="module")
def env() -> Env:
    return vectorise(Suite(), None, "double/Shown-v0", NUM_ENVS, Box((-1.0,), (2.0,)))


def test_actions_are_kept_within_their_bounds(env: Env) -> None:
    state, noise = env.reset(env.random(0)), env.draw(env.random(1), 1)
    _, found = env.step(state, jnp.array([[-9.0], [0.5], [9.0], [1.0]]), noise[0])
    assert found.reward.tolist() == [-1.0, 0.5, 2.0, 1.0]
    assert found.terminated.tolist() == [False, False, True, False]


def test_a_time_limit_truncates_and_does_not_terminate(env: Env) -> None:
    state, noise = env.reset(env.random(0)), env.draw(env.random(1), 7)
    action = jnp.array([[0.5], [0.25], [0.0], [2.0]])
    lengths, returns, terminated, truncated = [], [], [], []
    for t in range(7):
        state, found = env.step(state, action, noise[t])
        lengths.append(found.episode_length[0].item())
        returns.append(found.episode_return[0].item())
        terminated.append(found.terminated.tolist())
        truncated.append(found.truncated.tolist())
    assert lengths == [1, 2, 3, 1, 2, 3, 1]
    assert returns == [0.5, 1.0, 1.5, 0.5, 1.0, 1.5, 0.5]
    assert terminated == [[False, False, False, True]] * 7
    assert [row[0] for row in truncated] == [False, False, True, False, False, True, False]
    assert not any(row[3] for row in truncated), "it ends before its time limit"


def test_every_step_and_reset_of_every_environment_draws_its_own(env: Env) -> None:
    state, noise = env.reset(env.random(0)), env.draw(env.random(1), 9)
    drawn = [*np.asarray(state.obs[:, 0])]
    for t in range(9):
        state, found = env.step(state, jnp.full((NUM_ENVS, 1), 2.0), noise[t])
        drawn += [*np.asarray(found.final_obs[:, 1]), *np.asarray(found.obs[:, 0])]
    assert len(drawn) == NUM_ENVS * (1 + 2 * 9)
    assert len(set(map(float, drawn))) == len(drawn)
