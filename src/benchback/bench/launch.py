"""Isolation: one fresh process per run, in a group of its own, with private caches, a time limit and a capped log."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchback.bench import host
from benchback.bench.record import Cell, Outcome
from benchback.bench.wire import Garbled, Reader
from benchback.bench.worker import Job

LOG_BYTES = 64 * 1024
GRACE_S = 1.0
"""Between asking a process to end and ending it."""
TICK_S = 0.25
COMMAND = (sys.executable, "-m", "benchback.bench.worker")


class Interrupted(Exception):
    """The user asked to stop while a worker was running; it has been ended."""


@dataclass
class Ended:
    """How a process ended, and what it said."""

    outcome: Outcome
    detail: str = ""
    log: str = ""
    duration_s: float = 0.0
    messages: list[dict[str, Any]] = field(default_factory=list)
    tags: tuple[str, ...] = ()
    """What was not as it should be, for the attempt's record."""


def run_cell(
    cell: Cell,
    seed: int,
    timeout_s: float,
    tick: Callable[[], bool] = lambda: True,
    command: Sequence[str] = COMMAND,
) -> Ended:
    """One run of `cell` in a fresh process. `tick` is called a few times a second; False ends the run (Interrupted)."""
    with tempfile.TemporaryDirectory(prefix="benchback-run-", ignore_cleanup_errors=True) as caches:
        variables = host.variables(cell.threads, caches, cell.device)
        job = Job(cell, seed, time.monotonic(), os.getpid())
        pinned = cell.threads if cell.division == "matched" else None
        ended = supervise(command, variables, json.dumps(job.to_dict()), timeout_s, tick, pinned)
    if ended.outcome == "ok" and [m["kind"] for m in ended.messages] != ["record"]:
        return Ended("garbled", "the worker ended without sending its record", ended.log, ended.duration_s)
    return ended


def supervise(
    command: Sequence[str],
    variables: dict[str, str],
    job: str,
    timeout_s: float,
    tick: Callable[[], bool],
    processors: int | None = None,
) -> Ended:
    """Run `command FD` to its end, whatever it does, and say how it ended. Nothing it started survives it."""
    frames_out, frames_in = os.pipe()
    out_of_memory = host.out_of_memory_kills()
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, str(frames_in)],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(frames_in,),
        start_new_session=True,
    )
    os.close(frames_in)
    listener = Listener(process, frames_out)
    try:
        if processors:
            host.pin(process.pid, processors)
        _tell(process, job)
        timed_out = not listener.until_exit(started + timeout_s, tick)
    finally:
        end_group(process)
        listener.drain()
        listener.close()
    killed_for_memory = host.out_of_memory_kills() > out_of_memory
    outcome, detail = classify(process.returncode, timed_out, listener.garbled, listener.log_text(), killed_for_memory)
    if timed_out:
        detail = f"not done after {timeout_s:g} s"
    return Ended(outcome, detail, listener.log_text(), time.monotonic() - started, listener.messages)


def _tell(process: subprocess.Popen, job: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(job.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass  # it died before it could listen; its exit code says how


class Listener:
    """Reads a process's frames and log as they come, so that neither can fill a pipe or the memory."""

    def __init__(self, process: subprocess.Popen, frames: int) -> None:
        assert process.stdout is not None
        self.process, self.frames, self.output = process, frames, process.stdout.fileno()
        self.reader, self.messages, self.garbled = Reader(), [], ""
        self.log: deque[bytes] = deque()
        self.log_bytes = 0
        self.selector = selectors.DefaultSelector()
        for descriptor in (self.frames, self.output):
            os.set_blocking(descriptor, False)
            self.selector.register(descriptor, selectors.EVENT_READ)

    def until_exit(self, deadline: float, tick: Callable[[], bool]) -> bool:
        """Listen until the process has ended; False if the deadline came first or it talks nonsense for ever."""
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return False
            if not tick():
                raise Interrupted
            if self.selector.get_map():
                self.read(TICK_S)
            else:
                time.sleep(TICK_S / 10)
        return True

    def read(self, timeout_s: float) -> bool:
        """Take in what is there; whether there was anything."""
        ready = self.selector.select(timeout_s)
        for key, _ in ready:
            piece = os.read(key.fd, 1 << 16)
            if not piece:
                self.selector.unregister(key.fd)
            elif key.fd == self.output:
                self.keep(piece)
            else:
                self.understand(piece)
        return bool(ready)

    def keep(self, piece: bytes) -> None:
        """Append to the log, forgetting its beginning beyond the limit."""
        self.log.append(piece)
        self.log_bytes += len(piece)
        while self.log_bytes - len(self.log[0]) >= LOG_BYTES:
            self.log_bytes -= len(self.log.popleft())

    def understand(self, piece: bytes) -> None:
        """Append the messages in it; after the first that is not one, listen no more."""
        if self.garbled:
            return
        try:
            self.messages.extend(self.reader.feed(piece))
        except Garbled as error:
            self.garbled = str(error)

    def drain(self) -> None:
        """What is left in the pipes of a process that has ended."""
        while self.selector.get_map() and self.read(0):
            pass

    def log_text(self) -> str:
        """The end of what it wrote to stdout and stderr."""
        return b"".join(self.log)[-LOG_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Give the pipes back."""
        self.selector.close()
        os.close(self.frames)
        if self.process.stdout:
            self.process.stdout.close()


def end_group(process: subprocess.Popen) -> None:
    """End the process and all that it started: ask, wait a moment, insist."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


OUT_OF_MEMORY = ("MemoryError", "RESOURCE_EXHAUSTED", "OutOfMemoryError", "std::bad_alloc", "Cannot allocate memory")


def classify(code: int, timed_out: bool, garbled: str, log: str, killed_for_memory: bool) -> tuple[Outcome, str]:
    """The outcome of a process, and one line that says why."""
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")[:300]
    if timed_out:
        return "timeout", ""
    if garbled:
        return "garbled", garbled
    if killed_for_memory and code:
        return "memory", "killed by the system for want of memory"
    if code and any(word in last for word in OUT_OF_MEMORY):
        return "memory", last
    if code < 0:
        return "signal", f"ended by {signal.Signals(-code).name}"
    if code:
        return "error", f"exit code {code}: {last or 'no message'}"
    return "ok", ""
