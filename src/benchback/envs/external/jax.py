"""An external environment inside a JAX program: the program calls back to Python for every step, within loops too.

JAX does not order the callbacks: each step takes the index that the one before it returned, so none can start early,
and the environment refuses an index that comes twice.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jaxtyping import Array, Float, Key, Shaped, UInt8

from benchback.envs.external import ExternalEnv, ExternalState
from benchback.envs.interface import Env, EnvState, Step

NUM_SCALARS = 5
"""Number of fields of a Step that are one scalar per environment."""


def serve(external: ExternalEnv) -> Env:
    """The environment with JAX arrays at its interface."""
    copies, num_envs = external.copies, external.num_envs
    index_like = jax.ShapeDtypeStruct((), np.uint32)
    obs_like = jax.ShapeDtypeStruct((num_envs, *copies.observation_shape), copies.observation_dtype)
    scalars_like = jax.ShapeDtypeStruct((NUM_SCALARS, num_envs), np.float32)

    def begin(seed: Any) -> tuple[np.uint32, np.ndarray]:
        step_index, obs = external.reset(int(seed))
        return np.uint32(step_index), obs

    def advance(step_index: Any, action: Any) -> tuple[np.uint32, np.ndarray, np.ndarray, np.ndarray]:
        action = np.asarray(action)
        external.count_transfer(action)
        next_index, step = external.step(int(step_index), action)
        scalars = _pack(step)
        external.count_transfer(step.obs, step.final_obs, scalars)
        return np.uint32(next_index), step.obs, step.final_obs, scalars

    def reset(key: Key[Array, ""]) -> EnvState:
        step_index, obs = io_callback(begin, (index_like, obs_like), jax.random.bits(key))
        return EnvState(ExternalState(step_index), obs, None, None)

    def draw(key: Key[Array, ""], num_steps: int) -> UInt8[Array, "T 0"]:
        return jnp.zeros((num_steps, 0), jnp.uint8)  # the environment draws its own randomness

    def step(state: EnvState, action: Shaped[Array, "E *A"], noise: UInt8[Array, "0"]) -> tuple[EnvState, Step]:
        likes = index_like, obs_like, obs_like, scalars_like
        step_index, obs, final_obs, scalars = io_callback(advance, likes, state.inner.step_index, action)
        return EnvState(ExternalState(step_index), obs, None, None), _unpack(obs, final_obs, scalars)

    return Env(
        id=external.id,
        framework="jax",
        num_envs=num_envs,
        observation_shape=copies.observation_shape,
        actions=copies.actions,
        random=jax.random.key,
        reset=reset,
        draw=draw,
        step=step,
        external=external,
    )


def _pack(step: Step) -> np.ndarray:
    """The scalars of all environments, `[NUM_SCALARS, E]`: every array transferred costs 20 us in Python."""
    return np.stack([*step[1:4], *step[5:]]).astype(np.float32)


def _unpack(obs: Any, final_obs: Any, scalars: Float[Array, "N E"]) -> Step:
    """The Step whose scalars `_pack` has packed."""
    reward, terminated, truncated, episode_return, episode_length = scalars
    return Step(
        obs=obs,
        reward=reward.astype(float),
        terminated=terminated.astype(jnp.bool_),
        truncated=truncated.astype(jnp.bool_),
        final_obs=final_obs,
        episode_return=episode_return.astype(float),
        episode_length=episode_length.astype(jnp.int32),
    )
