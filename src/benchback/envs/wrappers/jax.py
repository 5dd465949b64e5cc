"""Wrappers of JAX environments: pure functions, part of the program, also of a population's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from benchback.envs.any_member import any_member
from benchback.envs.interface import Discrete, Env, EnvState, Step
from benchback.envs.wrappers import Wrapper
from benchback.envs.wrappers.arrays import StickyParts, clip_reward, frame_stack, observe, sticky_actions, where

STICKY, LIMIT = 1, 2
"""Folded into the key of the environment's noise, which stays what it is without wrappers."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Noise:
    """The noise of an environment and that of a wrapper."""

    inner: Any
    own: Any

    def __getitem__(self, index: Any) -> "Noise":
        return jax.tree.map(lambda x: x[index], self)


def wrap(env: Env, wrappers: Sequence[Wrapper]) -> Env:
    """The environment with all wrappers."""
    for name, value in wrappers:
        match name:
            case "clip_reward":
                env = clip_reward(env, jnp, value)
            case "frame_stack":
                env = frame_stack(env, jnp, value)
            case "observe":
                env = observe(env, jnp, value)
            case "sticky_actions":
                env = sticky_actions(env, jnp, value, _sticky_parts(env))
            case "time_limit":
                env = time_limit(env, value)
    return env


def time_limit(env: Env, limit: int) -> Env:
    """Episodes truncated after `limit` steps, and begun anew by a reset of their own."""

    def draw(key: Key[Array, ""], num_steps: int) -> Noise:
        return Noise(env.draw(key, num_steps), jax.random.split(jax.random.fold_in(key, LIMIT), num_steps))

    def step(state: EnvState, action: Shaped[Array, "E *A"], noise: Noise) -> tuple[EnvState, Step]:
        following, outcome = env.step(state, action, noise.inner)
        out_of_time = outcome.episode_length >= limit
        # Those that the environment itself has ended have begun anew already.
        overdue = out_of_time & ~(outcome.terminated | outcome.truncated)

        def begin() -> EnvState:
            return jax.tree.map(lambda x, y: where(jnp, overdue, x, y), env.reset(noise.own), following)

        following = jax.lax.cond(any_member(overdue.any()), begin, lambda: following)
        return following, outcome._replace(obs=following.obs, truncated=outcome.truncated | out_of_time)

    return replace(env, draw=draw, step=step)


def _sticky_parts(env: Env) -> StickyParts:
    discrete = isinstance(env.actions, Discrete)
    shape = (env.num_envs,) if discrete else (env.num_envs, env.actions.size)

    def draw(key: Key[Array, ""], num_steps: int) -> Noise:
        uniform = jax.random.uniform(jax.random.fold_in(key, STICKY), (num_steps, env.num_envs), jnp.float32)
        return Noise(env.draw(key, num_steps), uniform)

    def split(noise: Noise) -> tuple[Any, Float[Array, "E"]]:
        return noise.inner, noise.own

    def no_action(state: EnvState) -> Shaped[Array, "E *A"]:
        return jnp.zeros(shape, jnp.int32 if discrete else float)

    return StickyParts(draw, split, no_action, lambda x, other: x.astype(other.dtype))
