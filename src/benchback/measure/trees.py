"""Two versions of the package side by side: the working tree and a commit, each with workers of its own."""

import compileall
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import benchback
from benchback.errors import InputError

PACKAGE = Path(benchback.__file__).parent


@dataclass(frozen=True)
class Trees:
    """Folders that contain the package as it is now and as it was."""

    now: Path
    before: Path
    commit: str
    """The short hash and the subject of the commit."""


@contextmanager
def trees(commit: str = "", package: Path = PACKAGE) -> Iterator[Trees]:
    """Copies of the package and of its version in a commit, which stay as they are while they are measured.

    By default the commit is the last one, or the one before it if nothing has changed since.
    """
    commit = commit or ("HEAD" if git(package, "status", "--porcelain", "--", ".") else "HEAD~1")
    about = git(package, "log", "-1", "--format=%h %s", commit, "--").decode().strip()
    with tempfile.TemporaryDirectory(prefix="benchback-trees-") as folder:
        now, before = Path(folder) / "now", Path(folder) / "before"
        shutil.copytree(package, now / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        with tarfile.open(fileobj=io.BytesIO(git(package, "archive", commit))) as archive:
            archive.extractall(before / package.name, filter="data")
        for tree in (now, before):
            # Workers write no byte code: every start would compile every module.
            compileall.compile_dir(tree, quiet=2)
        yield Trees(now, before, about)


def worker_command(tree: Path, module: str = "benchback.measure.relay_worker") -> tuple[str, ...]:
    """The command that starts a worker of the package in this folder."""
    code = f"import runpy, sys; sys.path.insert(0, {str(tree)!r}); runpy.run_module({module!r}, run_name='__main__')"
    return sys.executable, "-c", code


def git(package: Path, *arguments: str) -> bytes:
    """What git answers in the package's folder; an InputError if it cannot."""
    try:
        return subprocess.run(["git", *arguments], cwd=package, check=True, capture_output=True).stdout
    except FileNotFoundError:
        raise InputError("git is needed to get an earlier version, and not installed here") from None
    except subprocess.CalledProcessError as error:
        why = (error.stderr.decode(errors="replace").strip().splitlines() or ["git failed"])[0]
        raise InputError(f"git {' '.join(arguments)[:80]}: {why}; run this in a clone, with a commit it has") from None
