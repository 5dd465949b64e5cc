"""How speed grows with something that is varied alone: its knee, and the exponents of the time on both sides of it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchback.stats.missing import Missing
from benchback.stats.ratios import bounds, estimate, geometric_mean, interval

KNEE = 0.8
"""Share of the best speed at the knee."""
FEWEST_POINTS = 3
"""Fewest points of an exponent: two are on a line whatever the law is."""
Curve = Mapping[float, float]
"""Value -> speed."""


@dataclass(frozen=True)
class TooFewPoints(Missing):
    """Too few values for a knee or for an exponent."""

    count: int


@dataclass(frozen=True)
class StillRising(Missing):
    """The speed at the largest value is far above that of all others: the knee is beyond it, if there is one."""

    largest: float


@dataclass(frozen=True)
class NoFall(Missing):
    """The speed stays near the best one up to the largest value: the knee is beyond it, if there is one."""

    largest: float


@dataclass(frozen=True)
class Fitted:
    """A knee or an exponent with its interval over blocks; NaN where one block gives none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Growth:
    """The knee, and the exponents of the time of a step below it and beyond it; the knee's point belongs to both."""

    knee: Fitted | Missing
    below: Fitted | Missing
    beyond: Fitted | Missing


def growth(blocks: Sequence[Curve], *, rising: bool) -> Growth:
    """Of the curves of several blocks: values are parted by the knee of their median, exponents are of every block.

    Intervals are Student's over blocks, the replicates; of knees by their logarithms.
    """
    values = sorted({value for curve in blocks for value in curve})
    middle = {value: statistics.median(curve[value] for curve in blocks if value in curve) for value in values}
    place = knee(middle, rising=rising)
    if isinstance(place, Missing):
        below, beyond = (values, []) if not isinstance(place, TooFewPoints) else ([], [])
    else:
        below, beyond = [x for x in values if x <= place], [x for x in values if x >= place]
    return Growth(_knees(blocks, place, rising), _exponents(blocks, below), _exponents(blocks, beyond))


def knee(curve: Curve, *, rising: bool) -> float | Missing:
    """Where the speed is KNEE of the best one, between two values by a straight line in logarithms.

    Of what one wants more of, `rising`, it is the first such place: beyond it more buys little. Of what costs, it is
    the end of the values from the smallest on that are nearly free.
    """
    points = sorted(curve.items())
    if len(points) < 2:
        return TooFewPoints(len(points))
    enough = KNEE * max(curve.values())
    fast = [speed >= enough for _, speed in points]
    largest = points[-1][0]
    if rising:
        at = fast.index(True)
        if at == len(points) - 1:
            return StillRising(largest)
        return points[0][0] if at == 0 else _between(points[at - 1], points[at], enough)
    if not fast[0]:
        return points[0][0]
    if all(fast):
        return NoFall(largest)
    at = fast.index(False)
    return _between(points[at - 1], points[at], enough)


def exponent(curve: Curve) -> float | Missing:
    """Slope of log time over log value by least squares, where the speed is one over the time."""
    if len(curve) < FEWEST_POINTS:
        return TooFewPoints(len(curve))
    value, speed = np.log(list(curve)), np.log(list(curve.values()))
    away = value - value.mean()
    return float(-(away @ speed) / (away @ away))


def _between(one: tuple[float, float], other: tuple[float, float], speed: float) -> float:
    (x, a), (y, b) = one, other
    return x * (y / x) ** (math.log(speed / a) / math.log(b / a))


def _knees(blocks: Sequence[Curve], place: float | Missing, rising: bool) -> Fitted | Missing:
    found = [x for curve in blocks if not isinstance(x := knee(curve, rising=rising), Missing)]
    if isinstance(place, Missing):
        return place
    if len(found) < 2:
        return Fitted(place, math.nan, math.nan)
    return Fitted(geometric_mean(found), *interval(estimate(np.log(found))))


def _exponents(blocks: Sequence[Curve], values: Sequence[float]) -> Fitted | Missing:
    curves = [{x: curve[x] for x in values if x in curve} for curve in blocks]
    slopes = [x for curve in curves if not isinstance(x := exponent(curve), Missing)]
    if not slopes:
        return TooFewPoints(max(map(len, curves), default=0))
    if len(slopes) < 2:
        return Fitted(slopes[0], math.nan, math.nan)
    found = estimate(slopes)
    return Fitted(found.mean, *bounds(found))
