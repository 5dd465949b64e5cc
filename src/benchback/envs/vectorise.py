"""Vectorisation of single environments as device environments with auto-reset and episode statistics."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Shaped

from benchback.envs.any_member import any_member
from benchback.envs.interface import Box, Discrete, Env, EnvState, Step


class TimedState(NamedTuple):
    """A library's state and a step counter, for libraries that leave the time limit to wrappers."""

    state: Any
    time: Int[Array, ""]
    """Steps since the reset."""


def vectorise(environment: Any, params: Any, id: str, num_envs: int, actions: Discrete | Box) -> Env:
    """Any object with gymnax's `reset_env`, `step_env` and `is_truncated` as an Env."""
    observation_shape, dtypes = _probe(environment, params, actions)
    # MinAtar's float32 observations are zeros and ones; one byte per cell makes batches four times smaller.
    obs_dtype = jnp.bool_ if id.startswith("gymnax/") and id.endswith("-MinAtar") else None

    def observe(obs: Any) -> Shaped[Array, "*O"]:
        return jnp.asarray(obs, obs_dtype)

    def reset_one(key: Key[Array, ""]) -> tuple[Any, Shaped[Array, "*O"]]:
        obs, inner = environment.reset_env(key, params)
        return _cast(inner, dtypes), observe(obs)

    def step_one(key: Key[Array, ""], inner: Any, action: Shaped[Array, "*A"]) -> tuple[Any, ...]:
        if isinstance(actions, Box):
            action = jnp.clip(action, jnp.array(actions.low), jnp.array(actions.high))
        obs, inner, reward, terminated, _ = environment.step_env(key, inner, action, params)
        truncated = jnp.asarray(environment.is_truncated(inner, params), jnp.bool_)
        inner = _cast(inner, dtypes)
        return inner, observe(obs), jnp.asarray(reward, float), jnp.asarray(terminated, jnp.bool_), truncated

    def reset(key: Key[Array, ""]) -> EnvState:
        inner, obs = jax.vmap(reset_one)(jax.random.split(key, num_envs))
        return EnvState(inner, obs, jnp.zeros(num_envs, float), jnp.zeros(num_envs, jnp.int32))

    def draw(key: Key[Array, ""], num_steps: int) -> Key[Array, "T 2 E"]:
        return jax.random.split(key, (num_steps, 2, num_envs))

    def step(state: EnvState, action: Shaped[Array, "E *A"], noise: Key[Array, "2 E"]) -> tuple[EnvState, Step]:
        step_key, reset_key = noise
        inner, final_obs, reward, terminated, truncated = jax.vmap(step_one)(step_key, state.inner, action)
        done = terminated | truncated
        # Most steps end no episode: resets are computed only in those that do.
        inner, obs = jax.lax.cond(
            any_member(done.any()),
            lambda: _where(done, jax.vmap(reset_one)(reset_key), (inner, final_obs)),
            lambda: (inner, final_obs),
        )
        episode_return, episode_length = state.episode_return + reward, state.episode_length + 1
        outcome = Step(obs, reward, terminated, truncated, final_obs, episode_return, episode_length)
        ongoing = EnvState(inner, obs, jnp.where(done, 0, episode_return), jnp.where(done, 0, episode_length))
        return ongoing, outcome

    return Env(id, "jax", num_envs, observation_shape, actions, jax.random.key, reset, draw, step)


def _where(mask: Bool[Array, "E"], x: Any, y: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), x, y)


def _cast(inner: Any, dtypes: Any) -> Any:
    return jax.tree.map(lambda x, dtype: jax.lax.convert_element_type(x, dtype), inner, dtypes)


def _probe(environment: Any, params: Any, actions: Discrete | Box) -> tuple[tuple[int, ...], Any]:
    """The shape of an observation, and for each leaf of the state the common dtype of reset and step."""
    action = jnp.zeros((), jnp.int32) if isinstance(actions, Discrete) else jnp.zeros(actions.size, float)

    def both(key: Any) -> tuple[Any, Any, Any]:
        obs, first = environment.reset_env(key, params)
        second = environment.step_env(key, first, action, params)[1]
        return obs, first, second

    obs, first, second = jax.eval_shape(both, jax.random.key(0))
    dtypes = jax.tree.map(lambda a, b: jnp.promote_types(a.dtype, b.dtype), first, second)
    return obs.shape, dtypes
