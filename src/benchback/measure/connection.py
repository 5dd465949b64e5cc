"""Opens a store's file safely, and translates SQLite's errors into ones a user can act on.

Guarantees: local disk only, WAL with `synchronous=FULL`, waits instead of "database is locked", and no error of
SQLite itself reaches a caller where the user can do something about it.
"""

import errno
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchback.errors import InputError
from benchback.measure.schema import APPLICATION_ID, VERSION, Damaged, check_layout, findings, migrate, version_of

HEADER = b"SQLite format 3\0"
BUSY_S = 5.0
"""How long SQLite itself waits for another program to finish writing."""
PATIENCE_S = 120.0
"""How long to retry after that."""
NEARLY_FULL_BYTES = 1 << 20
"""Bytes of free space below which a failed write is blamed on a full disk."""
# fmt: off
NETWORK = frozenset({
    "9p", "afs", "beegfs", "blobfuse", "blobfuse2", "ceph", "cephfs", "cifs", "coda", "curlftpfs", "davfs",
    "davfs2", "gcsfuse", "gfs", "gfs2", "glusterfs", "goofys", "gpfs", "juicefs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "pvfs2", "rclone", "s3fs", "smb2", "smb3", "smbfs", "sshfs", "vboxsf",
    "virtiofs",
})
# fmt: on
"""File systems on which SQLite cannot rely on locks and shared memory, by themselves or below FUSE."""

Result = TypeVar("Result")


def file_system(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`, from a table such as /proc/mounts; empty when it is not there."""
    target, found, longest = path.resolve(), "", -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1]))
        # A later mount on the same point hides the earlier one.
        if target.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = fields[2], len(point.parts)
    return found


def check_local(path: Path, mounts: str | None = None) -> None:
    """Refuse a path on a network file system; where there is no table of mounts, nothing is known and all pass."""
    if mounts is None:
        if not sys.platform.startswith("linux"):
            return
        with suppress(OSError):
            mounts = Path("/proc/mounts").read_text(errors="surrogateescape")
    kind = file_system(path, mounts or "")
    if kind.removeprefix("fuse.") in NETWORK:
        raise InputError(f"{path} is on a network file system ({kind}), where a store can be lost; use a local disk")


def translated(error: sqlite3.Error, path: Path) -> Exception:
    """The error in words: OSError for the disk, Damaged for the file, and unchanged when the fault is ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _nearly_full(path)):
        return OSError(
            errno.ENOSPC, "the disk is full; free some space and run again, stored results are intact", str(path)
        )
    if code == sqlite3.SQLITE_READONLY:
        return OSError(errno.EROFS, "the store cannot be written; make the file and its folder writable", str(path))
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return OSError(errno.EACCES, "the store cannot be opened; make the file and its folder accessible", str(path))
    if code == sqlite3.SQLITE_IOERR:
        return OSError(errno.EIO, f"the disk failed ({error}); stored results are intact up to here", str(path))
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in str(error):
        return Damaged(f"{path} is damaged ({error}); restore it from a copy")
    return error


def _nearly_full(path: Path) -> bool:
    with suppress(OSError):
        space = os.statvfs(path.parent)
        return space.f_bavail * space.f_frsize < NEARLY_FULL_BYTES
    return False


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Context in which SQLite's errors are translated into errors a user can act on."""
    try:
        yield
    except sqlite3.Error as error:
        better = translated(error, path)
        if better is error:
            raise
        raise better from error
    except UnicodeDecodeError as error:
        # Raised by SQLite for an error message that quotes damaged text.
        raise Damaged(f"{path} is damaged ({error.reason}); restore it from a copy") from error


def patiently(action: Callable[[], Result], path: Path, patience_s: float = PATIENCE_S) -> Result:
    """The result of `action`, retried while another program has the store locked."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                message = f"another program has kept the store busy for {patience_s:.0f} s; stop it and run again"
                raise OSError(errno.EBUSY, message, str(path)) from error
            time.sleep(0.01)


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Context whose writes are all stored, durably, or none of them."""
    with explained(path):
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"), path)
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that never commits by itself; `mode` is that of SQLite's file addresses."""
    address = f"{path.resolve().as_uri()}?{mode}"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    try:
        for setting in ("synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF", "recursive_triggers = ON"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(path: Path, *, readonly: bool, checked: bool = True) -> sqlite3.Connection:
    """A connection to an existing store with the present layout, or an error that says why there is none.

    `checked`: refuse a file in which SQLite's integrity check finds anything. Which slots are open is read from
    indexes, which carry no checksum: with a damaged one, runs would be repeated, skipped or refused when stored.
    """
    check_local(path)
    _check_header(path)
    with explained(path):
        connection = patiently(lambda: _readable(path) if readonly else connect(path, "mode=rw"), path)
        try:
            connection = _current(connection, path, readonly=readonly)
            found = patiently(partial(findings, connection), path) if checked else []
            if found:
                raise Damaged(f"{path} is damaged ({found[0]}); `benchback verify {path}` tells what can be done")
        except BaseException:
            connection.close()
            raise
    return connection


def _check_header(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is not a file; give a store that `benchback run` wrote")
    with path.open("rb") as file:
        start = file.read(len(HEADER) + 2)
    if not start.startswith(HEADER):
        raise InputError(f"{path} is not a campaign store (not an SQLite file); give one that `benchback run` wrote")
    page_bytes = int.from_bytes(start[len(HEADER) :], "big")
    # SQLite itself reads the missing part of a last page as zeros. A log beside the file may hold that page.
    if not page_bytes or (path.stat().st_size % page_bytes and not Path(f"{path}-wal").exists()):
        raise Damaged(f"{path} is damaged (it ends inside a page); restore it from a copy")


def _readable(path: Path) -> sqlite3.Connection:
    """A read-only connection, also where the folder cannot be written."""
    try:
        connection = connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        locked_folder = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not locked_folder or Path(f"{path}-wal").exists():
            raise
        # Without a write-ahead log the file is complete, and needs no shared memory file beside it.
        connection = connect(path, "immutable=1")
    return connection


def _current(connection: sqlite3.Connection, path: Path, *, readonly: bool) -> sqlite3.Connection:
    """The connection, after checking that the file is a store of ours with the present layout."""
    if patiently(lambda: connection.execute("PRAGMA application_id").fetchone()[0], path) != APPLICATION_ID:
        raise InputError(f"{path} is an SQLite file but no campaign store; give one that `benchback run` wrote")
    found = version_of(connection)
    if found > VERSION:
        raise InputError(f"{path} has layout {found} of a newer benchback, this one knows {VERSION}; upgrade benchback")
    if found < VERSION and readonly:
        connection = _copied(connection)
    if found < VERSION:
        with transaction(connection, path):
            migrate(connection)
    check_layout(connection)
    if readonly:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _copied(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The same content in memory: an old layout is brought up to date there, and the file stays as it was."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    connection.backup(memory)
    connection.close()
    return memory
