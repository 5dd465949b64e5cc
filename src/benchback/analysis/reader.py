"""The one reader of a store: attempts with their slots and cells, and all runs of one stratum as typed records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchback import stats
from benchback.analysis.costs import stored_env_times
from benchback.analysis.evidence import first_iterations
from benchback.analysis.groups import Outcome, grouped
from benchback.analysis.source import Sampled, SlotRun, Source
from benchback.measure.metrics import METRICS, Failed, NotRun, run_metrics, run_turns
from benchback.measure.policy import accepted_attempt
from benchback.measure.record import Attempt, Cell, Record, Slot
from benchback.measure.store import Event, Store
from benchback.stats import Missing


class Stored(NamedTuple):
    """An attempt with where it belongs."""

    slot: Slot
    cell: Cell
    attempt: Attempt


def stored_attempts(store: Store) -> Iterator[Stored]:
    """Every attempt of every stratum with its slot and cell, oldest first."""
    cells, slots = store.cells(), {slot.id: slot for slot in store.slots()}
    for attempt in store.attempts():
        slot = slots[attempt.slot]
        yield Stored(slot, cells[slot.cell], attempt)


def accepted_attempts(store: Store, stratum: int) -> Iterator[Stored]:
    """The attempt that speaks for each slot of a stratum that has a result, in the order of the schedule."""
    cells = store.cells()
    for slot in store.slots():
        accepted = accepted_attempt(list(store.attempts(slot.id))) if slot.stratum == stratum else None
        if accepted is not None:
            yield Stored(slot, cells[slot.cell], accepted)


def read(
    store: Store, seed: int = 0, stratum: int | None = None, env_times: Mapping[str, float] | None = None
) -> Source:
    """The store's last stratum unless told otherwise, in one pass; slots without a result say why."""
    strata = tuple(store.strata())
    stratum = len(strata) - 1 if stratum is None else stratum
    cells = store.cells()
    runs, attempts = [], []
    outcomes: dict[str, dict[int, Outcome]] = {id: {} for id in cells}
    for slot in store.slots():
        if slot.stratum != stratum:
            continue
        tries = list(store.attempts(slot.id))
        run = _with_evidence(_slot_run(slot, cells[slot.cell], tries), tries)
        runs.append(run)
        attempts += [replace(x, record=None) for x in tries]
        outcomes[slot.cell][slot.block] = run.outcome
    present = {id: cell for id, cell in cells.items() if outcomes[id]}
    events = tuple(store.events())
    return Source(
        store=store,
        campaign=store.campaign(),
        strata=strata,
        cells=present,
        runs=tuple(runs),
        attempts=tuple(attempts),
        events=events,
        canaries=tuple(x for x in store.canaries() if x.get("stratum", 0) == stratum),
        parity=_parity(events, stratum),
        groups=tuple(grouped(present, outcomes)),
        seed=seed,
        env_times=env_times or stored_env_times(events),
    )


def _parity(events: Sequence[Event], stratum: int) -> dict[str, str]:
    """Proof -> verdict, as last recorded; `algorithm/backend` in stores from before there were proofs.

    In a cluster each machine state has its own proof, which names it.
    """
    proofs = [event.detail for event in events if event.kind == "parity"]
    found = [detail["verdicts"] for detail in proofs if detail.get("stratum", stratum) == stratum]
    return found[-1] if found else {}


def _with_evidence(run: SlotRun, tries: list[Attempt]) -> SlotRun:
    """The run with the metrics of its first iterations."""
    accepted = accepted_attempt(tries)
    if accepted is None or accepted.record is None:
        return run
    return replace(run, outcome=replace(run.outcome, first=first_iterations(accepted.record)))


def _slot_run(slot: Slot, cell: Cell, tries: list[Attempt]) -> SlotRun:
    accepted = accepted_attempt(tries)
    last = accepted or (tries[-1] if tries else None)
    light = None if last is None else replace(last, record=None, log="")
    if accepted is None or accepted.record is None:
        reason: Missing = Failed(last.outcome, last.detail) if last else NotRun()
        return SlotRun(slot, cell, Outcome(slot.block, dict.fromkeys(METRICS, reason), {}, None), light, None)
    record = accepted.record
    # In a relay trainings differ in length: their last returns say nothing about how well a variant learns.
    relayed = "round" in record.samples
    returns = [] if relayed else [x for x in record.samples.get("episode_return", ()) if x is not None]
    outcome = Outcome(
        slot.block,
        run_metrics(record),
        record.ledger,
        episode_return=returns[-1] if returns else None,
        first_call_s=record.samples["total_s"][0],
        turns=run_turns(record),
    )
    seconds = np.array(record.samples["total_s"], float)
    series = {
        name: np.array(record.samples.get(name, []), float) for name in ("episode_return", "rss_bytes", "compiles")
    }
    sampled = Sampled(
        seconds=seconds,
        returns=series["episode_return"][: _unbroken(record)],
        memory=series["rss_bytes"],
        marks=record.marks,
        ledger=record.ledger,
        peaks=record.memory,
        compiles=series["compiles"],
        segment=_segment(record, seconds),
    )
    return SlotRun(slot, cell, outcome, light, sampled)


def _unbroken(record: Record) -> int:
    """Iterations before a training began again, as it does in a relay when its iterations are used up."""
    done = record.samples.get("iteration", [])
    calls = next((i for i in range(1, len(done)) if (done[i] or 0) <= (done[i - 1] or 0)), len(done))
    return (calls or len(record.samples["total_s"])) * record.ledger["iterations_per_call"]


def _segment(record: Record, seconds: NDArray[np.float64]) -> stats.Segment:
    """The steady part of a run; of a relay all its turns."""
    rounds = np.array(record.samples.get("round", []), float)
    if not rounds.any():
        return stats.steady(seconds)
    turns = seconds[rounds > 0]
    return stats.Segment(int((rounds == 0).sum()), len(seconds), float(np.median(turns)), float(turns.mean()))
