"""A block as it is run on a machine, and its outcome as it is stored: the same on this machine and on others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from benchback.measure import machine
from benchback.measure.process import Ended, Launch, Tick
from benchback.measure.record import Attempt, Cell, Record
from benchback.measure.relay import Pace, Relay, RelayLaunch
from benchback.measure.store import Lease


@dataclass(frozen=True)
class BlockJob:
    """What is run together on one machine."""

    cells: tuple[Cell, ...]
    """In the order in which they are started."""
    seed: int
    timeout_s: float
    pace: Pace
    reference: Cell
    """The one that runs with each of the others where a relay runs in pairs."""


@dataclass(frozen=True)
class Measured:
    """How the cells of a block ended, and the noise of the machine meanwhile."""

    ended: Mapping[str, Ended]
    """By cell id; of a relay in which one fails, only that one."""
    noise: Mapping[str, float]
    started_at: str
    canaries: tuple[Mapping[str, float | str], ...] = ()
    """Times of the canaries that the machine ran itself, each with `when`."""
    busy_s: float = 0.0
    """Seconds that a station took for it, canaries included."""


def measure(
    job: BlockJob,
    launch: Launch,
    relay: RelayLaunch | None,
    tick: Tick,
    show: Callable[[str], None] = lambda text: None,
    sample: Callable[[], dict[str, float]] = machine.sample,
) -> Measured:
    """Run the block as a relay, or with `launch` its only cell; Interrupted if `tick` says so."""
    started_at, before = datetime.now(UTC).isoformat(timespec="milliseconds"), sample()
    if relay is None:
        ended = {job.cells[0].id: launch(job.cells[0], job.seed, job.timeout_s, tick)}
    else:
        given = Relay(job.cells, job.seed, job.timeout_s, job.pace, tick, show)
        ended = relay(replace(given, reference=job.reference))
    return Measured(ended, machine.between(before, sample()), started_at)


def attempts_of(leases: Sequence[Lease], measured: Measured, noisy_again: bool) -> list[tuple[Lease, Attempt]]:
    """The attempts at leased slots that have an outcome.

    A relay in which one fails gives an attempt at that slot only: the others run again with it. `noisy_again`: whether
    slots run again because of noise.
    """
    return [
        (lease, _attempt(lease, measured.ended[lease.slot.cell], measured, noisy_again))
        for lease in leases
        if lease.slot.cell in measured.ended
    ]


def _attempt(lease: Lease, ended: Ended, measured: Measured, noisy_again: bool) -> Attempt:
    """How a run ended, as it is stored."""
    tags, violations = list(ended.tags), machine.violations(measured.noise)
    if violations:
        # Both tags are kept; only `noise` makes the slot run again. Ratios within a round do not need that.
        tags.append("noise" if noisy_again else "noisy")
    record = Record.from_dict(ended.messages[0]["record"]) if ended.outcome == "ok" and ended.messages else None
    return Attempt(
        slot=lease.slot.id,
        number=lease.number,
        outcome=ended.outcome,
        started_at=measured.started_at,
        duration_s=ended.duration_s,
        detail="; ".join(filter(None, (ended.detail, *violations))),
        log=ended.log,
        tags=tuple(tags),
        noise=measured.noise,
        record=record,
    )
