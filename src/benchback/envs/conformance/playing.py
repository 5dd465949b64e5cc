"""An environment under examination: what is known of it, and what was played in it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from benchback import envs
from benchback.envs import wrappers
from benchback.envs.interface import Box, Discrete, Env, EnvState, Step

SHORT = 40
"""Steps that are played with random actions."""
MOST_STEPS, ENOUGH_EPISODES = 2000, 3
"""Where no policy is known that lasts: steps at most, fewer if every environment has ended so many episodes."""

Policy = Callable[[np.ndarray], np.ndarray]
"""Observations `[E, *O]` -> actions."""


@dataclass(frozen=True)
class Subject:
    """An environment, and what is known of it."""

    id: str
    limit: int | None = None
    """Steps after which an episode is truncated; 0 if none ever is; None if that is not known."""
    lasting: Policy | None = None
    """Ends no episode before the limit."""
    starts: int | Literal["random", "distinct"] = "random"
    """Number of states in which an episode may begin; or `random` for several, `distinct` where no two are alike."""
    layout: tuple[tuple[int, ...], str] | None = None
    """Shape and type of an observation."""
    num_envs: int = 4


class History(NamedTuple):
    """What was played: the first observations, then actions and outcomes of all steps, `[T, E, ...]`."""

    first_obs: np.ndarray
    action: np.ndarray
    step: Step
    drawn: int
    """Steps for which noise was drawn, on which it may depend."""

    @property
    def done(self) -> np.ndarray:
        """Where an episode has ended."""
        return self.step.terminated | self.step.truncated

    @property
    def begun(self) -> np.ndarray:
        """The first observation of every episode."""
        return np.concatenate([self.first_obs, self.step.obs[self.done]])


class Examination:
    """An environment, its compiled functions and what was played in it, for all laws to share."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.wrappers = wrappers.parse(envs.split(subject.id).wrappers, subject.id)

    @cached_property
    def env(self) -> Env:
        """The environment in its own framework; one in Python in JAX's, as most backends use it."""
        torch = envs.about(self.subject.id).where == "torch"
        return envs.make(self.subject.id, self.subject.num_envs, "torch" if torch else "jax")

    @cached_property
    def functions(self) -> tuple[Callable[..., EnvState], Callable[..., tuple[EnvState, Step]]]:
        """Reset and step, compiled where the framework does."""
        if self.env.framework == "torch":
            return self.env.reset, self.env.step
        import jax

        return jax.jit(self.env.reset), jax.jit(self.env.step)

    def play(self, num_steps: int, policy: Policy, *, enough: int = 0, drawn: int = 0) -> History:
        """So many steps, or fewer if every environment has ended `enough` episodes before; noise of `drawn` steps."""
        reset, advance = self.functions
        drawn = drawn or num_steps
        state, noise = reset(self.env.random(0)), self.env.draw(self.env.random(1), drawn)
        first_obs, actions, outcomes, ended = np.array(np.asarray(state.obs)), [], [], 0
        for t in range(num_steps):
            actions.append(policy(np.asarray(state.obs)))
            state, outcome = advance(state, native(self.env, actions[-1]), noise[t])
            # Copied: an environment may wrongly use its arrays again, as tensors in particular can be.
            outcomes.append(Step(*(np.array(np.asarray(x)) for x in outcome)))
            ended = ended + (outcomes[-1].terminated | outcomes[-1].truncated)
            if enough and np.min(ended) >= enough:
                break
        return History(first_obs, np.stack(actions), Step(*map(np.stack, zip(*outcomes, strict=True))), drawn)

    @cached_property
    def short(self) -> History:
        """Random actions for a while."""
        return self.play(SHORT, at_random(self.env, 0))

    @cached_property
    def episodes(self) -> History:
        """Whole episodes: a little more than one that only its time limit has ended, or several of varied actions."""
        subject = self.subject
        if subject.lasting and subject.limit:
            return self.play(subject.limit + 3, subject.lasting)
        return self.play(MOST_STEPS, varied(self.env), enough=ENOUGH_EPISODES)

    def replayed(self, history: History, action: np.ndarray | None = None) -> History:
        """What was played, again, with the same actions or others."""
        given = iter(history.action if action is None else action)
        return self.play(len(history.action), lambda obs: next(given), drawn=history.drawn)

    def without(self, name: str) -> "Examination":
        """The same environment without a wrapper."""
        base, *texts = self.subject.id.split("+")
        id = "+".join([base, *(text for text in texts if text.partition("=")[0] != name)])
        return Examination(replace(self.subject, id=id))


def native(env: Env, action: np.ndarray) -> Any:
    """The action as an array of the environment's framework."""
    if env.framework == "torch":
        import torch

        return torch.from_numpy(action)
    import jax.numpy as jnp

    return jnp.asarray(action)


def at_random(env: Env, seed: int, factor: float = 1.0) -> Policy:
    """Uniform actions; real-valued ones reach beyond their bounds where the factor is greater than 1."""
    generator, actions = np.random.default_rng(seed), env.actions

    def policy(obs: np.ndarray) -> np.ndarray:
        if isinstance(actions, Discrete):
            return generator.integers(actions.size, size=len(obs), dtype=np.int32)
        return (factor * generator.uniform(*finite_bounds(actions), (len(obs), actions.size))).astype(np.float32)

    return policy


def varied(env: Env) -> Policy:
    """Random actions in most environments, always the first in one and always the last in another."""
    choose, actions = at_random(env, 1), env.actions
    low, high = (0, actions.size - 1) if isinstance(actions, Discrete) else finite_bounds(actions)

    def policy(obs: np.ndarray) -> np.ndarray:
        action = choose(obs)
        if len(action) > 2:
            action[-2], action[-1] = low, high
        return action

    return policy


def finite_bounds(actions: Box) -> tuple[np.ndarray, np.ndarray]:
    """The bounds, with 1 and -1 for those that are infinite."""
    low, high = np.array(actions.low), np.array(actions.high)
    return np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
