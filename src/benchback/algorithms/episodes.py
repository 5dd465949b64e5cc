"""What every rollout says of the episodes in it."""

from types import ModuleType
from typing import Any


def episode_metrics(math: ModuleType, batch: Any) -> dict[str, Any]:
    """Mean return and length of the episodes that ended in this rollout (NaN if none did), and their number."""
    done = batch.terminated | batch.truncated
    return {
        "episode_return": math.mean_where(batch.episode_return, done),
        "episode_length": math.mean_where(batch.episode_length, done),
        "episodes": done.sum(),
    }
