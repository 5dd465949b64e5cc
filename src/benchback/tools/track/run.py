"""A finished run as trackers receive it: name, configuration, and a row per iteration."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from benchback.measure.record import Attempt, Cell, Record, Slot

PER_CALL = ("total_s", "cpu_s", "waited_s", "rollout_s", "update_s", "compiles", "host_syncs", "transfers", "rss_bytes")
"""Samples with a value for every call of the program; the others have one for every iteration."""
Row = dict[str, int | float]
INDEX = ("iteration", "env_steps")
"""Columns that index a row and are not curves."""


class Sink(NamedTuple):
    """An open run of a tracker."""

    log: Callable[[Sequence[Row]], None]
    """Takes rows as they become known."""
    summarise: Callable[[Mapping[str, float]], None]
    """Takes scalars of the whole run."""


@dataclass(frozen=True)
class Tracked:
    """A run as a tracker receives it."""

    name: str
    """Name of the run, valid as a folder name for any variant."""
    study: str
    config: Mapping[str, Any]
    """Every field of the run, and how it was executed."""
    rows: list[Row]
    """See `rows_of`."""
    summary: Mapping[str, float]
    """Scalars of a run: marks and peak memory."""


def tracked(study: str, slot: Slot, cell: Cell, attempt: Attempt) -> Tracked:
    """The run of an attempt that has a record."""
    assert attempt.record is not None
    how = {"timing": cell.timing, "threads": cell.threads, "device": cell.device}
    config = {**cell.run, **how, "seed": slot.seed, "variant": cell.variant, "block": slot.block, "slot": slot.id}
    marks = {f"mark/{name}_s": x for name, x in attempt.record.marks.items()}
    summary = marks | {f"memory/{name}": x for name, x in attempt.record.memory.items()}
    return Tracked(name_of(slot, cell, attempt.number), study, config, rows_of(attempt.record), summary)


def name_of(slot: Slot, cell: Cell, number: int) -> str:
    """`linen-jit-phase-block0-1a2b3c4d`; machine state and attempt follow where they are not the first."""
    words = re.sub(r"[^A-Za-z0-9_]+", "-", cell.variant).strip("-")
    later = (f"-stratum{slot.stratum}" if slot.stratum else "") + (f"-try{number}" if number else "")
    return f"{words}-block{slot.block}-{slot.cell[:8]}{later}"


def rows_of(record: Record) -> list[Row]:
    """A row per iteration: iteration, env_steps and seconds of training, then what was measured.

    The value of a call that covers many iterations is in the row of its last one. Missing values are left out.
    """
    length = record.ledger["iterations_per_call"]
    durations = [x or 0.0 for x in record.samples["total_s"]]
    per_iteration = record.ledger.get("env_steps_per_call", 0) // length
    rows: list[Row] = []
    for call, seconds in enumerate(accumulate(durations)):
        for place in range(length):
            number = call * length + place
            start = seconds - durations[call] * (length - 1 - place) / length
            row: Row = {"iteration": number + 1, "env_steps": (number + 1) * per_iteration, "seconds": start}
            rows.append(row | _measured(record, call, number, place == length - 1))
    return rows


def _measured(record: Record, call: int, number: int, last: bool) -> Row:
    found: Row = {}
    for name, values in record.samples.items():
        index = call if name in PER_CALL else number
        value = values[index] if index < len(values) else None
        if value is not None and (last or name not in PER_CALL):
            found[name] = value
    return found
