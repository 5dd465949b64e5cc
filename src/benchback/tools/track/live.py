"""Feeds trackers while an agent trains, from a process of its own: what they start, print or wait for stays there.

`python -m benchback.tools.track.live` takes lines of JSON on its standard input, first what to feed, then rows; at the
end of its input it prints a line of JSON for each tracker. Training never waits for it.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from benchback.measure.process import end_group
from benchback.tools.track import feed, feeder, mlflow, wandb
from benchback.tools.track.run import Sink, Tracked
from benchback.training.run import Run
from benchback.training.run_dir import RunDir

COMMAND = (sys.executable, "-m", "benchback.tools.track.live")
STUDY = "benchback"
"""Name of the project or experiment in which trackers put trainings."""
SHARED = {"mlflow": "mlruns"}
"""Trackers that keep all runs in one place, and its name beside the run folders."""


@dataclass
class Tracking:
    """The trackers of one training; a tracker that fails gives a warning and never stops it."""

    run: Run
    trackers: Sequence[str]
    online: bool
    warn: Callable[[str], None]
    process: subprocess.Popen | None = None
    lines: SimpleQueue[str | None] | None = None
    """Lines that the process has not taken yet; None ends them."""
    pump: Thread | None = None
    seconds: float = 0.0

    def begin(self, place: RunDir) -> None:
        """Start the process that feeds the trackers."""
        if not self.trackers:
            return
        tracked = Tracked(place.path.name, STUDY, self.run.to_dict(), [], {})
        folders = {name: str(folder_of(name, place.path)) for name in self.trackers}
        variables = wandb.variables(os.environ, feeder.DOTENV, self.online) | mlflow.VARIABLES
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(COMMAND, env=variables, start_new_session=True, text=True, **pipes)
        self.lines = SimpleQueue()
        self.lines.put(json.dumps({"run": asdict(tracked), "folders": folders, "online": self.online}))
        self.pump = Thread(target=_pump, args=(self.process, self.lines), daemon=True)
        self.pump.start()

    def log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give rows to the trackers; missing values are left out."""
        self.seconds = rows[-1]["seconds"]
        if self.lines is not None:
            self.lines.put(json.dumps([{n: x for n, x in row.items() if not math.isnan(x)} for row in rows]))

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """Give an evaluation to the trackers, as `evaluation/return_mean` and so on."""
        index = {"iteration": row["iteration"], "env_steps": row["env_steps"], "seconds": self.seconds}
        self.log([index | {f"evaluation/{name}": x for name, x in row.items() if name not in index}])

    def close(self) -> None:
        """Wait until the trackers have all rows, and warn about those that failed."""
        if self.process is None or self.lines is None or self.pump is None:
            return
        self.lines.put(None)
        answers: dict[str, str] = {}
        try:
            self.process.wait(feeder.FEED_S)
            assert self.process.stdout is not None
            answers = dict(json.loads(line) for line in self.process.stdout.read().splitlines())
        except (subprocess.TimeoutExpired, ValueError) as error:
            answers = dict.fromkeys(self.trackers, feed.one_line(error))
        finally:
            end_group(self.process)
            self.pump.join()  # its pipe is broken now, if it was still writing
            _close(self.process)
        for tracker in self.trackers:
            if fault := answers.get(tracker, "it ended without an answer"):
                self.warn(f"{tracker} did not take all of it ({fault}); the run itself is stored")


@contextmanager
def tracking(run: Run, trackers: Sequence[str], online: bool, warn: Callable[[str], None]) -> Iterator[Tracking]:
    """The trackers of a training, fed from `begin` on; refuses those that cannot work, before anything runs."""
    chosen = tuple(dict.fromkeys(trackers))
    feeder.check(chosen, online)
    found = Tracking(run, chosen, online, warn)
    try:
        yield found
    finally:
        found.close()


def folder_of(tracker: str, run_folder: Path) -> Path:
    """Where a tracker writes: into the run folder, or beside it where it keeps all runs in one place."""
    return run_folder.parent / SHARED[tracker] if tracker in SHARED else run_folder / "track" / tracker


def _pump(process: subprocess.Popen, lines: SimpleQueue[str | None]) -> None:
    """Write lines to the process as it takes them; a process that ended is noticed when its answer is missing."""
    assert process.stdin is not None
    try:
        while (line := lines.get()) is not None:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        process.stdin.close()
    except OSError:
        return


def _close(process: subprocess.Popen) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not written is lost with the process
                pipe.close()


def main() -> None:
    """Feed what comes; a tracker that fails is reported in a line and does not stop the others."""
    # The output of trackers must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    asked = json.loads(sys.stdin.readline())
    run, faults = Tracked(**asked["run"]), dict.fromkeys(asked["folders"], "")
    opened = {tracker: ExitStack() for tracker in faults}
    sinks: dict[str, Sink] = {}

    def guarded(tracker: str, action: Callable[[], Any]) -> None:
        if not faults[tracker]:
            try:
                action()
            except Exception as error:
                faults[tracker] = feed.one_line(error)

    def start(tracker: str, stack: ExitStack) -> None:
        folder = Path(asked["folders"][tracker])
        folder.mkdir(parents=True, exist_ok=True)
        module = import_module(f"benchback.tools.track.{tracker}")
        sinks[tracker] = stack.enter_context(module.writing(run, folder, asked["online"]))

    for tracker, stack in opened.items():
        guarded(tracker, lambda tracker=tracker, stack=stack: start(tracker, stack))
    for line in sys.stdin:
        rows = json.loads(line)
        for tracker in sinks:
            guarded(tracker, lambda tracker=tracker, rows=rows: sinks[tracker].log(rows))
    for tracker, stack in opened.items():
        guarded(tracker, stack.close)
        print(json.dumps([tracker, faults[tracker]]), file=answers, flush=True)


if __name__ == "__main__":
    main()
