"""The metrics by which runs are compared: the values of a run, or the reason why it has none."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchback import stats
from benchback.measure.record import Record
from benchback.stats import Measured, Missing

METRICS = {
    "total": "seconds from starting the process to the end of training",
    "cold_start": "seconds from starting the process to the end of the first call: imports, building, compiling",
    "steady": "seconds of an iteration in steady state",
    "rollout": "seconds of a rollout in steady state; where every phase is waited for",
    "update": "seconds of an update in steady state; where every phase is waited for",
}


@dataclass(frozen=True)
class NotRun(Missing):
    """No attempt has been made yet."""


@dataclass(frozen=True)
class Failed(Missing):
    """Every attempt failed; the fields are those of the last one."""

    outcome: str
    detail: str


@dataclass(frozen=True)
class PhasesNotTimed(Missing):
    """Rollout and update are timed in unit phase with sync timing only."""


def run_metrics(record: Record) -> dict[str, Measured]:
    """Every metric of a run by name; a reason where it has none."""
    durations = np.array(record.samples["total_s"], float)
    segment = stats.steady(durations)
    per_call = record.ledger["iterations_per_call"]
    found: dict[str, Measured] = {
        "total": record.marks["finished"],
        "cold_start": record.marks["first_call"],
        "steady": segment.reason or segment.steady_s / per_call,
    }
    return found | _phases(record.samples, segment)


def _phases(samples: Mapping[str, list[float | None]], segment: stats.Segment) -> dict[str, Measured]:
    """Metrics of rollout and update separately."""
    found: dict[str, Measured] = {}
    for name in ("rollout", "update"):
        values = samples.get(f"{name}_s")
        if not values:
            found[name] = PhasesNotTimed()
        else:
            found[name] = segment.reason or float(np.median(np.array(values, float)[segment.start :]))
    return found


def stopping_metric(record: Record) -> float:
    """Seconds of a steady iteration, else of the mean one; decides whether a group needs more blocks."""
    found = run_metrics(record)["steady"]
    if isinstance(found, float):
        return found
    later = [x for x in record.samples["total_s"][1:] if x is not None] or [record.samples["total_s"][0] or 0.0]
    return float(np.mean(later)) / record.ledger["iterations_per_call"]
