"""What every algorithm reports of the episodes that its rollouts complete.

`math` is `benchback.math.jax` or `benchback.math.torch`; this file imports neither framework.
"""

from types import ModuleType
from typing import Any


def episode_metrics(math: ModuleType, batch: Any) -> dict[str, Any]:
    """Mean return and length of the episodes that ended in this rollout (NaN if none did), and their number.

    `batch` is any record of a rollout with the fields of Step that say so.
    """
    done = batch.terminated | batch.truncated
    return {
        "episode_return": math.mean_where(batch.episode_return, done),
        "episode_length": math.mean_where(batch.episode_length, done),
        "episodes": done.sum(),
    }
