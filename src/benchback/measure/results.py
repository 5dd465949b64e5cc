"""Results of a campaign: the accepted attempt of each slot, and its time per iteration."""

from pathlib import Path

from benchback.errors import InputError
from benchback.measure.metrics import Timed, timed
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


def block_times(store: Store, stratum: int) -> dict[str, dict[int, Timed]]:
    """Cell -> block -> the time of an iteration, of the accepted attempts."""
    found: dict[str, dict[int, Timed]] = {}
    for slot, attempt in results(store):
        if slot.stratum == stratum and attempt.record is not None:
            found.setdefault(slot.cell, {})[slot.block] = timed(attempt.record)
    return found


def _attempts_by_slot(store: Store) -> dict[str, list[Attempt]]:
    tries: dict[str, list[Attempt]] = {}
    for attempt in store.attempts():
        tries.setdefault(attempt.slot, []).append(attempt)
    return tries
