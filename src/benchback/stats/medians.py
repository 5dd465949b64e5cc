"""Median with a confidence interval that assumes no distribution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchback.stats.ratios import CONFIDENCE


@dataclass(frozen=True)
class Median:
    """The middle value and its confidence interval."""

    value: float
    low: float
    high: float


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Median:
    """Interval between two order statistics: the k-th from below and from above, k from the binomial distribution.

    With fewer than six values no such interval reaches 95 %; then it is the whole range.
    """
    from scipy.stats import binom

    ordered = np.sort(np.asarray(values, float))
    rank = int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5))
    low = max(rank - 1, 0)
    return Median(float(np.median(ordered)), float(ordered[low]), float(ordered[len(ordered) - 1 - low]))
