"""Wrappers as functions from Env to Env, on arrays of JAX, torch or NumPy alike: `xp` is the library.

Few keep a state of their own, the last action of `sticky_actions` and the whole observation of `observe`: the frames of
a stack are the observation, and the step of the episode is in its statistics. `episode_return` always is the sum of the
environment's own rewards.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from benchback.envs.interface import Env, EnvState, Step
from benchback.errors import InputError


def clip_reward(env: Env, xp: Any, bound: float) -> Env:
    """Rewards clipped to [-bound, bound]; the episode's return is not."""

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        following, outcome = env.step(state, action, noise)
        return following, outcome._replace(reward=xp.clip(outcome.reward, -bound, bound))

    return replace(env, step=step)


def frame_stack(env: Env, xp: Any, count: int) -> Env:
    """Observations with those of the last `count - 1` steps before them; an episode begins with copies of its first.

    Frames of rank 3 are images, concatenated along their last axis, the channels; others get a new last axis.
    """
    image = len(env.observation_shape) == 3
    size = env.observation_shape[-1] if image else 1
    shape = (*env.observation_shape[:-1], count * size) if image else (*env.observation_shape, count)

    def frame(obs: Any) -> Any:
        return obs if image else obs[..., None]

    def newest(stack: Any) -> Any:
        return stack[..., -size:] if image else stack[..., -1]

    def repeated(obs: Any) -> Any:
        return xp.concatenate([frame(obs)] * count, -1)

    def reset(random: Any) -> EnvState:
        state = env.reset(random)
        return state._replace(obs=repeated(state.obs))

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        following, outcome = env.step(state._replace(obs=newest(state.obs)), action, noise)
        final_obs = xp.concatenate([state.obs[..., size:], frame(outcome.final_obs)], -1)
        obs = where(xp, outcome.terminated | outcome.truncated, repeated(outcome.obs), final_obs)
        return following._replace(obs=obs), outcome._replace(obs=obs, final_obs=final_obs)

    return replace(env, observation_shape=shape, reset=reset, step=step)


class Observed(NamedTuple):
    """The state of an environment of which a part is observed."""

    inner: Any
    obs: Any
    """The whole observation."""


def observe(env: Env, xp: Any, entries: tuple[int, ...]) -> Env:
    """The given entries of observations of rank 1, in this order; the others are hidden."""
    shape = env.observation_shape
    if len(shape) != 1 or max(entries) >= shape[0]:
        known = f"0 to {shape[0] - 1}" if len(shape) == 1 else "of observations of rank 1 only"
        raise InputError(f"observe={','.join(map(str, entries))}: {env.id} has observations {shape}; choose {known}")

    def seen(obs: Any) -> Any:
        return xp.stack([obs[..., i] for i in entries], -1)

    def hiding(state: EnvState) -> EnvState:
        return state._replace(inner=Observed(state.inner, state.obs), obs=seen(state.obs))

    def reset(random: Any) -> EnvState:
        return hiding(env.reset(random))

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        following, outcome = env.step(state._replace(inner=state.inner.inner, obs=state.inner.obs), action, noise)
        return hiding(following), outcome._replace(obs=seen(outcome.obs), final_obs=seen(outcome.final_obs))

    return replace(env, observation_shape=(len(entries),), reset=reset, step=step)


class Sticky(NamedTuple):
    """The state of an environment with sticky actions."""

    inner: Any
    last_action: Any


class StickyParts(NamedTuple):
    """What sticky actions need of a framework: randomness, and an array to begin with."""

    draw: Callable[[Any, int], Any]
    """As an Env's, with a uniform random number more for each step and environment."""
    split: Callable[[Any], tuple[Any, Any]]
    """Noise of one step -> that of the environment, and the uniform numbers `[E]`."""
    no_action: Callable[[EnvState], Any]
    """First state -> an action that is never taken."""
    cast: Callable[[Any, Any], Any]
    """(array, other) -> the array in the type of the other."""


def sticky_actions(env: Env, xp: Any, share: float, parts: StickyParts) -> Env:
    """With probability `share` a step repeats the action before it; an episode's first step never does.

    Machado et al. 2018, "Revisiting the Arcade Learning Environment".
    """

    def reset(random: Any) -> EnvState:
        state = env.reset(random)
        return state._replace(inner=Sticky(state.inner, parts.no_action(state)))

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        own, uniform = parts.split(noise)
        inner, last_action = state.inner
        taken = where(xp, (uniform < share) & (state.episode_length > 0), parts.cast(last_action, action), action)
        following, outcome = env.step(state._replace(inner=inner), taken, own)
        return following._replace(inner=Sticky(following.inner, parts.cast(taken, last_action))), outcome

    return replace(env, reset=reset, draw=parts.draw, step=step)


def where(xp: Any, mask: Any, x: Any, y: Any) -> Any:
    """`x` in the environments of the mask `[E]`, `y` in the others."""
    return xp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, y)


def suite_state(inner: Any) -> Any:
    """The suite's own state within those of wrappers."""
    return suite_state(inner.inner) if isinstance(inner, Sticky | Observed) else inner
