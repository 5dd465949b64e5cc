"""The campaign store: one SQLite file with the schedule, the leases on its slots, and the finished attempts.

Guarantees: what `finish` returned from is on disk; a finished attempt is never changed or deleted; a slot is
leased to one owner at a time, and a late owner is refused; a read returns what was written, or raises.
Nothing derived is stored: which slots are open follows from the attempts.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from benchback.errors import InputError
from benchback.measure import schema
from benchback.measure.connection import check_local, connect, explained, open_file, patiently, transaction
from benchback.measure.lease import Counts, Event, Fenced, Lease
from benchback.measure.packing import packed, unpacked
from benchback.measure.policy import Try, accepted_attempt, is_closed
from benchback.measure.record import Attempt, Cell, Outcome, Slot, canonical
from benchback.measure.schema import Damaged

__all__ = ["Counts", "Damaged", "Event", "Fenced", "Lease", "Store", "create", "open_store"]


def create(
    path: Path,
    campaign: Mapping[str, Any],
    cells: Sequence[Cell],
    slots: Sequence[Slot],
    clock: Callable[[], float] = time.time,
) -> "Store":
    """A new store with its whole schedule, created atomically; refused if the file exists.

    `campaign["fingerprint"]` becomes stratum 0.
    """
    check_local(path)
    _check_free(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        with explained(path):
            _write(draft, campaign, cells, slots)
        # Unlike a rename, a link fails if another program has created the file meanwhile.
        os.link(draft, path)
    except FileExistsError:
        _check_free(path)
        raise
    finally:
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            leftover.unlink(missing_ok=True)
    _make_durable(path.parent)
    return open_store(path, clock=clock)


def _check_free(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it, or choose another place for the store")
    if os.path.lexists(path):
        raise InputError(f"{path} exists; choose another name, or continue the campaign it holds")
    # SQLite would replay a removed store's leftover log onto the new one.
    for left in (Path(f"{path}-wal"), Path(f"{path}-journal")):
        if left.exists():
            raise InputError(f"{left} is left of a store that was removed; remove it too, or choose another name")


def _write(path: Path, campaign: Mapping[str, Any], cells: Sequence[Cell], slots: Sequence[Slot]) -> None:
    connection = connect(path, "mode=rwc")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection, path):
            schema.migrate(connection)
            schema.insert(connection, "campaign", {"body": canonical(campaign)})
            schema.insert(connection, "stratum", {"number": 0, "body": canonical(campaign.get("fingerprint", {}))})
            for cell in cells:
                schema.insert(connection, "cell", {"name": cell.id, "body": canonical(cell.to_dict())})
            _append_slots(connection, slots)
        # Closing would write the log into the file too, but without an error when the disk is full.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _make_durable(folder: Path) -> None:
    """Sync the folder, so that the name of a new file survives a power loss."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_store(path: Path, *, readonly: bool = False, clock: Callable[[], float] = time.time) -> "Store":
    """The store at `path`, migrated to the present layout; a file that is not a sound store is refused.

    Read-only leaves the file unchanged: an older layout is migrated in memory.
    """
    connection = open_file(path, readonly=readonly)
    try:
        store = Store(path, connection, clock)
        store.campaign()
    except BaseException:
        connection.close()
        raise
    return store


