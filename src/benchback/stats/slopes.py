"""Robust slope of a series (Theil and Sen), to tell whether memory grows."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from benchback.stats.missing import Missing
from benchback.stats.ratios import CONFIDENCE

MOST_POINTS = 100
"""Longer series are reduced to medians of this many stretches: less work, and less autocorrelation."""
FEWEST_POINTS = 10
"""The page shows growth per 1000 iterations: fewer points would be extrapolated more than a hundredfold."""


@dataclass(frozen=True)
class TooFewValues(Missing):
    """Too few known values for a slope."""

    count: int


@dataclass(frozen=True)
class Slope:
    """Change per iteration with its interval; NaN, and the reason, where there is none."""

    per_iteration: float
    low: float
    high: float
    reason: TooFewValues | None = None

    @property
    def grows(self) -> bool:
        """Whether the whole interval is above 0: a leak."""
        return self.low > 0


def robust_slope(values: ArrayLike, confidence: float = CONFIDENCE) -> Slope:
    """Median of the slopes between all pairs of points (Theil 1950), with Sen's interval (1968).

    Values of consecutive iterations; NaN where one is unknown. Leave warm-up out: allocators fill their pools then.
    Sen's interval takes points as independent; memory is not quite, and slow drift can be mistaken for a leak.
    """
    from scipy.special import ndtri

    value = np.asarray(values, float)
    place = np.flatnonzero(~np.isnan(value))
    if len(place) < FEWEST_POINTS:
        return Slope(math.nan, math.nan, math.nan, TooFewValues(len(place)))
    x, y = _stretches(place.astype(float), value[place])
    first, second = np.triu_indices(len(x), 1)
    slope = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    reach = float(ndtri((1 + confidence) / 2)) * _deviation(y)
    low = max(round((len(slope) - reach) / 2) - 1, 0)
    high = min(round((len(slope) + reach) / 2), len(slope) - 1)
    return Slope(float(np.median(slope)), float(slope[low]), float(slope[high]))


def _stretches(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(x) <= MOST_POINTS:
        return x, y
    return _by_stretch(np.mean, x), _by_stretch(np.median, y)


def _by_stretch(statistic: Callable[..., np.ndarray], values: np.ndarray) -> np.ndarray:
    """Medians of stretches of nearly equal length; the first ones are longer by one if the division leaves a rest."""
    length, longer = divmod(len(values), MOST_POINTS)
    cut = longer * (length + 1)
    parts = values[:cut].reshape(longer, length + 1), values[cut:].reshape(MOST_POINTS - longer, length)
    return np.concatenate([statistic(part, axis=1) for part in parts if len(part)])


def _deviation(y: np.ndarray) -> float:
    """Standard deviation of Kendall's S without a trend, ties in y allowed for."""

    def pairs(count: np.ndarray) -> float:
        return float((count * (count - 1) * (2 * count + 5)).sum())

    ties = np.unique(y, return_counts=True)[1]
    return math.sqrt((pairs(np.array([len(y)])) - pairs(ties)) / 18)
