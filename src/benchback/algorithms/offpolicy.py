"""Shared by off-policy algorithms: transitions of a rollout, rows of replay, metrics of an update that does not learn.

This file imports no framework, so it cannot make two backends differ.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from benchback.envs.interface import Step
from benchback.math.records import Array, DType


class Transition(NamedTuple):
    """Transitions of a rollout; time-major."""

    obs: Shaped[Array, "T E *O"]
    action: Shaped[Array, "T E *A"]
    reward: Float[Array, "T E"]
    terminated: Bool[Array, "T E"]
    truncated: Bool[Array, "T E"]
    final_obs: Shaped[Array, "T E *O"]
    """Next observation, before any reset."""
    episode_return: Float[Array, "T E"]
    """Return of the episode up to and including this step."""
    episode_length: Int[Array, "T E"]

    @property
    def done(self) -> Bool[Array, "T E"]:
        """Whether the episode ended with this step."""
        return self.terminated | self.truncated


class Experience(NamedTuple):
    """Transitions in the replay, or a minibatch of them."""

    obs: Shaped[Array, "B *O"]
    action: Shaped[Array, "B *A"]
    reward: Float[Array, "B"]
    next_obs: Shaped[Array, "B *O"]
    terminated: Bool[Array, "B"]
    """Whether to stop bootstrapping from `next_obs`."""


def to_transition(obs: Shaped[Array, "E *O"], action: Shaped[Array, "E *A"], step: Step) -> Transition:
    """The transition of one step (without the T axis)."""
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
    """The rollout as rows of replay, oldest first; `truncation` selects whether a time limit counts as terminal."""
    terminated = batch.terminated if config.truncation == "bootstrap" else batch.done
    rows = Experience(batch.obs, batch.action, batch.reward, batch.final_obs, terminated)
    size = config.batch_size
    return Experience(*(x.reshape(size, *x.shape[2:]) for x in rows))


def repeated_rows(rows: Experience, config: Any) -> Experience:
    """The given rows repeated to the size of a minibatch."""
    index = np.arange(config.minibatch_size) % config.batch_size
    return Experience(*(x[index] for x in rows))


def nan_metrics(full: Callable[..., Array], names: Iterable[str], dtype: DType) -> dict[str, Float[Array, ""]]:
    """NaN for each of these metrics, for iterations without gradient steps.

    `full` is `jnp.full` or `torch.full`.
    """
    return dict.fromkeys(names, full((), float("nan"), dtype=dtype))
