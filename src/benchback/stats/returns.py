"""Returns: interquartile means, bootstrap intervals, performance profiles and time to a threshold.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchback.stats.ratios import CONFIDENCE, bounds, estimate

LARGEST = 4_000_000
"""Most values in memory at once while resampling (32 MB)."""


@dataclass(frozen=True)
class Band:
    """An estimate with its bootstrap interval: of no dimension, or one value for each point of a curve."""

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def interquartile_mean(scores: ArrayLike, axis: int | None = None) -> NDArray[np.float64]:
    """The mean of the middle half: a quarter of the values, rounded down, is left out at either end."""
    score = np.asarray(scores, float)
    if axis is None:
        score, axis = score.ravel(), 0
    count = score.shape[axis]
    cut = count // 4
    middle = np.sort(score, axis=axis).take(range(cut, count - cut), axis=axis)
    return np.asarray(middle.mean(axis=axis))


@dataclass(frozen=True)
class Difference:
    """How much higher returns are than others of the same seeds, with a confidence interval."""

    mean: float
    low: float
    high: float
    """NaN where fewer than two seeds have both."""
    seeds: int

    @property
    def sign(self) -> int:
        """1 if they are higher, -1 if they are lower, 0 if the interval includes no difference."""
        return int(self.low > 0) - int(self.high < 0)


def paired_difference(ours: ArrayLike, theirs: ArrayLike, confidence: float = CONFIDENCE) -> Difference:
    """Mean difference of runs with the same seeds and its interval (Student's paired t); seeds lacking one are out."""
    each = np.asarray(ours, float) - np.asarray(theirs, float)
    each = each[np.isfinite(each)]
    if len(each) < 2:
        return Difference(float(each.mean()) if len(each) else math.nan, math.nan, math.nan, len(each))
    return Difference(float(each.mean()), *bounds(estimate(each), confidence), len(each))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """Fraction of runs with a score above each threshold."""
    return _above(np.asarray(scores, float).ravel(), thresholds).mean(axis=0)


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[..., NDArray[np.float64]],
    generator: np.random.Generator,
    *,
    resamples: int = 2000,
    confidence: float = CONFIDENCE,
) -> Band:
    """Percentile interval of `statistic(runs, axis=...)`; runs are drawn with replacement within each stratum.

    A stratum (one environment) has a row for each run: scores [runs], or curves [runs, points], which are drawn whole.
    """
    arrays = [np.asarray(stratum, float) for stratum in strata]
    pooled = np.concatenate(arrays)
    first = np.cumsum([0, *map(len, arrays[:-1])])
    # All indices are drawn before any is used, so that the batch size cannot change the result.
    rows = [at + generator.integers(len(x), size=(resamples, len(x))) for at, x in zip(first, arrays, strict=True)]
    index = np.concatenate(rows, axis=1)
    batch = max(1, LARGEST // pooled.size)
    drawn = [statistic(pooled[index[at : at + batch]], axis=1) for at in range(0, resamples, batch)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail], axis=0)
    return Band(np.asarray(statistic(pooled, axis=0)), np.asarray(low), np.asarray(high))


def profile_band(
    strata: Sequence[ArrayLike], thresholds: ArrayLike, generator: np.random.Generator, *, resamples: int = 2000
) -> Band:
    """The performance profile of all runs with its stratified bootstrap interval at each threshold."""
    above = [_above(np.asarray(stratum, float), thresholds) for stratum in strata]
    return stratified_bootstrap(above, np.mean, generator, resamples=resamples)


def time_to_threshold(elapsed: ArrayLike, returns: ArrayLike, threshold: float, hold: int = 1) -> float | None:
    """When the return first reached the threshold and stayed there for `hold` points; None if it did not (censored).

    Points without a return (NaN: no episode ended) are skipped.
    """
    time, score = np.asarray(elapsed, float), np.asarray(returns, float)
    known = ~np.isnan(score)
    time, reached = time[known], score[known] >= threshold
    if len(reached) < hold:
        return None
    held = np.lib.stride_tricks.sliding_window_view(reached, hold).all(axis=1)
    return float(time[int(held.argmax())]) if held.any() else None


def _above(score: NDArray, thresholds: ArrayLike) -> NDArray[np.float64]:
    """1 where a run [rows] is above a threshold [columns]."""
    return (score[:, None] > np.asarray(thresholds, float)).astype(float)
