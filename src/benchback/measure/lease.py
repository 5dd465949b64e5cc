"""What a store hands out beside its rows: leases on slots, events, and the progress of a campaign."""

from dataclasses import dataclass
from typing import Any

from benchback.measure.record import Slot


class Fenced(Exception):
    """The lease was taken over by another owner; the late attempt must not be stored."""


@dataclass(frozen=True)
class Lease:
    """The right to work on a slot until it expires or another takes over."""

    slot: Slot
    number: int
    """Number of the attempt to be made."""
    fence: int
    """Grows with every lease on the store: of two leases of a slot only the later one can finish it."""


@dataclass(frozen=True)
class Event:
    """Something worth knowing about the campaign: a re-run, a gate that was violated, a change of machine."""

    at: str
    """UTC, ISO 8601."""
    kind: str
    detail: Any


@dataclass(frozen=True)
class Counts:
    """Progress of a campaign, in slots."""

    total: int
    ok: int
    """Closed with a result."""
    failed: int
    """Closed without one."""
    running: int
    """Not closed, and under a live lease."""

    @property
    def open(self) -> int:
        """Slots still to be run."""
        return self.total - self.ok - self.failed - self.running
