"""Virtual environments of the peers: made once, pinned, complete when their marker says so."""

import json
import os
import shutil
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from benchback.measure import machine

INSTALL_TIMEOUT_S = 1200
MARKER = "complete.json"


class Unavailable(Exception):
    """A side that cannot run here; the message is the reason shown in its row."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and what is installed into it."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    """Calls of pip, in order; torch comes first and alone, or pip may choose a build with gigabytes of CUDA."""


def prepare(environment: Environment) -> Path:
    """The environment's Python; installs what is missing. Raises Unavailable with the reason."""
    folder = machine.cache_folder("peers") / environment.name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if is_complete(environment, folder):
        return python
    # Half-made or made for other pins: start anew.
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        for packages in environment.steps:
            _install(python, packages)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"cannot make {folder}: {error}") from error
    (folder / MARKER).write_text(json.dumps(environment.steps))
    return python


def is_complete(environment: Environment, folder: Path) -> bool:
    """Whether the folder holds exactly this environment."""
    marker = folder / MARKER
    return marker.exists() and marker.read_text() == json.dumps(environment.steps)


def _install(python: Path, packages: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    process = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise Unavailable(f"cannot install {' '.join(packages)}: {lines[-1]}")
