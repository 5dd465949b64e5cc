"""What commands keep for later ones: proofs, virtual environments of peers, compiled programs, parts of the page."""

import os
from contextlib import suppress
from pathlib import Path

from benchback.training.checkpoint import write_atomically


def cache_folder(name: str) -> Path:
    """Path of `name` in the cache between commands: $BENCHBACK_CACHE, else ~/.cache/benchback."""
    return Path(os.environ.get("BENCHBACK_CACHE") or Path.home() / ".cache" / "benchback") / name


def keep(path: Path, text: str) -> None:
    """Write a file of the cache atomically; if the folder is not writable, nothing is cached and no error is raised."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