@dataclass(frozen=True)
class Store:
    """A campaign on disk; one connection, for one thread of one process."""

    path: Path
    connection: sqlite3.Connection
    clock: Callable[[], float] = time.time

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def campaign(self) -> dict[str, Any]:
        """The campaign that `create` was given."""
        rows = self._bodies("campaign")
        if not rows:
            raise Damaged(f"{self.path} holds no campaign; restore it from a copy")
        return rows[0]

    def cells(self) -> dict[str, Cell]:
        """Every cell by its id."""
        return {row["name"]: Cell.from_dict(json.loads(row["body"])) for row in self._rows("cell")}

    def slots(self) -> list[Slot]:
        """The schedule, in the order in which it is run."""
        return sorted((_slot(row) for row in self._rows("schedule")), key=lambda slot: slot.order)

    def add_slots(self, slots: Sequence[Slot]) -> None:
        """Append to the schedule: new slots come after all existing ones."""
        with transaction(self.connection, self.path):
            _append_slots(self.connection, slots)

    def strata(self) -> list[dict[str, Any]]:
        """Fingerprints of the machine states, indexed by stratum."""
        return self._bodies("stratum")

    def add_stratum(self, fingerprint: Mapping[str, Any], slots: Sequence[Slot] = ()) -> int:
        """Number of a new machine state, never pooled with the others; added atomically with its slots."""
        with transaction(self.connection, self.path):
            number = self.connection.execute("SELECT count(*) FROM stratum").fetchone()[0]
            if any(slot.stratum != number for slot in slots):
                raise ValueError(f"the new stratum is {number}, and not all of its slots say so")
            schema.insert(self.connection, "stratum", {"number": number, "body": canonical(fingerprint)})
            _append_slots(self.connection, slots)
        return number

    def canaries(self) -> list[dict[str, Any]]:
        """Times of the canaries, oldest first."""
        return self._bodies("canary")

    def add_canary(self, measured: Mapping[str, Any]) -> None:
        """Store the canary's times around a block."""
        self._append("canary", measured)

    def events(self) -> list[Event]:
        """Events of the campaign, oldest first."""
        return [Event(**fields) for fields in self._bodies("event")]

    def add_event(self, kind: str, detail: Any) -> None:
        """Store an event; `detail` is any JSON value."""
        at = datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds")
        self._append("event", {"at": at, "kind": kind, "detail": detail})

    def lease(self, owner: str, lease_s: float, stratum: int | None = None) -> Lease | None:
        """The next open slot, of one stratum or of any, for this owner alone; None when there is none now.

        A slot whose lease has expired is open: its owner is presumed dead, and fenced off if it is not.
        """
        return next(iter(self.lease_together(owner, lease_s, stratum, lambda slot: slot.id)), None)

    def lease_together(
        self, owner: str, lease_s: float, stratum: int | None, block_of: Callable[[Slot], Hashable]
    ) -> list[Lease]:
        """All open slots of the next block that nobody works on, for this owner alone; none when there are none.

        The slots of a block are neighbours in the schedule. A block of which another owner holds a slot is left alone:
        its slots must be run together.
        """
        with transaction(self.connection, self.path):
            leased = self._leased()
            unclosed = ((key, len(tries)) for key, tries in self._tries(stratum) if not is_closed(tries))
            slots = ((key, n, _slot(schema.row_at(self.connection, "schedule", key))) for key, n in unclosed)
            for _, block in groupby(slots, key=lambda x: block_of(x[2])):
                together = list(block)
                if not any(key in leased for key, *_ in together):
                    return [self._lease(slot, number, owner, lease_s) for _, number, slot in together]
        return []

    def lease_slots(self, owner: str, lease_s: float, slots: Sequence[Slot]) -> list[Lease]:
        """Leases on those of these slots that are open; none if anybody holds one of them: they run together."""
        now, marks = self.clock(), ", ".join("?" * len(slots))
        ids = [slot.id for slot in slots]
        with transaction(self.connection, self.path):
            held = f"SELECT 1 FROM lease WHERE expires_at > ? AND slot IN ({marks})"
            if self.connection.execute(held, (now, *ids)).fetchone():
                return []
            query = f"SELECT slot, outcome, tags FROM attempt WHERE slot IN ({marks}) ORDER BY slot, number"
            tries: dict[str, list[Try]] = {id: [] for id in ids}
            for id, outcome, tags in self.connection.execute(query, ids).fetchall():
                tries[id].append(_tried(outcome, tags))
            unclosed = [slot for slot in slots if not is_closed(tries[slot.id])]
            return [self._lease(slot, len(tries[slot.id]), owner, lease_s) for slot in unclosed]

    def open_slots(self, stratum: int) -> list[Slot]:
        """Slots of a stratum that are not closed, leased or not, in the order of the schedule."""
        with explained(self.path):
            keys = patiently(lambda: [key for key, tries in self._tries(stratum) if not is_closed(tries)], self.path)
        return [_slot(row) for row in self._verified("schedule", keys)]

    def _lease(self, slot: Slot, number: int, owner: str, lease_s: float) -> Lease:
        row = self.connection.execute(
            "REPLACE INTO lease (slot, owner, expires_at) VALUES (?, ?, ?)",
            (slot.id, owner, self.clock() + lease_s),
        )
        assert row.lastrowid is not None
        return Lease(slot, number, row.lastrowid)

    def renew(self, lease: Lease, lease_s: float) -> None:
        """Extend the lease to `lease_s` from now; raises Fenced when the lease is lost."""
        with transaction(self.connection, self.path):
            self._held("UPDATE lease SET expires_at = ? WHERE fence = ?", lease, self.clock() + lease_s)

    def renew_together(self, leases: Sequence[Lease], lease_s: float) -> None:
        """Extend leases in one transaction; those that are lost stay lost."""
        if not leases:
            return
        with transaction(self.connection, self.path):
            for lease in leases:
                with suppress(Fenced):
                    self._held("UPDATE lease SET expires_at = ? WHERE fence = ?", lease, self.clock() + lease_s)

    def release(self, *leases: Lease) -> None:
        """Release slots with nothing stored, at once; no effect on leases that are already lost."""
        with transaction(self.connection, self.path):
            for lease in leases:
                with suppress(Fenced):
                    self._held("DELETE FROM lease WHERE fence = ?", lease)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Release the slots of owners that are gone, without waiting for their leases to expire."""
        with transaction(self.connection, self.path):
            owners = {name for (name,) in self.connection.execute("SELECT DISTINCT owner FROM lease")}
            for name in filter(is_gone, owners):
                self.connection.execute("DELETE FROM lease WHERE owner = ?", (name,))

    def finish(self, lease: Lease, attempt: Attempt) -> None:
        """Store the attempt and release the slot; raises Fenced when the lease is lost."""
        self.finish_together([(lease, attempt)])

    def finish_together(self, finished: Sequence[tuple[Lease, Attempt]], others: Sequence[Lease] = ()) -> None:
        """Store attempts and release their slots and the `others`, all or none; raises Fenced when a lease is lost."""
        for lease, attempt in finished:
            if (attempt.slot, attempt.number) != (lease.slot.id, lease.number):
                raise ValueError(
                    f"the lease is of {lease.slot.id} number {lease.number}, not {attempt.slot} {attempt.number}"
                )
        rows = [packed(attempt) for _, attempt in finished]
        with transaction(self.connection, self.path):
            for (lease, _), row in zip(finished, rows, strict=True):
                self._held("DELETE FROM lease WHERE fence = ?", lease)
                schema.insert(self.connection, "attempt", row)
            for lease in others:
                self._held("DELETE FROM lease WHERE fence = ?", lease)

    def attempts(self, slot: str | None = None) -> Iterator[Attempt]:
        """Finished attempts, of one slot or of all, oldest first; Damaged names the first that cannot be trusted."""
        if slot is None:
            return map(unpacked, self._rows("attempt"))
        query = "SELECT id FROM attempt WHERE slot = ? ORDER BY id"
        with explained(self.path):
            keys = patiently(lambda: [key for (key,) in self.connection.execute(query, (slot,))], self.path)
        return map(unpacked, self._verified("attempt", keys))

    def progress(self, stratum: int | None = None) -> Counts:
        """Progress of the campaign, or of one stratum of it."""
        with explained(self.path):
            leased = patiently(self._leased, self.path)
            slots = patiently(lambda: list(self._tries(stratum)), self.path)
        closed = {key: accepted_attempt(tries) is not None for key, tries in slots if is_closed(tries)}
        running = sum(key in leased and key not in closed for key, _ in slots)
        ok = sum(closed.values())
        return Counts(total=len(slots), ok=ok, failed=len(closed) - ok, running=running)

    def _leased(self) -> set[int]:
        """Ids of rows of the schedule under a live lease."""
        query = "SELECT s.id FROM lease l JOIN schedule s ON s.slot = l.slot WHERE l.expires_at > ?"
        return {row[0] for row in self.connection.execute(query, (self.clock(),))}

    def _tries(self, stratum: int | None) -> Iterator[tuple[int, list[Try]]]:
        """Id of every row of the schedule with the tries at it, in the order of the schedule."""
        query = (
            "SELECT s.id, a.outcome, a.tags FROM schedule s LEFT JOIN attempt a ON a.slot = s.slot "
            "WHERE ?1 IS NULL OR s.stratum = ?1 ORDER BY s.position, a.number"
        )
        rows = self.connection.execute(query, (stratum,)).fetchall()
        for key, group in groupby(rows, key=lambda row: row[0]):
            yield key, [_tried(outcome, tags) for _, outcome, tags in group if outcome is not None]

    def _held(self, statement: str, lease: Lease, *values: Any) -> None:
        """Run a statement on a lease that is still held; raises Fenced if it is lost."""
        if not self.connection.execute(statement, (*values, lease.fence)).rowcount:
            raise Fenced(f"{lease.slot.id}: the lease ran out and another owner took over; this attempt is not stored")

    def _append(self, table: str, body: Mapping[str, Any]) -> None:
        with transaction(self.connection, self.path):
            schema.insert(self.connection, table, {"body": canonical(body)})

    def _bodies(self, table: str) -> list[dict[str, Any]]:
        return [json.loads(row["body"]) for row in self._rows(table)]

    def _rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Every row, verified, in the order they were appended."""
        with explained(self.path):
            keys = patiently(lambda: schema.keys(self.connection, table), self.path)
        return self._verified(table, keys)

    def _verified(self, table: str, keys: Sequence[int]) -> Iterator[dict[str, Any]]:
        # One query per row: no statement stays open while the caller uses the store.
        for key in keys:
            with explained(self.path):
                row = patiently(partial(schema.row_at, self.connection, table, key), self.path)
            yield row


