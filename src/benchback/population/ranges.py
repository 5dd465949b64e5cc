"""Ranges of numbers as they are written on the command line: `LOW..HIGH`, `log:LOW..HIGH`, `linear:LOW..HIGH`."""

import math
from dataclasses import dataclass

import numpy as np

from benchback.errors import InputError


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`."""

    low: float
    high: float
    log: bool
    """Draw the logarithm evenly rather than the number."""

    def at(self, share: float) -> float:
        """The number of four digits that lies this share of the way from `low` to `high`."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        number = low + (high - low) * share
        return min(max(float(f"{math.exp(number) if self.log else number:.4g}"), self.low), self.high)

    def draw(self, random: np.random.Generator) -> float:
        """A number of four digits within the range."""
        return self.at(random.random())


def parse_range(name: str, given: str, *, log_from: float = math.inf) -> Range:
    """The range that is written as `given` for the field `name`.

    Without a scale it is logarithmic if its ends are at least the factor `log_from` apart.
    """
    scale, _, ends = given.rpartition(":")
    if scale not in ("", "log", "linear"):
        raise InputError(f"{name}={given[:80]} has the scale {scale[:40]}; write log:LOW..HIGH or linear:LOW..HIGH")
    try:
        low, high = map(float, ends.split(".."))
    except ValueError:
        raise InputError(f"{name}={given[:80]} must be LOW..HIGH, e.g. 1e-5..1e-2") from None
    if not -math.inf < low < high < math.inf:
        raise InputError(f"{name}={given[:80]} must begin below its end")
    if scale == "log" and low <= 0:
        raise InputError(f"{name}={given[:80]} must begin above 0 to be drawn on a logarithmic scale")
    return Range(low, high, scale == "log" or (not scale and low > 0 and high / low >= log_from))
