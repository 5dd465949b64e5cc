"""Shared by off-policy algorithms: transitions of a rollout, rows of replay, metrics of an update that does not learn.

This file imports no framework, so it cannot make two backends differ.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchback.envs.interface import Step


class Transition(NamedTuple):
    """What a rollout keeps of each step; time-major, `[T, E, ...]`."""

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_obs: Any
    """What the step led to, before any reset."""
    episode_return: Any
    """Return of the episode up to and including this step."""
    episode_length: Any

    @property
    def done(self) -> Any:
        """Whether the episode ended with this step."""
        return self.terminated | self.truncated


class Experience(NamedTuple):
    """One row of replay for each step, `[capacity, ...]`; or a minibatch of them, `[B, ...]`."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    """Whether the return ends here, so that nothing is bootstrapped from `next_obs`."""


def to_transition(obs: Any, action: Any, step: Step) -> Transition:
    """The transition from `obs` by `action`, as the environment answered it."""
    return Transition(
        obs=obs,
        action=action,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        final_obs=step.final_obs,
        episode_return=step.episode_return,
        episode_length=step.episode_length,
    )


def to_experience(batch: Transition, config: Any) -> Experience:
    """The rollout as rows of replay, oldest first; a time limit counts as terminal only if `truncation` says so."""
    terminated = batch.terminated if config.truncation == "bootstrap" else batch.done
    rows = Experience(batch.obs, batch.action, batch.reward, batch.final_obs, terminated)
    return Experience(*(x.reshape(config.batch_size, *x.shape[2:]) for x in rows))


def nan_metrics(full: Callable[..., Any], names: Iterable[str], dtype: Any) -> dict[str, Any]:
    """NaN for each of these metrics: what is reported of gradient steps that were not taken.

    `full` is `jnp.full` or `torch.full`.
    """
    return dict.fromkeys(names, full((), float("nan"), dtype=dtype))
