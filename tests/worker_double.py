"""A worker that does what it is told to do wrong: a real process, with next to nothing in it.

`python worker_double.py FAULT[:ARGUMENT] FD`: reads its job as a worker does, and speaks on FD as one does, or not.
"""

import ctypes
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from io import FileIO
from typing import Any

from benchback.measure.record import Record
from benchback.measure.wire import write_frame
from benchback.measure.worker import Job, die_with


def record(seconds: float = 0.01, calls: int = 12, **ledger: Any) -> Record:
    """What a run of steady iterations measures."""
    durations: list[float | None] = [10 * seconds, *[seconds] * (calls - 1)]
    marks = {"started": 0.1, "first_call": 1.0, "finished": 1.0 + seconds * calls}
    return Record({"total_s": durations}, marks, {"iterations_per_call": 1} | ledger, {"peak_rss_bytes": 1e8})


def message() -> dict[str, Any]:
    return {"kind": "record", "record": asdict(record())}


def ok(stream: FileIO, argument: str) -> None:
    Job.from_dict(json.loads(sys.stdin.read()))
    write_frame(stream, message())


def fail(stream: FileIO, argument: str) -> None:
    print("the reason why")
    sys.exit(3)


def segfault(stream: FileIO, argument: str) -> None:
    ctypes.string_at(0)


def abort(stream: FileIO, argument: str) -> None:
    os.abort()


def own_signal(stream: FileIO, argument: str) -> None:
    os.kill(os.getpid(), int(argument))


def memory(stream: FileIO, argument: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    _ = bytearray(1 << 40)


def starved_below(stream: FileIO, argument: str) -> None:
    """As a C++ library says it, and as JAX does: with a note after the message."""
    print("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\n--------------------")
    print("For simplicity, JAX has removed its internal frames from the traceback of the following exception.")
    sys.exit(1)


def hang(stream: FileIO, argument: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready(argument)
    while True:
        signal.pause()


def polite(stream: FileIO, argument: str) -> None:
    """Hangs until it is asked to end."""
    ready(argument)
    signal.pause()


def orphan(stream: FileIO, argument: str) -> None:
    die_with(Job.from_dict(json.loads(sys.stdin.read())).coordinator)
    ready(argument)
    signal.pause()


def parent(stream: FileIO, argument: str) -> None:
    """Waits for ever, as does a child of its own that ignores being asked to end."""
    if not os.fork():
        hang(stream, argument)
    os.wait()


def ready(path: str) -> None:
    """Say who is here, completely or not at all."""
    if path:
        with open(f"{path}.{os.getpid()}", "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, path)


LINGER = "import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
FLOOD = "while True: print('x' * 4000, flush=True)"


def children(stream: FileIO, argument: str) -> None:
    """Leaves processes behind that hold its pipes: in its group, in one of their own, a flood, and a grandchild."""
    kept = (stream.fileno(),)
    grandchild = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {LINGER!r}]).pid, flush=True)"
    left = [
        subprocess.Popen([sys.executable, "-c", LINGER], pass_fds=kept),
        subprocess.Popen([sys.executable, "-c", LINGER], start_new_session=True, pass_fds=kept),
    ]
    middle = subprocess.Popen([sys.executable, "-c", grandchild], start_new_session=True, stdout=subprocess.PIPE)
    assert middle.stdout is not None
    pids = [*(process.pid for process in left), int(middle.stdout.readline())]
    if argument == "flood":
        pids.append(subprocess.Popen([sys.executable, "-c", FLOOD], start_new_session=True).pid)
    with open(os.environ["PIDS"], "w") as file:
        file.write(" ".join(map(str, pids)))
    ok(stream, "")
    os._exit(0)


def output(stream: FileIO, argument: str) -> None:
    megabyte = (b"x" * 63 + b"\n") * (1 << 14)
    for _ in range(int(argument)):
        sys.stdout.buffer.write(megabyte)
    sys.stdout.flush()
    os.write(2, b"the end")
    ok(stream, "")


def bytes_only(stream: FileIO, argument: str) -> None:
    """Output that is no text."""
    os.write(1, b"\xff" * (1 << 18))
    ok(stream, "")


def garble(stream: FileIO, argument: str) -> None:
    """Nonsense, and then nothing more: nobody should wait for it."""
    stream.write(random.Random(int(argument)).randbytes(1000))
    time.sleep(600)


def two(stream: FileIO, argument: str) -> None:
    for _ in range(int(argument)):
        write_frame(stream, message())


def nothing(stream: FileIO, argument: str) -> None:
    sys.stdin.read()


def half(stream: FileIO, argument: str) -> None:
    """The beginning of a frame, and then the end that the argument says."""
    ends, parts = os.pipe()
    with os.fdopen(parts, "wb", buffering=0) as sink:
        write_frame(sink, message())
    whole = os.read(ends, 1 << 16)
    stream.write(whole[: len(whole) // 2])
    if argument == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def incomplete(stream: FileIO, argument: str) -> None:
    """Well framed, but no record."""
    write_frame(stream, {"kind": "record", "record": json.loads(argument)})


def deaf(stream: FileIO, argument: str) -> None:
    os.close(0)
    write_frame(stream, message())


def shot(stream: FileIO, argument: str) -> None:
    """Sends its record bit by bit, then waits for the shot that was fired at a moment of its life."""
    if not os.fork():
        parent = os.getppid()
        time.sleep(float(argument))
        os.kill(parent, signal.SIGKILL)
        os._exit(0)
    sys.stdin.read()
    ends, parts = os.pipe()
    with os.fdopen(parts, "wb", buffering=0) as sink:
        write_frame(sink, message())
    for byte in os.read(ends, 1 << 16):
        stream.write(bytes([byte]))
        time.sleep(1e-4)
    signal.pause()


FAULTS: dict[str, Any] = {
    name: x for name, x in globals().items() if callable(x) and getattr(x, "__module__", "") == __name__
}


if __name__ == "__main__":
    fault, _, given = sys.argv[1].partition(":")
    FAULTS[fault](os.fdopen(int(sys.argv[2]), "wb", buffering=0), given)
