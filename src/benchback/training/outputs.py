"""What a command writes: checked before the work, and in place whole or not at all.

A folder that a command makes holds a list of its files. A folder without one, or with a file that is not on it, was
made or changed by somebody else and is left alone.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchback.errors import InputError

LIST = ".benchback.json"
"""Name of the list of files in a folder that a command made."""
LONGEST_NAME = 200
"""Bytes of a name; file systems take 255, and drafts have longer names than what they become."""


def check_writable(out: Path, option: str = "--out") -> None:
    """Raise an InputError unless a new file or folder can be created at `out`; leaves nothing behind."""
    if not str(out).strip() or "\0" in str(out):
        raise InputError(f"{option} {str(out)!r} is not a path; give one, e.g. {option} out")
    folder = next(x for x in out.resolve().parents if os.path.lexists(x))
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; choose another {option}")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in out.parts):
        raise InputError(f"{option} {str(out)[:60]}... is too long for a name; choose a shorter one")
    trial = folder / f".benchback-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); choose another {option}") from None


def check_replaceable(out: Path, maker: str) -> None:
    """Raise an InputError unless `out` is new, empty, or a folder that `maker` wrote and nobody added to."""
    check_writable(out)
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise InputError(f"{out} is not a folder; choose another place with --out")
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir() or path.is_symlink()}
    if strange := sorted(found - _listed(out, maker)):
        raise InputError(
            f"{out} holds {strange[-1]}, which {maker} did not write; choose another --out, or move what is there away"
        )


def _listed(out: Path, maker: str) -> set[str]:
    """Files that `maker` wrote into the folder, the list included; none if it is somebody else's."""
    try:
        made = json.loads((out / LIST).read_text(encoding="utf-8"))
        return {LIST, *made["files"]} if made["made_by"] == maker else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


@contextmanager
def replacing_folder(out: Path, maker: str) -> Iterator[Path]:
    """Context with a new folder that takes the place of `out` on success and is deleted on error.

    Refuses an `out` that `maker` did not write, see `check_replaceable`.
    """
    check_replaceable(out, maker)
    target = out.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        yield draft
        files = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
        (draft / LIST).write_text(json.dumps({"made_by": maker, "files": files}, indent=1) + "\n")
        _exchange(draft, target)
    except OSError as error:
        if error.filename and not str(error.filename).startswith(str(draft)):
            raise
        raise _explained(error, out) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _exchange(draft: Path, target: Path) -> None:
    """Put the draft in the target's place; the old folder is kept until the new one is there."""
    if not target.is_dir() or not any(target.iterdir()):
        draft.replace(target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _explained(error: OSError, out: Path) -> OSError:
    """The error with the path that the user gave, and what to do about a full disk."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "the disk is full; free some space, or choose another --out"
    return OSError(error.errno or errno.EIO, reason, str(out))


@contextmanager
def explained(out: Path) -> Iterator[None]:
    """Context in which an error of the file system names `out`, and a full disk its remedy."""
    try:
        yield
    except OSError as error:
        raise _explained(error, out) from error
