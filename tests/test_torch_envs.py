"""Native torch environments: the same games as gymnax's, with fresh starts and statistics around them."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import gymnax
import jax
import numpy as np
import pytest
import torch
from torch import Tensor

from benchback.envs import TORCH
from benchback.envs.interface import Env, EnvState, Step
from benchback.envs.torch import make
from benchback.envs.torch.breakout import State as Breakout
from benchback.envs.torch.breakout import advance as advance_breakout

E, T = 8, 600
BREAKOUT_FIELDS = ("ball_y", "ball_x", "ball_dir", "pos", "brick_map", "strike", "last_y", "last_x")
LIMITS = {"CartPole-v1": 500, "Acrobot-v1": 500, "MountainCar-v0": 200, "Breakout-MinAtar": 1000}


def skilful(name: str, obs: Tensor) -> Tensor:
    """A simple player that reaches parts of each game that a random one does not."""
    if name == "CartPole-v1":
        return (obs[:, 2] + obs[:, 3] > 0).long()
    if name == "Acrobot-v1":
        return 2 * (obs[:, 5] > 0).long()
    if name == "MountainCar-v0":
        return 2 * (obs[:, 1] >= 0).long()
    plane = obs.long()
    ball, paddle = plane[..., 1].sum(1).argmax(-1), plane[:, 9, :, 0].argmax(-1)
    return (ball < paddle) + 2 * (ball > paddle).long()


@cache
def play(name: str) -> tuple[Env, list[EnvState], list[Tensor], list[Step]]:
    """Half of the environments in random hands, half in skilful ones; some close to their time limit."""
    env = make(name, E)
    generator = env.random(1)
    state = env.reset(generator)
    late = LIMITS[name] - 7 * torch.arange(E, dtype=torch.int32)
    state = state._replace(episode_length=torch.where(torch.arange(E) % 4 < 2, 0, late))
    states, actions, steps = [], [], []
    for noise in env.draw(generator, T):
        action = torch.randint(env.actions.size, (E,), generator=generator)
        action = torch.where(torch.arange(E) % 2 == 0, action, skilful(name, state.obs))
        states.append(state)
        actions.append(action)
        state, step = env.step(state, action, noise)
        steps.append(step)
    return env, [*states, state], actions, steps


def stacked(records: list[Any]) -> Any:
    """A list of equal trees of tensors as one tree of NumPy arrays."""
    if isinstance(records[0], Tensor):
        return torch.stack(records).numpy()
    parts = [stacked(list(part)) for part in zip(*records, strict=True)]
    return type(records[0])(*parts)


def to_gymnax(name: str, inner: Any, time: np.ndarray) -> Any:
    """A native state in gymnax's own type; leading axes are kept."""
    state_type = import_module(type(gymnax.make(name)[0]).__module__).EnvState
    if name != "Breakout-MinAtar":
        return state_type(time, *np.moveaxis(inner.motion, -1, 0))
    return state_type(
        ball_y=inner.ball_y,
        ball_x=inner.ball_x,
        ball_dir=np.where(inner.velocity_y < 0, (1 + inner.velocity_x) // 2, (5 - inner.velocity_x) // 2),
        pos=inner.paddle,
        brick_map=inner.brick.reshape(*inner.brick.shape[:-1], 10, 10).astype(np.float32),
        strike=inner.strike,
        last_y=inner.last_y,
        last_x=inner.last_x,
        time=time,
        terminal=np.zeros_like(inner.strike),
    )


def gymnax_step(name: str, inner: Any, time: np.ndarray, action: np.ndarray) -> tuple[Any, ...]:
    """What gymnax makes of many transitions: observation, state, reward, terminated, truncated."""
    environment, params = gymnax.make(name)

    def one(state: Any, action: Any) -> tuple[Any, ...]:
        obs, state, reward, terminated, _ = environment.step_env(jax.random.key(0), state, action, params)
        return obs, state, reward, terminated, environment.is_truncated(state, params)

    step: Callable[..., Any] = jax.vmap(one)
    for _ in range(action.ndim - 1):
        step = jax.vmap(step)
    return jax.jit(step)(to_gymnax(name, inner, time), action)


@pytest.mark.parametrize("name", TORCH)
def test_every_transition_equals_gymnax(name: str) -> None:
    _, states, actions, steps = play(name)
    before, after, step = stacked(states[:-1]), stacked(states[1:]), stacked(steps)
    expected = gymnax_step(name, before.inner, before.episode_length, stacked(actions))
    obs, state, reward, terminated, truncated = jax.tree.map(np.asarray, expected)
    np.testing.assert_allclose(step.final_obs, obs, rtol=5e-6, atol=5e-6)
    np.testing.assert_array_equal(step.reward, np.broadcast_to(reward, step.reward.shape))
    np.testing.assert_array_equal(step.terminated, terminated)
    np.testing.assert_array_equal(step.truncated, truncated)
    ongoing = ~(terminated | truncated)
    reached = to_gymnax(name, after.inner, after.episode_length)
    for field in ("time", *BREAKOUT_FIELDS) if name == "Breakout-MinAtar" else ("time",):
        np.testing.assert_array_equal(getattr(reached, field)[ongoing], getattr(state, field)[ongoing], field)
    assert step.terminated.any(), "the players must reach an end"
    assert step.truncated.any(), "the players must reach a time limit"


def test_breakout_equals_gymnax_from_any_state() -> None:
    random, n = np.random.default_rng(0), 20_000
    ball_x, ball_y = random.integers(0, 10, n), random.integers(0, 9, n)
    wall = random.random((n, 100)) < random.choice([0, 0.01, 0.5], (n, 1))
    inner = Breakout(
        ball_y=ball_y,
        ball_x=ball_x,
        velocity_y=random.choice([-1, 1], n),
        velocity_x=random.choice([-1, 1], n),
        paddle=random.integers(0, 10, n),
        brick=wall & (np.arange(100) // 10 < 4),
        strike=random.random(n) < 0.5,
        last_y=random.integers(0, 10, n),
        last_x=random.integers(0, 10, n),
    )
    inner = Breakout(*(x.astype(np.int32) if x.dtype.kind == "i" else x for x in inner))
    action = random.integers(0, 3, n)
    moved, reward, lost = advance_breakout(Breakout(*map(torch.from_numpy, inner)), torch.from_numpy(action))
    _, state, gymnax_reward, terminated, _ = gymnax_step("Breakout-MinAtar", inner, np.zeros(n, np.int32), action)
    ours = to_gymnax("Breakout-MinAtar", Breakout(*(x.numpy() for x in moved)), np.ones(n, np.int32))
    for field in BREAKOUT_FIELDS:
        np.testing.assert_array_equal(getattr(ours, field), getattr(state, field), field)
    np.testing.assert_array_equal(reward, gymnax_reward)
    np.testing.assert_array_equal(lost, terminated)
    respawned = (~inner.brick.any(-1)) & moved.brick.numpy().any(-1)
    assert 0 < respawned.sum() < n
    assert 0 < lost.sum() < n
    assert 0 < reward.sum() < n


@pytest.mark.parametrize("name", TORCH)
def test_starts_follow_gymnax_distribution(name: str) -> None:
    n = 4000
    env = make(name, n)
    ours = env.reset(env.random(0)).obs.numpy().astype(float)
    environment, params = gymnax.make(name)
    theirs = jax.vmap(lambda key: environment.reset_env(key, params)[0])(jax.random.split(jax.random.key(0), n))
    assert ours.shape == theirs.shape
    for x, y in zip(ours.reshape(n, -1).T, np.asarray(theirs, float).reshape(n, -1).T, strict=True):
        grid = np.sort(np.concatenate([x, y]))
        distance = np.searchsorted(np.sort(x), grid, "right") - np.searchsorted(np.sort(y), grid, "right")
        assert np.abs(distance).max() / n < 0.05  # Kolmogorov and Smirnov: exceeded once in 10,000 trials


@pytest.mark.parametrize("name", TORCH)
def test_ended_episodes_begin_anew_and_others_go_on(name: str) -> None:
    env, states, _, steps = play(name)
    step = stacked(steps)
    done = step.terminated | step.truncated
    np.testing.assert_array_equal(step.obs, stacked(states[1:]).obs)
    np.testing.assert_array_equal(step.obs[~done], step.final_obs[~done])
    begun = np.unique(step.obs[done], axis=0)
    assert len(begun) == (2 if name == "Breakout-MinAtar" else done.sum()), "no two starts may be alike"
    first = make(name, 4000).reset(env.random(0)).obs.numpy().astype(float)
    assert (begun >= first.min(0) - 0.01).all()
    assert (begun <= first.max(0) + 0.01).all()


@pytest.mark.parametrize("name", TORCH)
def test_episode_statistics_are_those_of_a_plain_count(name: str) -> None:
    _, states, _, steps = play(name)
    step = stacked(steps)
    total, length = np.zeros(E), states[0].episode_length.numpy().copy()
    for t in range(T):
        total, length = total + step.reward[t], length + 1
        np.testing.assert_allclose(step.episode_return[t], total)
        np.testing.assert_array_equal(step.episode_length[t], length)
        done = step.terminated[t] | step.truncated[t]
        total[done], length[done] = 0, 0
    np.testing.assert_allclose(states[-1].episode_return, total)
    np.testing.assert_array_equal(states[-1].episode_length, length)


@pytest.mark.parametrize("name", TORCH)
def test_a_step_asks_nothing_of_the_device(name: str) -> None:
    """Meta tensors have no values: whatever waits for one or branches on it fails."""
    env = make(name, E)
    generator = env.random(0)
    state, noise = env.reset(generator), env.draw(generator, 1)[0]
    inner = type(state.inner)(*(x.to("meta") for x in state.inner))
    state = EnvState(inner, *(x.to("meta") for x in state[1:]))
    state, step = env.step(state, torch.zeros(E, dtype=torch.long, device="meta"), noise.to("meta"))
    assert {x.device.type for x in (*step, *state.inner, *state[1:])} == {"meta"}


@pytest.mark.parametrize("name", TORCH)
def test_a_step_keeps_types_and_leaves_its_arguments_alone(name: str) -> None:
    env = make(name, E)
    generator = env.random(0)
    state, noise = env.reset(generator), env.draw(generator, 1)[0]
    tensors = [*state.inner, *state[1:], noise]
    copies = [x.clone() for x in tensors]
    following, step = env.step(state, torch.ones(E, dtype=torch.long), noise)
    assert all(torch.equal(x, y) for x, y in zip(tensors, copies, strict=True))
    # A type or a stride that changed between the first step and the next would compile a program twice.
    for x, y in zip([*following.inner, *following[1:]], tensors, strict=False):
        assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride())
    assert state.obs.dtype == (torch.bool if name == "Breakout-MinAtar" else torch.float32)
    assert state.obs.shape == step.final_obs.shape == (E, *env.observation_shape)
    assert step.reward.dtype == torch.float32
