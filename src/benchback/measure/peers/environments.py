"""Virtual environments of the peers: created once, with pinned versions; a marker file shows completeness."""

import json
import os
import shutil
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from benchback.measure import caches
from benchback.measure.process import Tick, supervise
from benchback.training.checkpoint import write_atomically

INSTALL_TIMEOUT_S = 1200.0
MARKER = "complete.json"


class Unavailable(Exception):
    """A side that cannot run here; the message is the reason shown in its row."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and what is installed into it."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    """Calls of pip, in order; torch comes first and alone, or pip may choose a build with gigabytes of CUDA."""


def prepare(environment: Environment, tick: Tick) -> Path:
    """The environment's Python; installs what is missing. Raises Unavailable with the reason."""
    folder = caches.cache_folder("peers") / environment.name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if is_complete(environment, folder):
        return python
    # Incomplete, or made for other pins: start over.
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        for packages in environment.steps:
            install(python, packages, tick)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"cannot make {folder}: {error}") from error
    write_atomically(folder / MARKER, json.dumps(environment.steps))
    return python


def is_complete(environment: Environment, folder: Path) -> bool:
    """Whether the folder holds exactly this environment."""
    marker = folder / MARKER
    return marker.exists() and marker.read_text() == json.dumps(environment.steps)


PIP = "import runpy, sys; sys.argv.pop(); runpy.run_module('pip', run_name='__main__', alter_sys=True)"
"""Runs pip as an isolated process, whose last argument is a pipe's number, which pip must not see."""


def install(python: Path, packages: tuple[str, ...], tick: Tick) -> None:
    """Install the packages with pip, or raise Unavailable with its reason."""
    command = [str(python), "-c", PIP, "install", "--quiet", "--disable-pip-version-check", *packages]
    ended = supervise(command, dict(os.environ), "", INSTALL_TIMEOUT_S, tick)
    if ended.outcome != "ok":
        lines = [line for line in ended.log.splitlines() if line.startswith("ERROR")] or [ended.detail]
        raise Unavailable(f"cannot install {' '.join(packages)}: {lines[-1]}")
