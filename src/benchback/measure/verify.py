"""Checks a store: every row against its checksum, every run against those it is compared with."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.measure import schema
from benchback.measure.connection import explained, open_file
from benchback.measure.policy import is_closed
from benchback.measure.record import Attempt, Cell, Slot, canonical
from benchback.measure.schema import Damaged
from benchback.measure.store import Store

# fmt: off
COMPARED = frozenset({
    "backend", "mode", "unit", "chunk", "gradients", "versions", "bridged", "compiles", "compiles_to_initialise",
    "cached_files_after", "host_syncs_per_call", "transfers_per_call", "iterations_per_call",
    "config", "forward_flops", "network_evaluations", "final_value_rows",
    "host_env", "env_transfers_per_call", "env_bytes_per_call", "env_share",
    "resting_cpu_share", "waiting_share", "compiles_in_turns", "group",
})
# fmt: on
"""Fields of a ledger in which compared runs may differ: the axes of comparison and fields derived from them."""


@dataclass(frozen=True)
class Disagreement:
    """A field other than an axis of comparison in which the ledgers of two compared runs differ."""

    first: str
    second: str
    field: str
    values: tuple[Any, Any]


def verify(path: Path) -> list[str]:
    """Every problem of a store, a line each; empty if it is sound. The file is not changed.

    The content of rows is only checked if the file is sound and all checksums are right.
    """
    problems: list[str] = []
    try:
        with Store(path, open_file(path, readonly=True, checked=False)) as store:
            with explained(path):
                problems.extend(_damage(store))
            return problems or list(_contradictions(store))
    except (InputError, OSError) as error:
        return [*problems, str(error)]


def _damage(store: Store) -> Iterator[str]:
    """What SQLite finds damaged, and rows that are missing, refer to missing rows, or fail their checksum."""
    findings = schema.findings(store.connection)
    yield from (f"the file is damaged: {finding}" for finding in findings)
    rows = list(_damaged_rows(store))
    yield from rows
    if findings and rows:
        yield "restore the store from a copy"
    elif findings:
        yield (
            "every row is there and has its checksum: rebuild the indexes with "
            f"`sqlite3 {store.path} REINDEX` and verify again, or restore the store from a copy"
        )
    else:
        # Rows are looked up in an index, which must be sound.
        for table, key, parent, _ in store.connection.execute("PRAGMA foreign_key_check").fetchall():
            yield f"{table} {key} belongs to a {parent} that is not there"


def _damaged_rows(store: Store) -> Iterator[str]:
    """Rows that are missing or fail their checksum."""
    for table in schema.SEALED:
        try:
            schema.keys(store.connection, table)
        except Damaged as error:
            yield str(error)
        for (key,) in store.connection.execute(f"SELECT id FROM {table} NOT INDEXED ORDER BY id").fetchall():
            try:
                schema.row_at(store.connection, table, key)
            except Damaged as error:
                yield str(error)


def _contradictions(store: Store) -> Iterator[str]:
    """Rows that contradict each other or must not be compared."""
    store.campaign()
    cells, slots = store.cells(), store.slots()
    for name, cell in cells.items():
        if cell.id != name:
            yield f"cell {name} does not describe the work it is named after, which is {cell.id}"
    yield from _seeds(cells, slots)
    ledgers: dict[tuple[str, int, int], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for slot in slots:
        attempts = list(store.attempts(slot.id))
        yield from _history(slot, attempts)
        block = ledgers[cells[slot.cell].group, slot.block, slot.stratum]
        block |= {_name(x): x.record.ledger for x in attempts if x.outcome == "ok" and x.record}
    for block in ledgers.values():
        for found in disagreements(block):
            first, second = found.values
            yield (f"{found.first} and {found.second} must not be compared: {found.field} is {first!r} and {second!r}")


def _seeds(cells: Mapping[str, Cell], slots: Sequence[Slot]) -> Iterator[str]:
    """Violations of: a seed belongs to one block of a cell, and all variants of the block share it."""
    of_cell: dict[tuple[str, int, int], str] = {}
    of_block: dict[tuple[str, int, int], Slot] = {}
    for slot in slots:
        other = of_cell.setdefault((slot.cell, slot.stratum, slot.seed), slot.id)
        if other != slot.id:
            yield f"slots {other} and {slot.id} have the same seed {slot.seed}"
        first = of_block.setdefault((cells[slot.cell].group, slot.block, slot.stratum), slot)
        if first.seed != slot.seed:
            yield f"slots {first.id} and {slot.id} are of one block with seeds {first.seed} and {slot.seed}"


def _history(slot: Slot, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Problems of a slot's attempts: numbering, attempts after it was closed, missing records, wrong seeds."""
    for number, attempt in enumerate(attempts):
        if attempt.number != number:
            yield f"{_name(attempt)} should have number {number}"
        if is_closed(attempts[:number]):
            yield f"{_name(attempt)} was made though the slot was closed"
        if (attempt.record is not None) != (attempt.outcome == "ok"):
            yield f"{_name(attempt)} is {attempt.outcome} {'without a' if attempt.record is None else 'with a'} record"
        seed = attempt.record.ledger.get("seed", slot.seed) if attempt.record else slot.seed
        if seed != slot.seed:
            yield f"{_name(attempt)} used seed {seed}, the schedule says {slot.seed}"


def disagreements(ledgers: Mapping[str, Mapping[str, Any]]) -> list[Disagreement]:
    """Fields in which a ledger differs from the first one, so that the runs cannot be compared."""
    names = list(ledgers)
    works = [_work(ledgers[name]) for name in names]
    found = []
    for name, work in zip(names[1:], works[1:], strict=True):
        for field in sorted(works[0].keys() | work.keys()):
            ours, theirs = works[0].get(field), work.get(field)
            if canonical(ours) != canonical(theirs):
                found.append(Disagreement(names[0], name, field, (ours, theirs)))
    return found


def _work(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a ledger that compared runs share; calls are converted to iterations."""
    length = ledger.get("iterations_per_call", 1)
    work = {name: x for name, x in ledger.items() if name not in COMPARED}
    if "calls" in work:
        work["iterations"] = work.pop("calls") * length
    if "cached_files_before" in work:
        # Frameworks keep different numbers of files; what counts is whether there was anything to load.
        work["caches_empty"] = not work.pop("cached_files_before")
    if "env_steps_per_call" in work:
        work["env_steps_per_iteration"] = work.pop("env_steps_per_call") / length
    return work


def _name(attempt: Attempt) -> str:
    return f"attempt {attempt.slot} number {attempt.number}"
