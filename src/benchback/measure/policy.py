"""When a slot of the schedule is done: a pure function of the attempts made at it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

RERUN_TAGS = frozenset({"noise"})
"""Tags that keep an attempt but make the slot run again."""
MAX_TAGGED = 3
"""Most attempts with such tags at a slot: the first and two re-runs."""
MAX_FAILED = 2
"""Most failures of a slot, so that a campaign always completes: the first and one retry."""


@runtime_checkable
class Tried(Protocol):
    """The fields of an attempt that the policy needs."""

    @property
    def outcome(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


Tries = TypeVar("Tries", bound=Tried)


@dataclass(frozen=True)
class Try:
    """An attempt without its record."""

    outcome: str
    tags: tuple[str, ...]


def is_accepted(tried: Tried) -> bool:
    """Whether an attempt settles its slot: ok, and no tag that asks for a re-run."""
    return tried.outcome == "ok" and not RERUN_TAGS & set(tried.tags)


def is_closed(attempts: Sequence[Tried]) -> bool:
    """Whether a slot needs no further attempt; interrupted attempts do not count."""
    tagged = sum(x.outcome == "ok" for x in attempts)
    failed = sum(x.outcome not in ("ok", "interrupted") for x in attempts)
    return any(is_accepted(x) for x in attempts) or tagged >= MAX_TAGGED or failed >= MAX_FAILED


def accepted_attempt(attempts: Sequence[Tries]) -> Tries | None:
    """The attempt that is the slot's result: the accepted one, else the last ok one, else None."""
    results = [x for x in attempts if x.outcome == "ok"]
    return next((x for x in results if is_accepted(x)), results[-1] if results else None)
