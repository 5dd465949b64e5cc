"""Results of a campaign: the accepted attempt of each slot, and its time per iteration."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchback.errors import InputError
from benchback.measure.metrics import stopping_metric
from benchback.measure.policy import accepted_attempt
from benchback.measure.record import Attempt, Slot
from benchback.measure.store import Store, open_store


def open_trainings(path: Path) -> Store:
    """The store at `path`, read-only; refused unless its cells are trainings."""
    store = open_store(path, readonly=True)
    try:
        kinds = sorted({cell.kind for cell in store.cells().values()} - {"training"})
        if kinds:
            raise InputError(
                f"{path} holds runs of kind {', '.join(kinds)} and reports are about trainings; "
                "run its own verb again for its tables, or export it"
            )
    except BaseException:
        store.close()
        raise
    return store


def results(store: Store) -> list[tuple[Slot, Attempt]]:
    """Every slot that has a result with its accepted attempt, in schedule order."""
    tries = _attempts_by_slot(store)
    found = ((slot, accepted_attempt(tries.get(slot.id, []))) for slot in store.slots())
    return [(slot, attempt) for slot, attempt in found if attempt is not None]


def latest(store: Store) -> list[tuple[Slot, Attempt]]:
    """Every tried slot of the last stratum with its accepted attempt, else its first failed one."""
    tries, stratum = _attempts_by_slot(store), len(store.strata()) - 1
    tried = [slot for slot in store.slots() if slot.stratum == stratum and slot.id in tries]
    return [(slot, accepted_attempt(tries[slot.id]) or tries[slot.id][0]) for slot in tried]


def failure(attempt: Attempt) -> str:
    """Why an attempt has no result, in a line; empty where it has one."""
    return "" if attempt.record else f"{attempt.outcome}: {attempt.detail}"


def block_times(store: Store, stratum: int) -> dict[str, dict[int, float]]:
    """Cell -> block -> seconds of an iteration, of the accepted attempts."""
    found: dict[str, dict[int, float]] = {}
    for slot, attempt in results(store):
        if slot.stratum == stratum and attempt.record is not None:
            found.setdefault(slot.cell, {})[slot.block] = stopping_metric(attempt.record)
    return found


def complete(times: Mapping[str, Mapping[int, float]], members: Sequence[str]) -> dict[str, list[float]]:
    """Of the members that ran at all, the times in the blocks that all of them completed."""
    ran = [cell for cell in members if times.get(cell)]
    if len(ran) < 2:
        return {}
    common = sorted(set.intersection(*(set(times[cell]) for cell in ran)))
    return {cell: [times[cell][block] for block in common] for cell in ran}


def _attempts_by_slot(store: Store) -> dict[str, list[Attempt]]:
    tries: dict[str, list[Attempt]] = {}
    for attempt in store.attempts():
        tries.setdefault(attempt.slot, []).append(attempt)
    return tries
