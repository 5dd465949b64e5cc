"""Ratios of paired blocks: estimates, intervals, and the effect a campaign can see.

The replicate is a run and the pair is a block. Iterations of a run are not replicates, and a run is in one pair only;
pooling or crossing them raises the false-positive rate far above 5 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of paired ratios with its confidence interval; NaN where one block gives none."""

    ratio: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True)
class Estimate:
    """A mean log ratio, its standard error and its degrees of freedom: the input of every test and interval."""

    mean: float
    error: float
    freedom: float


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(log x)); NaN of nothing."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if len(values) else math.nan


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Of the same blocks: exp(mean d +- t s / sqrt(n)), d the log ratio of each block (Student's paired t)."""
    log_ratio = [math.log(a / b) for a, b in zip(numerator, denominator, strict=True)]
    if not log_ratio:
        return Ratio(math.nan, math.nan, math.nan, 0)
    if len(log_ratio) == 1:
        return Ratio(math.exp(log_ratio[0]), math.nan, math.nan, 1)
    found = estimate(log_ratio)
    low, high = interval(found, confidence)
    return Ratio(math.exp(found.mean), low, high, len(log_ratio))


def estimate(log_ratio: ArrayLike) -> Estimate:
    """Mean of the blocks' log ratios, s / sqrt(n), n - 1. Two blocks at least."""
    return combine([log_ratio])


def combine(cells: Sequence[ArrayLike]) -> Estimate:
    """The mean over cells of the mean over blocks of log ratios: the geometric mean of the cells' ratios."""
    logs = [np.asarray(cell, float) for cell in cells]
    if not logs or min(map(len, logs)) < 2:
        raise ValueError("every cell needs two blocks at least")
    return mean_of([_mean(x) for x in logs])


def mean_of(cells: Sequence[Estimate]) -> Estimate:
    """The mean of the estimates of several cells.

    The cells of a claim are fixed (these environments, these sizes), not a sample of cells, so the spread between cells
    is no error; blocks are the replicates. Every cell counts the same, however many blocks it has. With m cells,
    v_c = s_c^2 / (n_c m^2), error^2 = sum v_c, and the degrees of freedom are those of Welch and Satterthwaite:
    (sum v_c)^2 / sum(v_c^2 / (n_c - 1)). With one cell this is the paired t.

    A paired t on the mean over cells of block 0, 1, ... would be exact too, but it pairs unrelated blocks
    (blocks of different cells are shuffled), needs equal numbers of blocks, and keeps n - 1 degrees of freedom:
    five blocks of 36 cells would get an interval 40 % wider than necessary. The price is to assume independent cells:
    this holds because effects shared by the two runs of a block cancel in their ratio.
    """
    part = [(cell.error / len(cells)) ** 2 for cell in cells]
    mean = math.fsum(cell.mean for cell in cells) / len(cells)
    return Estimate(mean, math.sqrt(math.fsum(part)), _freedom(part, [cell.freedom for cell in cells]))


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b of two independent estimates, with the degrees of freedom of Welch and Satterthwaite."""
    part = [a.error**2, b.error**2]
    return Estimate(a.mean - b.mean, math.sqrt(sum(part)), _freedom(part, [a.freedom, b.freedom]))


def _mean(log_ratio: np.ndarray) -> Estimate:
    """Mean of one cell's blocks, its standard error, and n - 1."""
    count = len(log_ratio)
    return Estimate(float(log_ratio.mean()), float(log_ratio.std(ddof=1)) / math.sqrt(count), count - 1.0)


def _freedom(part: Sequence[float], freedom: Sequence[float]) -> float:
    """Degrees of freedom of a sum of variances."""
    squares = math.fsum(v**2 / f for v, f in zip(part, freedom, strict=True))
    # Without spread, or if its square underflows, the error is zero for any degrees of freedom.
    return math.fsum(part) ** 2 / squares if squares else math.fsum(freedom)


def welch_estimate(numerator: ArrayLike, denominator: ArrayLike) -> Estimate:
    """Mean difference of two independent samples of logarithms, two values each at least (Welch 1947)."""
    return difference(_mean(np.asarray(numerator, float)), _mean(np.asarray(denominator, float)))


def interval(found: Estimate, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Low and high end of the ratio: exp(mean +- t error)."""
    low, high = bounds(found, confidence)
    return math.exp(low), math.exp(high)


def bounds(found: Estimate, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Low and high end of the mean itself: mean +- t error."""
    from scipy.special import stdtrit

    margin = float(stdtrit(found.freedom, (1 + confidence) / 2)) * found.error
    return found.mean - margin, found.mean + margin


def minimum_detectable_effect(sd_log_ratio: float, n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The ratio - 1 that n blocks detect with the given power; NaN for one block.

    Exact for the two-sided t test (noncentral t), except that detections with the wrong sign are ignored.
    """
    if n < 2:
        return math.nan
    return detectable(Estimate(0.0, sd_log_ratio / math.sqrt(n), float(n - 1)), power, alpha)


def detectable(found: Estimate, power: float = 0.8, alpha: float = 0.05) -> float:
    """The minimum detectable effect of an estimate of this error and freedom, as a ratio - 1."""
    from scipy.special import nctdtrinc, stdtrit

    critical = stdtrit(found.freedom, 1 - alpha / 2)
    return math.expm1(float(nctdtrinc(found.freedom, 1 - power, critical)) * found.error)
