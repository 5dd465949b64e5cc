"""The metrics by which runs are compared: the values of a run, or the reason why it has none."""

from collections.abc import Mapping, Sequence
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
SERIES = {"steady": "total_s", "rollout": "rollout_s", "update": "update_s"}
"""Metric -> the samples it is taken from, one per call."""
RARE_LENGTH, MOST_RARE = 3.0, 2
"""A call of more than so many times the usual length happens once in a training, if turns have at most so many."""
Turns = Mapping[int, float]
"""Round of a relay -> seconds of an iteration in it."""


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


@dataclass(frozen=True)
class CachesNotEmpty(Missing):
    """A process that loads compiled programs says nothing about compiling them."""

    files: int


def run_metrics(record: Record) -> dict[str, Measured]:
    """Every metric of a run by name; a reason where it has none."""
    if "round" in record.samples:
        return _relay_metrics(record)
    durations = np.array(record.samples["total_s"], float)
    segment = stats.steady(durations)
    per_call = record.ledger["iterations_per_call"]
    found: dict[str, Measured] = {
        "total": record.marks["finished"],
        "cold_start": record.marks["first_call"],
        "steady": segment.reason or segment.steady_s / per_call,
    }
    return found | _phases(record.samples, segment)


def _relay_metrics(record: Record) -> dict[str, Measured]:
    """Of a relay: medians of its turns; the time of a whole training is predicted from its start and its turns."""
    found: dict[str, Measured] = {}
    for metric, turns in run_turns(record).items():
        found[metric] = float(np.median(list(turns.values()))) if turns else PhasesNotTimed()
    files = record.ledger.get("cached_files_before", 0)
    start_s = CachesNotEmpty(files) if files else record.marks["first_call"]
    total_s: Measured = start_s
    if isinstance(start_s, float) and any(record.samples["round"]):
        total_s = start_s + after_first_call_s(record, mean_call(record))
    return {"total": total_s, "cold_start": start_s} | found


@dataclass(frozen=True)
class MeanCall:
    """What the calls of a training take, by those in turns."""

    iteration_s: float
    """An iteration in the mean, waiting for a processor included."""
    once_s: float
    """What happens once in a training, beyond that."""


def mean_call(record: Record) -> MeanCall:
    """The mean of all counted calls: a training takes the sum of its iterations, the slow ones included.

    What happens once or twice in all turns, as a long pass of Python's collector does, would by the mean happen again
    and again in the whole training.
    """
    whole, alone = (
        np.array([x for calls in counted_calls(record, "total_s", share).values() for x in calls])
        for share in (None, running_share(record))
    )
    typical_s = float(np.median(alone))
    rare = alone > RARE_LENGTH * typical_s
    if rare.sum() > MOST_RARE:
        rare[:] = False
    once_s = float((alone[rare] - typical_s).sum()) * record.ledger.get("iterations_per_call", 1)
    return MeanCall(float(whole[~rare].mean()), once_s)


def after_first_call_s(record: Record, mean: MeanCall) -> float:
    """Seconds of the rest of a training: its warm-up as measured, then its other calls."""
    rounds, per_call = record.samples["round"], record.ledger["iterations_per_call"]
    warm = [x or 0.0 for x, place in zip(record.samples["total_s"], rounds, strict=True) if place == 0]
    left = record.ledger["calls"] - len(warm)
    return sum(warm[1:]) + left * per_call * mean.iteration_s + mean.once_s


def run_turns(record: Record) -> dict[str, dict[int, float]]:
    """Metric -> round of a relay -> seconds of an iteration: the median of the turn's calls but the first.

    Time in which the process waited for a processor that others had is not counted.
    """
    share = running_share(record)
    turns = {metric: counted_calls(record, name, share) for metric, name in SERIES.items()}
    return {metric: {place: float(np.median(x)) for place, x in calls.items()} for metric, calls in turns.items()}


def counted_calls(record: Record, name: str, share: Sequence[float] | None = None) -> dict[int, list[float]]:
    """Round of a relay -> seconds of an iteration in each call of the turn but the first; of each call a share."""
    per_call, rounds = record.ledger.get("iterations_per_call", 1), record.samples.get("round", [])
    turns: dict[int, list[float]] = {}
    for value, place, part in zip(record.samples.get(name, []), rounds, share or [1.0] * len(rounds), strict=False):
        if place and value is not None:
            turns.setdefault(int(place), []).append(value * part / per_call)
    # A turn of one long call has none to spare.
    return {place: calls[1:] or calls for place, calls in turns.items()}


def running_share(record: Record) -> list[float]:
    """Share of each call in which the process did not wait for a processor that others had; 1 where it is not known."""
    total_s = record.samples["total_s"]
    waited_s = record.samples.get("waited_s") or [0.0] * len(total_s)
    return [1.0 - (waited or 0.0) / total if total else 1.0 for total, waited in zip(total_s, waited_s, strict=True)]


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


@dataclass(frozen=True)
class Timed:
    """The time by which the stopping rule compares two runs of a block."""

    seconds: float
    """Of a steady iteration, else of the mean one."""
    turns: Turns


def timed(record: Record) -> Timed:
    """The time of a run for the stopping rule."""
    found, turns = run_metrics(record)["steady"], run_turns(record)["steady"]
    if isinstance(found, float):
        return Timed(found, turns)
    later = [x for x in record.samples["total_s"][1:] if x is not None] or [record.samples["total_s"][0] or 0.0]
    return Timed(float(np.mean(later)) / record.ledger["iterations_per_call"], turns)


def comparable(a: Timed, b: Timed) -> bool:
    """Whether two runs of a block were whole runs, or took turns with each other."""
    return not a.turns or not b.turns or bool(a.turns.keys() & b.turns.keys())


def ratio(a: Timed, b: Timed) -> float | None:
    """How many times as long as b a takes: by rounds in a relay, else of whole runs; None where it is not known."""
    if not a.turns or not b.turns:
        return a.seconds / b.seconds
    found = stats.relay_ratio(a.turns, b.turns)
    return found if isinstance(found, float) else None
