"""Metrics of many members as rows: mean, spread and quartiles over the members of each iteration."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchback.training.run_dir import RunDir

QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
RANKED_BY = "episode_return"
"""The metric by which members are compared."""
BEST = "best_member"
ENDINGS = ("", "_std", *(f"_{name}" for name in QUANTILES), "_count")
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


def summarise(metrics: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """A row for each iteration of metrics of shape [iterations, members].

    A metric's own name is its mean; `_std`, `_min`, `_q25`, `_median`, `_q75` and `_max` follow it, and `_count`, the
    number of members that have a finite value: others are left out. `best_member` has the highest return, or is -1.
    """
    return rows_of(statistics(np, metrics), metrics)


def rows_of(columns: Mapping[str, np.ndarray], metrics: Iterable[str]) -> list[dict[str, float]]:
    """A row for each iteration of the columns of these metrics, in the order of `summarise`."""
    names = [*(f"{name}{ending}" for name in sorted(metrics) for ending in ENDINGS), BEST]
    return [{name: columns[name][i].item() for name in names} for i in range(len(columns[BEST]))]


def statistics(xp: Any, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `summarise`, each of shape [iterations]; `xp` is numpy, or jax.numpy for those on the device."""
    columns: dict[str, Any] = {}
    for name, x in sorted(metrics.items()):
        columns |= {f"{name}{ending}": column for ending, column in _over_members(xp, x.astype(float)).items()}
    columns[BEST] = _best(xp, metrics[RANKED_BY])
    return columns


def _over_members(xp: Any, x: Any) -> dict[str, Any]:
    """Statistics of each row, by the ending of their names."""
    finite = xp.isfinite(x)
    count = finite.sum(axis=1)
    # Missing values are sorted to the end; a row without any other gets NaN.
    ordered = xp.sort(xp.where(finite, x, xp.nan), axis=1)
    divisor = xp.where(count, count, xp.nan)
    mean = xp.where(finite, x, 0.0).sum(axis=1) / divisor
    std = xp.sqrt(xp.where(finite, (xp.where(finite, x, 0.0) - mean[:, None]) ** 2, 0.0).sum(axis=1) / divisor)
    found = {"": mean, "_std": std}
    for name, share in QUANTILES.items():
        found[f"_{name}"] = _quantile(xp, ordered, count, share)
    return found | {"_count": count}


def _quantile(xp: Any, ordered: Any, count: Any, share: float) -> Any:
    """The quantile of the first `count` values of each row, between two neighbours where it falls between them."""
    place = share * xp.maximum(count - 1, 0)
    lower = xp.floor(place).astype(int)
    upper = xp.minimum(lower + 1, xp.maximum(count - 1, 0))
    row = xp.arange(len(ordered))
    return ordered[row, lower] + (place - lower) * (ordered[row, upper] - ordered[row, lower])


def _best(xp: Any, episode_return: Any) -> Any:
    known = xp.where(xp.isfinite(episode_return), episode_return, -math.inf)
    return xp.where(xp.isfinite(known).any(axis=1), known.argmax(axis=1), -1)
