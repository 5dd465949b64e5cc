"""The layout of a campaign store: tables, append-only triggers, migrations, and a checksum on every row.

A new store is an empty file with all migrations applied, so the layout is written down once. A migration is
never edited after its release: existing stores were written by it.
"""

import hashlib
import sqlite3
from collections.abc import Mapping
from typing import Any

from benchback.errors import InputError
from benchback.measure.record import canonical

APPLICATION_ID = 0x42424B31
"""SQLite application id of a store, in the file's header: `BBK1`."""


class Damaged(InputError):
    """The data read is not what was written; it is never returned."""


def _guarded(table: str, *keys: str) -> tuple[str, ...]:
    """Triggers that refuse to change, delete or replace a row, for any program that writes to the file."""
    abort = f"SELECT RAISE(ABORT, '{table} is append-only')"
    same = " OR ".join(f"({key}) = ({', '.join(f'NEW.{column}' for column in key.split(', '))})" for key in keys)
    return (
        f"CREATE TRIGGER {table}_keep BEFORE UPDATE ON {table} BEGIN {abort}; END",
        f"CREATE TRIGGER {table}_hold BEFORE DELETE ON {table} BEGIN {abort}; END",
        # INSERT OR REPLACE deletes without firing the trigger above unless recursive triggers are switched on.
        f"CREATE TRIGGER {table}_grow BEFORE INSERT ON {table} "
        f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) BEGIN {abort}; END",
    )


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE campaign (
            id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id = 1),
            body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT""",
        """CREATE TABLE stratum (
            id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL UNIQUE,
            body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT""",
        """CREATE TABLE cell (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
            body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT""",
        """CREATE TABLE schedule (
            id INTEGER PRIMARY KEY AUTOINCREMENT, slot TEXT NOT NULL UNIQUE,
            cell TEXT NOT NULL REFERENCES cell (name), block INTEGER NOT NULL CHECK (block >= 0),
            seed INTEGER NOT NULL, position INTEGER NOT NULL UNIQUE,
            stratum INTEGER NOT NULL REFERENCES stratum (number), checksum TEXT NOT NULL) STRICT""",
        """CREATE TABLE attempt (
            id INTEGER PRIMARY KEY AUTOINCREMENT, slot TEXT NOT NULL REFERENCES schedule (slot),
            number INTEGER NOT NULL CHECK (number >= 0), outcome TEXT NOT NULL, tags TEXT NOT NULL,
            payload BLOB NOT NULL, checksum TEXT NOT NULL, UNIQUE (slot, number)) STRICT""",
        """CREATE TABLE canary (
            id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT""",
        # The only mutable table. AUTOINCREMENT makes the fence grow even when rows are deleted.
        """CREATE TABLE lease (
            fence INTEGER PRIMARY KEY AUTOINCREMENT, slot TEXT NOT NULL UNIQUE REFERENCES schedule (slot),
            owner TEXT NOT NULL, expires_at REAL NOT NULL) STRICT""",
        *_guarded("campaign", "id"),
        *_guarded("stratum", "id", "number"),
        *_guarded("cell", "id", "name"),
        *_guarded("schedule", "id", "slot", "position"),
        *_guarded("attempt", "id", "slot, number"),
        *_guarded("canary", "id"),
    ),
    (
        """CREATE TABLE event (
            id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT""",
        *_guarded("event", "id"),
        # What `lease` reads of an attempt, apart from its payload.
        "CREATE INDEX attempt_tried ON attempt (slot, number, outcome, tags)",
    ),
)
"""Statements that lead from each version of the layout to the next, from the empty file on."""
VERSION = len(MIGRATIONS)
"""Version of the layout this code writes; kept in the header as `user_version`."""

SEALED: Mapping[str, tuple[str, ...]] = {
    "campaign": ("body",),
    "stratum": ("number", "body"),
    "cell": ("name", "body"),
    "schedule": ("slot", "cell", "block", "seed", "position", "stratum"),
    "attempt": ("slot", "number", "outcome", "tags", "payload"),
    "canary": ("body",),
    "event": ("body",),
}
"""Append-only tables and the columns their checksum covers. Ids are counted without a gap, so a lost row shows."""


def version_of(connection: sqlite3.Connection) -> int:
    """Version of the layout in the file."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def migrate(connection: sqlite3.Connection, target: int = VERSION) -> None:
    """Bring the layout to version `target`; for use inside a transaction, which makes it all or nothing."""
    found = version_of(connection)
    if found >= target:
        return
    for statements in MIGRATIONS[found:target]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {target}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def checksum(table: str, row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's values and its table's name."""
    payload = row.get("payload", b"")
    words = canonical([table, *(row[name] for name in SEALED[table] if name != "payload")])
    return hashlib.sha256(words.encode() + b"\0" + payload).hexdigest()


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Append a row with its checksum."""
    columns = SEALED[table]
    places = ", ".join("?" * (len(columns) + 1))
    values = [*(row[name] for name in columns), checksum(table, row)]
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}, checksum) VALUES ({places})", values)


def layout(connection: sqlite3.Connection) -> list[tuple[str | None, ...]]:
    """Type, name, table and SQL of every table, index and trigger of the file."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def check_layout(connection: sqlite3.Connection) -> None:
    """Raise Damaged unless the file has exactly the present layout, its triggers included."""
    model = sqlite3.connect(":memory:")
    try:
        migrate(model)
        if layout(connection) != layout(model):
            raise Damaged("its tables or triggers have been changed; restore the store from a copy")
    finally:
        model.close()


def findings(connection: sqlite3.Connection, most: int = 10) -> list[str]:
    """What SQLite's integrity check finds in pages, indexes and constraints, a line each; empty if all is sound."""
    found = connection.execute(f"PRAGMA integrity_check({most})").fetchall()
    return [" ".join(text.split()) for (text,) in found if text != "ok"]


def keys(connection: sqlite3.Connection, table: str) -> list[int]:
    """Ids of all rows, in the order they were appended; Damaged if one is missing."""
    appended = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?), 0)"
    # One statement reads one snapshot: a row appended meanwhile by another program is in both results or in neither.
    # Counted in the table itself: an index may be damaged where the table is not.
    query = f"SELECT 0, {appended} UNION ALL SELECT 1, id FROM {table} NOT INDEXED ORDER BY 1, 2"
    (_, count), *rows = connection.execute(query, (table,)).fetchall()
    found = [key for _, key in rows]
    if found != list(range(1, count + 1)):
        raise Damaged(f"{table}: {count} rows were appended, {len(found)} are there; restore the store from a copy")
    return found


def row_at(connection: sqlite3.Connection, table: str, key: int) -> dict[str, Any]:
    """The row with that id, verified."""
    columns = (*SEALED[table], "checksum")
    found = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE id = ?", (key,)).fetchone()
    if found is None:
        raise Damaged(f"{table} {key} cannot be found again; restore the store from a copy")
    row = dict(zip(columns, found, strict=True))
    if not _plausible(row) or checksum(table, row) != row["checksum"]:
        name = f" ({row['slot']}, number {row['number']})" if table == "attempt" else ""
        raise Damaged(f"{table} {key}{name} is damaged: its checksum does not match; restore the store from a copy")
    return row


def _plausible(row: Mapping[str, Any]) -> bool:
    """Whether every value has a type its checksum can be computed from."""
    return all(isinstance(x, bytes if name == "payload" else str | int) for name, x in row.items())
