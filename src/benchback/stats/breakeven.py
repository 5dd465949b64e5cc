"""Break-even: the number of iterations after which a slower start has paid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

import numpy as np

from benchback.stats.ratios import CONFIDENCE


class NoBreakEven(Enum):
    """Reasons why neither overtakes the other."""

    NO_COMPLETE_BLOCK = auto()
    SAME_TIME = auto()
    """Both start and run equally fast."""
    A_AHEAD = auto()
    """a starts no later and runs no slower."""
    B_AHEAD = auto()


@dataclass(frozen=True)
class BreakEven:
    """Iterations after which the slower starter is ahead, with its interval.

    `high` is infinite where the data do not exclude that it never happens. Where the means say never, `low` and `high`
    still bound the values that the data do not exclude, or are None.
    """

    iterations: float | None
    low: float | None
    high: float | None
    overtakes: Literal["a", "b"] | None
    """The slower starter, where it overtakes."""
    reason: NoBreakEven | None = None
    """Why there is no break-even; None where there is one."""


def break_even(
    cold_a: Sequence[float],
    steady_a: Sequence[float],
    cold_b: Sequence[float],
    steady_b: Sequence[float],
    confidence: float = CONFIDENCE,
) -> BreakEven:
    """Where cold_a + k steady_a = cold_b + k steady_b: k = mean(cold_a - cold_b) / mean(steady_b - steady_a).

    One value per block in each sequence. The interval is Fieller's (1954) for a ratio of paired means: exact for normal
    differences at any number of blocks, and unbounded where it should be, when the steady times cannot be told apart.
    A percentile bootstrap of five blocks would cover far less than it says, and hide that case.
    """
    cold, gain = (np.asarray(x, float) - np.asarray(y, float) for x, y in ((cold_a, cold_b), (steady_b, steady_a)))
    if cold.shape != gain.shape:
        raise ValueError(f"{len(cold)} cold starts and {len(gain)} steady times are not of the same blocks")
    if not len(cold):
        return BreakEven(None, None, None, None, NoBreakEven.NO_COMPLETE_BLOCK)
    behind, catching_up = float(cold.mean()), float(gain.mean())
    low, high = _fieller(cold, gain, confidence) if len(cold) > 1 else (None, None)
    if behind * catching_up <= 0:
        return BreakEven(None, low, high, None, _ahead(behind, catching_up))
    return BreakEven(behind / catching_up, low, high, "a" if behind > 0 else "b")


def _ahead(behind: float, catching_up: float) -> NoBreakEven:
    """The side that is never overtaken: it starts no later, and runs no slower."""
    if behind == 0 and catching_up == 0:
        return NoBreakEven.SAME_TIME
    return NoBreakEven.A_AHEAD if behind < 0 or catching_up > 0 else NoBreakEven.B_AHEAD


def _fieller(above: np.ndarray, below: np.ndarray, confidence: float) -> tuple[float | None, float | None]:
    """Hull of all k >= 0 with |mean(above - k below)| <= t s / sqrt(n); (None, None) if there is no such k."""
    from scipy.special import stdtrit

    count = len(above)
    factor = float(stdtrit(count - 1, (1 + confidence) / 2)) ** 2 / count
    spread = np.cov(above, below) * factor
    # The condition is square k^2 - 2 linear k + constant <= 0.
    square = float(below.mean() ** 2 - spread[1, 1])
    linear = float(above.mean() * below.mean() - spread[0, 1])
    constant = float(above.mean() ** 2 - spread[0, 0])
    root = math.sqrt(max(linear**2 - square * constant, 0.0))
    if square > 0:
        low, high = (linear - root) / square, (linear + root) / square
        return (max(low, 0.0), high) if high >= 0 else (None, None)
    # The steady times cannot be told apart: every k that is large enough is possible, and all if k = 0 is.
    return 0.0 if constant <= 0 or square == 0 else (linear - root) / square, math.inf
