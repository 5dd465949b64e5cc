"""Environments of a user's own, of every kind that `python:` takes, and some that break a law each."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from benchback.envs.external import Copies
from benchback.envs.interface import Box, Discrete, Env, EnvState, Step
from benchback.envs.vectorise import vectorise

LIMIT = 12


class Place(NamedTuple):
    x: Any
    time: Any


class Walk:
    """Steps to the left or to the right from a random place near 0; a limit truncates, falling off terminates."""

    actions: Discrete | Box = Discrete(2)
    edge = 2.0

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Place]:
        return self.seen(place := Place(self.begin(key), jnp.zeros((), jnp.int32))), place

    def step_env(self, key: Any, place: Place, action: Any, params: Any) -> tuple[Any, Place, Any, Any, dict]:
        following = Place(place.x + 0.3 * (2.0 * action - 1), place.time + 1)
        return self.seen(following), following, 2 * following.x, self.ended(following), {}

    def begin(self, key: Any) -> Any:
        return jax.random.uniform(key, minval=-0.5, maxval=0.5)

    def seen(self, place: Place) -> Any:
        return jnp.stack([place.x, place.time / LIMIT])

    def ended(self, place: Place) -> Any:
        return jnp.abs(place.x) > self.edge

    def is_truncated(self, place: Place, params: Any) -> Any:
        return place.time >= LIMIT

    def render_state(self, place: Place, params: Any) -> np.ndarray:
        image = np.zeros((16, 16, 3), np.uint8)
        image[8, int(np.clip(8 + 4 * place.x, 0, 15))] = 255
        return image


class TerminatedByTime:
    """A walk without edges whose limit terminates; it knows nothing of truncation."""

    actions = Discrete(2)
    reset_env = Walk.reset_env
    step_env = Walk.step_env
    begin, seen = Walk.begin, Walk.seen

    def ended(self, place: Place) -> Any:
        return place.time >= LIMIT


class BeginsAlike(Walk):
    def begin(self, key: Any) -> Any:
        return jnp.full((), 0.1)


class SometimesNaN(Walk):
    def seen(self, place: Place) -> Any:
        return jnp.where(place.time == 7, jnp.nan, super().seen(place))


class IgnoresActions(Walk):
    def step_env(self, key: Any, place: Place, action: Any, params: Any) -> tuple[Any, Place, Any, Any, dict]:
        return super().step_env(key, place, jnp.zeros_like(action), params)


class Echo(Walk):
    """The observation is the action that was taken."""

    actions = Discrete(1000)

    def step_env(self, key: Any, place: Place, action: Any, params: Any) -> tuple[Any, Place, Any, Any, dict]:
        following = Place(jnp.asarray(action, float), place.time + 1)
        return self.seen(following), following, 1.0, False, {}


def jax_env(num_envs: int) -> Env:
    """An Env of JAX arrays."""
    return vectorise(Walk(), None, "any", num_envs, Discrete(2))


def _changed(num_envs: int, change: Any) -> Env:
    env = jax_env(num_envs)

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        following, outcome = env.step(state, action, noise)
        return following, change(outcome)

    return replace(env, step=step)


def final_after_reset(num_envs: int) -> Env:
    return _changed(num_envs, lambda step: step._replace(final_obs=step.obs))


def column_of_rewards(num_envs: int) -> Env:
    return _changed(num_envs, lambda step: step._replace(reward=step.reward[:, None]))


def changing_state(num_envs: int) -> Env:
    """Counts its steps in real numbers, and begins with a whole one."""
    env = jax_env(num_envs)

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        following, outcome = env.step(state, action, noise)
        return following._replace(episode_length=following.episode_length + 0.0), outcome

    return replace(env, step=step)


def shared_reward(num_envs: int) -> Env:
    return _changed(num_envs, lambda step: step._replace(reward=step.reward.mean() + 0 * step.reward))


class Push(Walk):
    """The push is the action."""

    actions = Box((-9.0,), (9.0,))

    def step_env(self, key: Any, place: Place, action: Any, params: Any) -> tuple[Any, Place, Any, Any, dict]:
        following = Place(place.x + 0.01 * action[0], place.time + 1)
        return self.seen(following), following, following.x, False, {}


def unbounded(num_envs: int) -> Env:
    """Promises bounds and does not keep to them."""
    return replace(vectorise(Push(), None, "any", num_envs, Push.actions), actions=Box((-1.0,), (1.0,)))


def torch_env(num_envs: int) -> Env:
    """An Env of torch tensors."""
    from benchback.envs.torch import make

    return make("CartPole-v1", num_envs)


def _with_inner(env: Env, change: Any, back: Any) -> Env:
    """The environment with another form of its inner state."""

    def reset(generator: Any) -> EnvState:
        state = env.reset(generator)
        return state._replace(inner=change(state.inner))

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        following, outcome = env.step(state._replace(inner=back(state.inner)), action, noise)
        return following._replace(inner=change(following.inner)), outcome

    return replace(env, reset=reset, step=step)


def torch_env_of_tuples(num_envs: int) -> Env:
    """An Env of torch tensors whose state is a dictionary with a tuple and an empty one."""
    env = torch_env(num_envs)
    record = type(env.reset(env.random(0)).inner)
    return _with_inner(env, lambda x: {"all": tuple(x), "none": ()}, lambda x: record(*x["all"]))


def torch_env_of_objects(num_envs: int) -> Env:
    """An Env of torch tensors that keeps them in an object."""
    return _with_inner(torch_env(num_envs), lambda x: SimpleNamespace(x=x), lambda x: x.x)


class Lights:
    """Copies of one's own: as many lamps as environments, which the actions switch."""

    observation_shape, observation_dtype, actions = (3,), np.dtype(np.float32), Discrete(3)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def start(self, seed: int) -> np.ndarray:
        self.generators = [np.random.default_rng([seed, e]) for e in range(self.num_envs)]
        self.time, self.lit = np.zeros(self.num_envs, int), np.zeros((self.num_envs, 3), np.float32)
        return self.restart(np.arange(self.num_envs))

    def restart(self, index: np.ndarray) -> np.ndarray:
        self.time[index] = 0
        self.lit[index] = [self.generators[e].random(3) for e in index]
        return self.lit[index]

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        self.time += 1
        self.lit[np.arange(self.num_envs), action] *= -0.9
        reward = self.lit.sum(1)
        return self.lit.copy(), reward, reward < -2, self.time >= LIMIT


