"""The estimators of benchback-rl, to recompute its tables beside ours. Not for claims: see `LABEL`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

LABEL = "as published (all pairs)"
"""Every run enters many ratios, so their number says nothing about certainty: no interval is given."""


@dataclass(frozen=True)
class Published:
    """Speed-up over all pairs of runs; NaN of no pair."""

    geometric_mean: float
    median: float
    pairs: int
    label: str = LABEL


def all_pairs(cells: Iterable[tuple[ArrayLike, ArrayLike]]) -> Published:
    """Every run of the numerator over every run of the denominator in the same cell; cells are pooled."""
    ratios = [np.divide.outer(np.asarray(a, float), np.asarray(b, float)).ravel() for a, b in cells]
    ratio = np.concatenate(ratios) if ratios else np.empty(0)
    if not len(ratio):
        return Published(math.nan, math.nan, 0)
    return Published(float(np.exp(np.log(ratio).mean())), float(np.median(ratio)), len(ratio))


def windows(durations: ArrayLike) -> dict[str, float]:
    """Iteration 0, the mean of 1..7 and the mean of 8.., under the published names, which are off by one.

    NaN where a run is too short.
    """
    duration = np.asarray(durations, float)
    parts = {"0": duration[:1], "1:7": duration[1:8], "7:": duration[8:]}
    return {name: float(part.mean()) if len(part) else math.nan for name, part in parts.items()}
