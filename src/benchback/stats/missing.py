"""Reasons why a value is missing: each is a type of its own, with the facts as fields and no sentence."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """Base of the reasons why a run gives no value."""


@dataclass(frozen=True)
class NotPositive(Missing):
    """The value has no logarithm."""

    value: float


Measured = float | Missing
"""The value of a run, or the reason why it has none."""