class ExternalEcho(Lights):
    """The observation is the action that was taken; in Python."""

    actions = Discrete(1000)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        self.time += 1
        obs = np.repeat(action.astype(np.float32)[:, None], 3, axis=1)
        return obs, np.ones(self.num_envs, np.float32), np.zeros(self.num_envs, bool), self.time >= LIMIT


def copies(num_envs: int) -> Copies:
    """The same as a record of functions."""
    lights = Lights(num_envs)
    return Copies(
        lights.observation_shape, lights.observation_dtype, lights.actions, lights.start, lights.advance, lights.restart
    )


class Unseeded(gymnasium.Env):
    """Draws from a generator that no seed reaches."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.time, self.x = 0, np.random.default_rng().normal(size=2).astype(np.float32)
        return self.x, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.time, self.x = self.time + 1, self.x + np.float32(0.1 * action)
        return self.x, 1.0, False, self.time >= LIMIT, {}


class Parts(gymnasium.Env):
    """Observations and actions of several parts, nested; the reward tells which action arrived."""

    observation_space = gymnasium.spaces.Dict(
        {
            "a": gymnasium.spaces.Box(-1, 1, (2, 2)),
            "b": gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary(2))),
            "c": gymnasium.spaces.MultiDiscrete([2, 3]),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([3, 4], start=[1, 0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        return self.seen(), {}

    def seen(self) -> dict:
        return {"a": np.ones((2, 2), np.float32), "b": (1, np.array([0, 1])), "c": np.array([1, 2])}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        return self.seen(), float(10 * action[0] + action[1]), False, False, {}


class Sentences(Parts):
    observation_space = gymnasium.spaces.Text(5)  # type: ignore[assignment]


class ManyActions(Parts):
    action_space = gymnasium.spaces.MultiDiscrete([100, 100])


SAME = Parts()


def same() -> gymnasium.Env:
    return SAME


def number(num_envs: int) -> int:
    return num_envs


def failing() -> None:
    raise KeyError("no lamp here")


NOT_CALLABLE = 3
gymnasium.register("Parts-v0", lambda **options: Parts(**options), max_episode_steps=5)
