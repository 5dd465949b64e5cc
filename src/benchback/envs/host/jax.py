"""A host environment inside a JAX program: the program calls back for every step, within loops too.

The callbacks are not ordered by JAX: each step takes the turn that the one before it gave, so none can start early,
and the environment refuses one that comes twice.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jaxtyping import Array, Key, Shaped, UInt8

from benchback.envs.host import Host, HostState
from benchback.envs.interface import Env, EnvState, Step

NUMBERS = 5
"""Fields of a Step that are one number for each environment."""


def serve(host: Host) -> Env:
    """The environment with JAX arrays at its border."""
    copies, num_envs = host.copies, host.num_envs
    turn_like = jax.ShapeDtypeStruct((), np.uint32)
    obs_like = jax.ShapeDtypeStruct((num_envs, copies.observation_size), copies.observation_dtype)
    numbers_like = jax.ShapeDtypeStruct((NUMBERS, num_envs), np.float32)

    def begin(seed: Any) -> tuple[np.uint32, np.ndarray]:
        turn, obs = host.reset(int(seed))
        return np.uint32(turn), obs

    def advance(turn: Any, action: Any) -> tuple[np.uint32, np.ndarray, np.ndarray, np.ndarray]:
        action = np.asarray(action)
        host.crossed(action)
        following, step = host.step(int(turn), action)
        # Every array that crosses costs 20 us in Python: what is one number an environment crosses as one.
        numbers = np.stack([*step[1:4], *step[5:]]).astype(np.float32)
        host.crossed(step.obs, step.final_obs, numbers)
        return np.uint32(following), step.obs, step.final_obs, numbers

    def reset(key: Key[Array, ""]) -> EnvState:
        turn, obs = io_callback(begin, (turn_like, obs_like), jax.random.bits(key))
        return EnvState(HostState(turn), obs, None, None)

    def draw(key: Key[Array, ""], num_steps: int) -> UInt8[Array, "T 0"]:
        return jnp.zeros((num_steps, 0), jnp.uint8)  # its chance is its own

    def step(state: EnvState, action: Shaped[Array, "E *A"], noise: UInt8[Array, "0"]) -> tuple[EnvState, Step]:
        likes = turn_like, obs_like, obs_like, numbers_like
        turn, obs, final_obs, numbers = io_callback(advance, likes, state.inner.turn, action)
        reward, terminated, truncated, episode_return, episode_length = numbers
        outcome = Step(
            obs=obs,
            reward=reward.astype(float),
            terminated=terminated.astype(jnp.bool_),
            truncated=truncated.astype(jnp.bool_),
            final_obs=final_obs,
            episode_return=episode_return.astype(float),
            episode_length=episode_length.astype(jnp.int32),
        )
        return EnvState(HostState(turn), obs, None, None), outcome

    return Env(
        host.id, "jax", num_envs, copies.observation_size, copies.actions, jax.random.key, reset, draw, step, host
    )
