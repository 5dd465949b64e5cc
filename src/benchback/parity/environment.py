"""Environment for parity tests: within a few steps its episodes terminate, are truncated, or both.

Its transitions are a fixed function of observation and action, so that the final observation of an
episode, which rollouts do not store, can be computed from what they store.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from benchback.envs.interface import Box, Discrete, Env, EnvState, Step

OBSERVATION_SIZE = 4
NUM_ACTIONS = 3
ACTION_SIZE = 2
TIME_LIMIT = 3


BOX = Box((-1.5,) * ACTION_SIZE, (1.5,) * ACTION_SIZE)


def successor(numpy: ModuleType, obs: Any, action: Any) -> Any:
    """The observation that follows, in the arrays of `numpy` (NumPy itself or `jax.numpy`)."""
    if action.ndim < obs.ndim:
        return 0.5 * numpy.roll(obs, 1, -1) + 0.5 * (action[..., None] - 1)
    push = numpy.clip(action, BOX.low[0], BOX.high[0]).sum(-1, keepdims=True)
    return 0.5 * numpy.roll(obs, 1, -1) + 0.5 * push


def next_obs(batch: Any, noise: Any) -> Any:
    """The observation after each step of a rollout in NumPy arrays, `[T, E, O]`: `noise` where an episode ended."""
    import numpy

    following = successor(numpy, batch.obs.astype(float), batch.action.astype(float))
    return numpy.where((batch.terminated | batch.truncated)[..., None], noise, following)


def make(num_envs: int, framework: Literal["jax", "torch"], kind: Literal["discrete", "box"] = "discrete") -> Env:
    """`num_envs` copies whose arrays are of `framework` and whose actions are of that kind."""
    env = _make(num_envs, Discrete(NUM_ACTIONS) if kind == "discrete" else BOX)
    return env if framework == "jax" else import_module("benchback.envs.bridge").to_torch(env)


def _make(num_envs: int, actions: Discrete | Box) -> Env:
    import jax
    import jax.numpy as jnp

    def reset(key: Any) -> EnvState:
        return EnvState((), draw(key, 1)[0], jnp.zeros(num_envs, float), jnp.zeros(num_envs, jnp.int32))

    def draw(key: Any, num_steps: int) -> Any:
        return jax.random.normal(key, (num_steps, num_envs, OBSERVATION_SIZE), float)

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        final_obs = successor(jnp, state.obs, action)
        reward = final_obs[:, 1]
        episode_length = state.episode_length + 1
        episode_return = state.episode_return + reward
        terminated = final_obs[:, 0] > 0.5
        truncated = episode_length >= TIME_LIMIT
        done = terminated | truncated
        obs = jnp.where(done[:, None], noise, final_obs)
        outcome = Step(obs, reward, terminated, truncated, final_obs, episode_return, episode_length)
        resumed = jnp.where(done, 0, episode_return), jnp.where(done, 0, episode_length)
        return EnvState(state.inner, obs, *resumed), outcome

    return Env(
        id="parity",
        framework="jax",
        num_envs=num_envs,
        observation_shape=(OBSERVATION_SIZE,),
        actions=actions,
        random=jax.random.key,
        reset=reset,
        draw=draw,
        step=step,
    )
