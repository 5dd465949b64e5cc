"""A runner of a relay without any framework: it answers with known durations, and misbehaves on demand.

`python relay_double.py FOLDER FD`: reads requests as a runner does. FOLDER/faults.json says who misbehaves when; every
start and turn is noted in FOLDER/log with the time at which it began and ended.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import benchback
from benchback.measure.record import Cell, Record
from benchback.measure.wire import write_frame
from benchback.measure.worker import CACHES, Job, cached_files, die_with

CALL_S = 0.01
"""What every runner says that a call takes: relays of equal cells then have equal rounds."""
COMMAND = (sys.executable, __file__)


@dataclass(frozen=True)
class Fault:
    """Who misbehaves, when, how, and how often."""

    backend: str
    do: str
    at: str = "turn"
    round: int = 2
    times: int = 1


def give(folder: Path, *faults: Fault) -> tuple[str, ...]:
    """The command that starts runners with these faults."""
    folder.mkdir(exist_ok=True)
    (folder / "faults.json").write_text(json.dumps([asdict(fault) for fault in faults]))
    return *COMMAND, str(folder)


def log(folder: Path) -> list[dict[str, Any]]:
    """What the runners have noted so far, in the order in which it ended."""
    file = folder / "log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def seconds_of(cell: Cell, seed: int) -> float:
    """Seconds of a call of this cell in the relay of this seed."""
    slower = {"linen": 1.0, "nnx": 1.02, "equinox": 1.05}[cell.run["backend"]]
    return CALL_S * slower * random.Random(f"{cell.id} {seed}").lognormvariate(0, 0.002)


class Double:
    """A runner that computes nothing."""

    def __init__(self, folder: Path, stream: FileIO, job: Job, iterations: int) -> None:
        self.folder, self.stream, self.job = folder, stream, job
        self.name = job.cell.run["backend"] + ("'" if job.cell.twin else "")
        self.call_s = seconds_of(job.cell, job.seed)
        self.caches_before, self.caches = cached_files(), os.environ[CACHES[0]]
        Path(self.caches).mkdir(parents=True, exist_ok=True)
        (Path(self.caches) / "program").write_text(self.name)
        self.samples: dict[str, list[float | None]] = {"total_s": [], "round": [], "position": []}
        self.call(iterations, 0, 0)

    def call(self, calls: int, number: int, position: int) -> float:
        """As many calls, the first of which takes ten times as long."""
        took = [10 * self.call_s, *[self.call_s] * (calls - 1)]
        for name, values in (("total_s", took), ("round", [number] * calls), ("position", [position] * calls)):
            self.samples[name] += [float(x) for x in values]
        return sum(took)

    def note(self, what: str, began_s: float, **more: Any) -> None:
        """Append to the log, whole."""
        line = {"name": self.name, "what": what, "from": began_s, "to": time.monotonic(), "pid": os.getpid()} | more
        line["benchback"] = benchback.__file__
        handle = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, json.dumps(line | {"seed": self.job.seed, "caches": self.caches}).encode() + b"\n")
        os.close(handle)

    def record(self) -> Record:
        marks = {"started": 0.1, "first_call": 1.0, "finished": 2.0}
        ledger = {"iterations_per_call": 1, "calls": 6, "cached_files_before": self.caches_before}
        return Record(self.samples, marks, ledger | {"seed": self.job.seed}, {"peak_rss_bytes": 1e8})

    def misbehave(self, request: dict[str, Any]) -> None:
        """Do what is to be done wrong at this request, if it has not been done often enough."""
        for fault in json.loads((self.folder / "faults.json").read_text()):
            now = request.get("round", fault["round"]) == fault["round"]
            if (fault["backend"], fault["at"]) == (self.name, request["do"]) and now and self.has_left(fault["times"]):
                FAULTS[fault["do"]](self.stream, request["number"])

    def has_left(self, times: int) -> bool:
        for number in range(times):
            try:
                (self.folder / f"{self.name}.{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False


def signalled(stream: FileIO, number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exited(stream: FileIO, number: int) -> None:
    print("the reason why")
    sys.exit(3)


def left(stream: FileIO, number: int) -> None:
    sys.exit(0)


def starved(stream: FileIO, number: int) -> None:
    print("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")
    sys.exit(1)


def hanging(stream: FileIO, number: int) -> None:
    """For ever, even if asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def waiting(stream: FileIO, number: int) -> None:
    """For ever, unless asked to end."""
    signal.pause()


def garbage(stream: FileIO, number: int) -> None:
    stream.write(random.Random(0).randbytes(100))
    signal.pause()


def twice(stream: FileIO, number: int) -> None:
    write_frame(stream, {"kind": "answer", "number": number, "seconds": 1.0})
    write_frame(stream, {"kind": "answer", "number": number, "seconds": 1.0})
    signal.pause()


def again(stream: FileIO, number: int) -> None:
    """Answers once more when the next request has come."""
    write_frame(stream, {"kind": "answer", "number": number, "seconds": 1.0})
    sys.stdin.readline()
    write_frame(stream, {"kind": "answer", "number": number, "seconds": 1.0})
    signal.pause()


def empty(stream: FileIO, number: int) -> None:
    """A message that answers nothing."""
    write_frame(stream, {"kind": "answer", "number": number})
    signal.pause()


FAULTS: dict[str, Any] = {
    f.__name__: f for f in (signalled, exited, left, starved, hanging, waiting, garbage, twice, again, empty)
}


def main() -> None:
    folder, double = Path(sys.argv[1]), None
    with os.fdopen(int(sys.argv[2]), "wb", buffering=0) as stream:
        for line in sys.stdin:
            request, began_s = json.loads(line), time.monotonic()
            numbered = {"kind": "answer", "number": request["number"]}
            if request["do"] == "start":
                job = Job.from_dict(request["job"])
                die_with(job.coordinator)
                double = Double(folder, stream, job, request["iterations"])
                double.misbehave(request)
                double.note("start", job.launched_s, writes=request["writes"])
                write_frame(stream, numbered | {"call_s": CALL_S, "bytes": 1e8})
                continue
            assert double is not None
            double.misbehave(request)
            if request["do"] == "turn":
                seconds = double.call(request["calls"], request["round"], request["position"])
                double.note("turn", began_s, round=request["round"], position=request["position"])
                write_frame(stream, numbered | {"seconds": seconds})
            else:
                double.note("finish", began_s)
                write_frame(stream, numbered | {"kind": "record", "record": asdict(double.record())})


if __name__ == "__main__":
    main()
