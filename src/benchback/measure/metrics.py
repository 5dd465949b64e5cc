"""What a run came to: the figures on which runs are compared, or the reason why one has none."""

from collections.abc import Mapping

import numpy as np

from benchback import stats
from benchback.measure.record import Record
from benchback.stats import Measured

FIGURES = {
    "total": "seconds from starting the process to the end of training",
    "cold_start": "seconds from starting the process to the end of the first call: imports, building, compiling",
    "steady": "seconds of an iteration in steady state",
    "rollout": "seconds of a rollout in steady state; where every phase is waited for",
    "update": "seconds of an update in steady state; where every phase is waited for",
}


def figures(record: Record) -> dict[str, Measured]:
    """Every figure of a run by name; a text says why it has none."""
    durations = np.array(record.samples["total_s"], float)
    segment = stats.steady(durations)
    per_call = record.ledger["iterations_per_call"]
    found: dict[str, Measured] = {
        "total": record.marks["finished"],
        "cold_start": record.marks["first_call"],
        "steady": segment.steady_s / per_call if segment.found else f"no steady state: {segment.reason}",
    }
    return found | _phases(record.samples, segment)


def _phases(samples: Mapping[str, list[float | None]], segment: stats.Segment) -> dict[str, Measured]:
    """Rollout and update by themselves."""
    found: dict[str, Measured] = {}
    for name in ("rollout", "update"):
        values = samples.get(f"{name}_s")
        if not values:
            found[name] = "phases are timed in unit phase with sync timing only"
        elif not segment.found:
            found[name] = f"no steady state: {segment.reason}"
        else:
            found[name] = float(np.median(np.array(values, float)[segment.start :]))
    return found


def stopping_metric(record: Record) -> float:
    """The figure on which it is decided whether a group needs more blocks: a steady iteration, else the mean one."""
    found = figures(record)["steady"]
    if isinstance(found, float):
        return found
    later = [x for x in record.samples["total_s"][1:] if x is not None] or [record.samples["total_s"][0] or 0.0]
    return float(np.mean(later)) / record.ledger["iterations_per_call"]
