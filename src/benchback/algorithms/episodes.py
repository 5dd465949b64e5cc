"""Episode metrics, shared by all algorithms."""

from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int, Num

from benchback.math.protocol import Math
from benchback.math.records import Array


@runtime_checkable
class Episodes(Protocol):
    """Protocol of a rollout: where episodes ended, with their returns and lengths."""

    @property
    def terminated(self) -> Bool[Array, "T E"]: ...

    @property
    def truncated(self) -> Bool[Array, "T E"]: ...

    @property
    def episode_return(self) -> Float[Array, "T E"]: ...

    @property
    def episode_length(self) -> Int[Array, "T E"]: ...


def episode_metrics(math: Math, batch: Episodes) -> dict[str, Num[Array, ""]]:
    """Mean return and length of the episodes that ended in this rollout (NaN if none did), and their number."""
    done = batch.terminated | batch.truncated
    return {
        "episode_return": math.mean_where(batch.episode_return, done),
        "episode_length": math.mean_where(batch.episode_length, done),
        "episodes": done.sum(),
    }
