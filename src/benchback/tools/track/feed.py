"""Feeds one finished run to trackers, in a process of its own, so that nothing they start lasts into the next run.

`python -m benchback.tools.track.feed` takes a JSON object on its standard input and prints a line of JSON for each
tracker.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from benchback.errors import InputError, install
from benchback.tools.track.run import Tracked

Tracker = Literal["csv", "tensorboard", "wandb"]
EXTRAS = ("tensorboard", "wandb", "mlflow")
"""Trackers that need the optional package of the same name."""


def check_installed(tracker: str) -> None:
    """Refuse a tracker whose package is missing, and name its extra."""
    if tracker in EXTRAS and find_spec(tracker) is None:
        raise InputError(f"--track {tracker} needs a package that is not installed: {install(tracker)}")


def write(tracker: str, run: Tracked, folder: Path, online: bool = False) -> Path:
    """Write the run's folder of that tracker, atomically."""
    place = folder / tracker / run.name
    draft = place.with_name(f".{run.name}.{os.getpid()}.new")
    draft.mkdir(parents=True)
    try:
        import_module(f"benchback.tools.track.{tracker}").write(run, draft, online)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


def request(trackers: list[str], run: Tracked, folder: Path, online: bool) -> str:
    """The request that `main` reads, as JSON."""
    return json.dumps({"trackers": trackers, "run": asdict(run), "folder": str(folder), "online": online})


def main() -> None:
    """Write what is requested; a tracker that fails is reported in a line and does not stop the others."""
    # The output of trackers must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    asked: Mapping[str, Any] = json.loads(sys.stdin.read())
    run = Tracked(**asked["run"])
    for tracker in asked["trackers"]:
        try:
            write(tracker, run, Path(asked["folder"]), asked["online"])
            fault = ""
        except Exception as error:
            fault = one_line(error)
        print(json.dumps([tracker, fault]), file=answers, flush=True)


def one_line(error: BaseException) -> str:
    """An exception in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    main()
