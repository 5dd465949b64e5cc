"""Speed ratios of paired blocks. Pooled or unpaired ratios would call noise a difference far too often."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of paired ratios with its confidence interval; NaN where one block gives none."""

    ratio: float
    low: float
    high: float
    blocks: int


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(log x)); NaN of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Of the same blocks: exp(mean d +- t s / sqrt(n)), d the log ratio of each block (Student's paired t)."""
    from scipy import stats

    log_ratio = [math.log(a / b) for a, b in zip(numerator, denominator, strict=True)]
    count = len(log_ratio)
    if not count:
        return Ratio(math.nan, math.nan, math.nan, 0)
    centre = statistics.fmean(log_ratio)
    if count == 1:
        return Ratio(math.exp(centre), math.nan, math.nan, 1)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    margin = quantile * statistics.stdev(log_ratio) / math.sqrt(count)
    return Ratio(math.exp(centre), math.exp(centre - margin), math.exp(centre + margin), count)
