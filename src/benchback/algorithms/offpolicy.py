"""What algorithms share that learn from replay: the record of a rollout, and what is remembered of it."""

from typing import Any, NamedTuple


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


class Experience(NamedTuple):
    """What is remembered of each step; `[capacity, ...]` in replay."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    """Whether nothing follows."""


def remembered(batch: Transition, config: Any) -> Experience:
    """The rollout as rows of replay, oldest first; a time limit ends all reward only if `truncation` says so."""
    bootstrap = config.truncation == "bootstrap"
    terminated = batch.terminated if bootstrap else batch.terminated | batch.truncated
    rows = Experience(batch.obs, batch.action, batch.reward, batch.final_obs, terminated)
    return Experience(*(x.reshape(config.batch_size, *x.shape[2:]) for x in rows))