def _append_slots(connection: sqlite3.Connection, slots: Sequence[Slot]) -> None:
    (last,) = connection.execute("SELECT max(position) FROM schedule").fetchone()
    for slot in sorted(slots, key=lambda slot: slot.order):
        if last is not None and slot.order <= last:
            raise ValueError(f"slot {slot.id} at place {slot.order} is not after the last, {last}")
        row = {name: x for name, x in asdict(slot).items() if name != "order"}
        try:
            schema.insert(connection, "schedule", row | {"slot": slot.id, "position": slot.order})
        except sqlite3.IntegrityError as error:
            raise ValueError(f"slot {slot.id} is there already, or its cell or stratum is not: {error}") from error
        last = slot.order


def _slot(row: Mapping[str, Any]) -> Slot:
    return Slot(row["cell"], row["block"], row["seed"], row["position"], row["stratum"])


@lru_cache(maxsize=1024)
def _tried(outcome: str, tags: str) -> Try:
    """The policy's view of an attempt, cached: leasing a slot reads thousands and few are distinct."""
    try:
        tried = Try(outcome, tuple(json.loads(tags)))
    except (ValueError, TypeError):
        raise Damaged(f"tags {tags!r} of an attempt are damaged; restore the store from a copy") from None
    if outcome not in get_args(Outcome):
        raise Damaged(f"outcome {outcome!r} of an attempt is damaged; restore the store from a copy")
    return tried
