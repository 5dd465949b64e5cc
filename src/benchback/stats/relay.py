"""Relays: several programs take turns, round after round; what is compared is their ratio within a round.

Whatever the machine does to everybody in a round cancels in its ratios. The rounds of a relay are not independent (they
share the processes), so a relay counts as one observation: the median ratio of its rounds. The test is the paired t
over relays. On a busy machine the median is twice as exact as a mean without the extreme fifths, and four times as
exact as the ratio of two medians, in which the machine's ups and downs do not cancel.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchback.stats.missing import Missing
from benchback.stats.steady import DRIFT, Unsteady, UnsteadyCause

FEWEST_ROUNDS = 3
CERTAIN = 4.0
"""Standard errors by which a trend must differ from zero to count."""
FEWEST_FOR_TREND = 8


@dataclass(frozen=True)
class NoCommonRound(Missing):
    """Two programs took turns in fewer common rounds than a ratio needs."""

    rounds: int


def relay_ratio(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> float | Missing:
    """How many times as long the numerator's turns took, from seconds by round; a reason if the ratio is not steady."""
    common = sorted(numerator.keys() & denominator.keys())
    if len(common) < FEWEST_ROUNDS:
        return NoCommonRound(len(common))
    log_ratio = np.log([numerator[r] / denominator[r] for r in common])
    drift = _certain_drift(np.array(common, float), log_ratio)
    if abs(drift) > DRIFT:
        return Unsteady(UnsteadyCause.DRIFT, len(common), math.expm1(drift))
    return math.exp(float(np.median(log_ratio)))


def _certain_drift(rounds: np.ndarray, log_ratio: np.ndarray) -> float:
    """Change of the log ratio from the first to the last round by least squares; 0 unless it is beyond doubt."""
    if len(rounds) < FEWEST_FOR_TREND:
        return 0.0
    middle = _clipped(log_ratio)
    x = rounds - rounds.mean()
    slope = float(x @ middle / (x @ x))
    rest = middle - middle.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (len(x) - 2) / float(x @ x))
    return slope * float(np.ptp(rounds)) if abs(slope) > CERTAIN * error else 0.0


def _clipped(values: np.ndarray) -> np.ndarray:
    """The values with outliers moved to three standard deviations (estimated by the median deviation)."""
    middle = np.median(values)
    spread = 3 * 1.4826 * float(np.median(np.abs(values - middle)))
    return np.clip(values, middle - spread, middle + spread)


def balanced_orders(count: int) -> list[list[int]]:
    """Orders in which everyone has every place, and follows everyone else, equally often (Williams 1949).

    `count` of them, or twice as many if it is odd.
    """
    if count < 2:
        return [list(range(count))]
    first = [0]
    low, high = 1, count - 1
    for place in range(1, count):
        first.append(low if place % 2 else high)
        low, high = (low + 1, high) if place % 2 else (low, high - 1)
    orders = [[(x + shift) % count for x in first] for shift in range(count)]
    return orders if count % 2 == 0 else orders + [order[::-1] for order in orders]
