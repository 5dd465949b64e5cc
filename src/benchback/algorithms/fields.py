"""Shared by the Configs of all algorithms: model sizes and validation of fields."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from benchback.errors import InputError


class Rows(NamedTuple):
    """Rows that go through a network in an iteration."""

    forward: int
    """Without a gradient: to act, and for targets."""
    gradient: int
    """In gradient steps of its weights."""
    input_gradient: int = 0
    """In gradient steps of another network whose output is its input."""
    final: int = 0
    """Final observations of episodes, whose values matter only if an episode was truncated."""


MODEL_SIZES = {"small": (64, 64), "medium": (256,) * 3, "large": (1024,) * 6}


def check_counts(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise InputError(f"{name}={getattr(config, name)} must be at least 1")


def check_positive(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is greater than 0."""
    for name in names:
        if not getattr(config, name) > 0:
            raise InputError(f"{name}={getattr(config, name)} must be greater than 0")


def check_not_negative(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is at least 0."""
    for name in names:
        if not getattr(config, name) >= 0:
            raise InputError(f"{name}={getattr(config, name)} must not be negative")


def check_shares(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is in [0, 1]."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise InputError(f"{name}={getattr(config, name)} must lie between 0 and 1")


def check_decays(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{name}={getattr(config, name)} must lie in [0, 1)")


def check_hidden_sizes(config: Any) -> None:
    """Raise an InputError unless all given hidden layers have a positive width."""
    if any(size < 1 for size in config.hidden_sizes):
        raise InputError(f"hidden_sizes={config.hidden_sizes} must be positive, e.g. 64 64")
