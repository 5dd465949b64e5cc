"""Metrics of many members as rows: mean, spread and quartiles over the members of each iteration."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchback.training.run_dir import RunDir

QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
RANKED_BY = "episode_return"
"""The metric by which members are compared."""
WRITE_EVERY_S = 1.0
"""Seconds between two additions to the file: programs may be called hundreds of times in a second."""


class SummaryWriter:
    """Rows of a population, appended to its metrics at most once a second."""

    def __init__(self, folder: RunDir):
        self.folder, self.waiting, self.written_s = folder, [], time.perf_counter()

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Take the rows of a call."""
        self.waiting += rows
        if time.perf_counter() - self.written_s >= WRITE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if self.waiting:
            self.folder.append(self.waiting)
        self.waiting, self.written_s = [], time.perf_counter()


def summarise(metrics: dict[str, np.ndarray]) -> list[dict[str, float]]:
    """A row for each iteration of metrics of shape [iterations, members].

    A metric's own name is its mean; `_std`, `_min`, `_q25`, `_median`, `_q75` and `_max` follow it, and `_count`, the
    number of members that have a finite value: others are left out. `best_member` has the highest return, or is -1.
    """
    columns: dict[str, np.ndarray] = {}
    for name, x in sorted(metrics.items()):
        columns |= {f"{name}{ending}": column for ending, column in _over_members(x.astype(float)).items()}
    columns["best_member"] = _best(metrics[RANKED_BY])
    length = len(metrics[RANKED_BY])
    return [{name: column[i].item() for name, column in columns.items()} for i in range(length)]


def _over_members(x: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of each row, by the ending of their names."""
    finite = np.isfinite(x)
    count = finite.sum(axis=1)
    # Missing values are sorted to the end; a row without any other gets NaN.
    ordered = np.sort(np.where(finite, x, np.nan), axis=1)
    divisor = np.where(count, count, np.nan)
    mean = np.where(finite, x, 0.0).sum(axis=1) / divisor
    std = np.sqrt(np.where(finite, (np.where(finite, x, 0.0) - mean[:, None]) ** 2, 0.0).sum(axis=1) / divisor)
    found = {"": mean, "_std": std}
    for name, share in QUANTILES.items():
        found[f"_{name}"] = _quantile(ordered, count, share)
    return found | {"_count": count}


def _quantile(ordered: np.ndarray, count: np.ndarray, share: float) -> np.ndarray:
    """The quantile of the first `count` values of each row, between two neighbours where it falls between them."""
    place = share * np.maximum(count - 1, 0)
    lower = np.floor(place).astype(int)
    upper = np.minimum(lower + 1, np.maximum(count - 1, 0))
    row = np.arange(len(ordered))
    return ordered[row, lower] + (place - lower) * (ordered[row, upper] - ordered[row, lower])


def _best(episode_return: np.ndarray) -> np.ndarray:
    known = np.where(np.isfinite(episode_return), episode_return, -math.inf)
    return np.where(np.isfinite(known).any(axis=1), known.argmax(axis=1), -1)
