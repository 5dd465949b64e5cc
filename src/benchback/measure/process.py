"""Isolation: one fresh process per run, in a group of its own, with private caches, a time limit and a capped log."""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from benchback.measure import machine
from benchback.measure.classify import classify
from benchback.measure.record import Cell, Outcome, Record
from benchback.measure.wire import Garbled, Reader, parse_record
from benchback.measure.worker import Job

LOG_BYTES = 64 * 1024
GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL."""
TICK_S = 0.25
STRAYS_S = 5.0
"""Seconds to look for processes that a run left behind."""
COMMAND = (sys.executable, "-m", "benchback.measure.worker")
UNASKED = "the worker sent a message that nobody asked for"


Tick = Callable[[], bool]
"""Callback of long operations, called a few times a second; False ends them (Interrupted)."""


class Died(Exception):
    """A resident process ended, hung or sent garbage; `ended` says which."""

    def __init__(self, ended: "Ended") -> None:
        super().__init__(ended.detail)
        self.ended = ended


class Interrupted(Exception):
    """The user asked to stop while a worker was running; it has been ended."""


@dataclass
class Ended:
    """How a process ended, with its message and its log."""

    outcome: Outcome
    detail: str = ""
    log: str = ""
    duration_s: float = 0.0
    messages: list[dict[str, Any]] = field(default_factory=list)
    tags: tuple[str, ...] = ()
    """Irregularities, for the attempt's record."""


Launch = Callable[[Cell, int, float, Tick], Ended]
"""Runs a cell with a seed under a time limit in seconds."""


def run_cell(
    cell: Cell,
    seed: int,
    timeout_s: float,
    tick: Tick = lambda: True,
    command: Sequence[str] = COMMAND,
) -> Ended:
    """One training in a fresh process. `tick` is called a few times a second; False ends the run (Interrupted)."""
    with worker_variables(cell) as variables:
        job = Job(cell, seed, time.monotonic(), os.getpid())
        ended = supervise(command, variables, json.dumps(job.to_dict()), timeout_s, tick, cell.threads)
    return with_record(ended, parse_record)


@contextlib.contextmanager
def worker_variables(cell: Cell) -> Iterator[dict[str, str]]:
    """The environment variables of a worker, whose caches are deleted when the context ends."""
    with tempfile.TemporaryDirectory(prefix="benchback-run-", ignore_cleanup_errors=True) as caches:
        yield machine.variables(cell.threads, caches, cell.device)


def with_record(ended: Ended, parse: Callable[[Any], Record]) -> Ended:
    """`ended` as it is, or garbled if the worker succeeded but `parse` refuses its message."""
    if ended.outcome != "ok":
        return ended
    try:
        if not ended.messages:
            raise Garbled("the worker ended without sending its record")
        parse(ended.messages[0].get("record"))
    except Garbled as error:
        return Ended("garbled", str(error), ended.log, ended.duration_s)
    return ended


def supervise(
    command: Sequence[str],
    variables: dict[str, str],
    job: str,
    timeout_s: float,
    tick: Tick,
    processors: int | None = None,
) -> Ended:
    """Run `command FD` to its end and return how it ended. No process it started survives it."""
    started = time.monotonic()
    with isolated(command, variables, processors) as listener:
        listener.tell(job)
        listener.hang_up()
        in_time = listener.listen(started + timeout_s, tick)
    ended = listener.ended(None if in_time else timeout_s)
    return replace(ended, duration_s=time.monotonic() - started, messages=listener.messages)


@contextlib.contextmanager
def isolated(
    command: Sequence[str],
    variables: dict[str, str],
    processors: int | None = None,
    lane: int = 0,
    busy: Mapping[int, float] | None = None,
) -> Iterator["Listener"]:
    """A process in a group of its own with its Listener; no process it started survives the context.

    Where several are open at once, they must be closed in reverse order. For `lane` and `busy` see
    `machine.processors`.
    """
    adopt_orphans()
    known = {child.pid for child in psutil.Process().children()}
    process, frames = _start(command, variables)
    listener = Listener(process, frames)
    try:
        with guarded(process):
            if processors:
                machine.pin(process.pid, processors, lane, busy)
            yield listener
    finally:
        end_strays(known)
        listener.drain()
        listener.close()


def _start(command: Sequence[str], variables: dict[str, str]) -> tuple[subprocess.Popen, int]:
    """A process in a group of its own, and the end of the pipe from which its frames are read."""
    frames_out, frames_in = os.pipe()
    try:
        process = subprocess.Popen(
            [*command, str(frames_in)],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(frames_in,),
            start_new_session=True,
        )
    except BaseException:
        os.close(frames_out)
        raise
    finally:
        os.close(frames_in)
    return process, frames_out


def ask(listener: "Listener", request: Mapping[str, Any], limit_s: float, tick: Tick) -> dict[str, Any]:
    """The answer of a resident process within a limit in seconds; raises Died without one."""
    listener.request(request)
    return answer_of(listener, time.monotonic(), limit_s, tick)


def answer_of(listener: "Listener", asked_s: float, limit_s: float, tick: Tick) -> dict[str, Any]:
    """The answer of a resident process to what it was asked at that time; raises Died without one within the limit."""
    deadline = asked_s + limit_s
    listener.listen(deadline, tick, listener.answered)
    if listener.answered() and not listener.garbled:
        return listener.messages.pop()
    late = time.monotonic() > deadline
    end_group(listener.process)
    listener.drain()
    ended = listener.ended(limit_s if late else None)
    if ended.outcome == "ok":
        ended = replace(ended, outcome="garbled", detail="the worker ended without an answer")
    raise Died(ended)


class Listener:
    """Reads a process's frames and log as they come, so that neither can fill a pipe or the memory."""

    def __init__(self, process: subprocess.Popen, frames: int) -> None:
        assert process.stdout is not None
        self.process, self.frames, self.output = process, frames, process.stdout.fileno()
        self.reader, self.messages, self.garbled = Reader(), [], ""
        self.requests = 0
        self.kills_before = machine.out_of_memory_kills()
        self.log: deque[bytes] = deque()
        self.log_bytes = 0
        self.selector = selectors.DefaultSelector()
        for descriptor in (self.frames, self.output):
            os.set_blocking(descriptor, False)
            self.selector.register(descriptor, selectors.EVENT_READ)

    def tell(self, text: str) -> None:
        """Write to the process's input; if it has died already, its exit code says how."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def hang_up(self) -> None:
        """Close the process's input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def request(self, request: Mapping[str, Any]) -> None:
        """Send a request to a resident process, which answers with one message that bears the request's number."""
        self.read(0.0)
        if self.messages:
            self.garbled = UNASKED
        self.requests += 1
        self.tell(json.dumps({**request, "number": self.requests}) + "\n")

    def answered(self) -> bool:
        """Whether a message has arrived."""
        return bool(self.messages)

    def listen(self, deadline: float, tick: Tick, enough: Callable[[], bool] = lambda: False) -> bool:
        """Read until `enough`, the end of the process or a garbled message; False if the deadline came first."""
        while not enough() and self.process.poll() is None and not self.garbled:
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
        """Read the available bytes; whether there were any."""
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
        """Append to the log, dropping its beginning beyond the limit."""
        self.log.append(piece)
        self.log_bytes += len(piece)
        while self.log_bytes - len(self.log[0]) >= LOG_BYTES:
            self.log_bytes -= len(self.log.popleft())

    def understand(self, piece: bytes) -> None:
        """Parse the message in these bytes; after a second or garbled one nothing more is parsed."""
        if self.garbled:
            return
        try:
            for message in self.reader.feed(piece):
                if self.messages:
                    raise Garbled("the worker sent more than one message")
                if self.requests and message.get("number") != self.requests:
                    raise Garbled(UNASKED)
                self.messages.append(message)
        except Garbled as error:
            self.garbled = str(error)

    def drain(self) -> None:
        """Read the rest of an ended process's pipes, for a limited time: another process may still write to them."""
        deadline = time.monotonic() + GRACE_S
        while self.selector.get_map() and self.read(0.0) and time.monotonic() < deadline:
            pass

    def log_text(self) -> str:
        """The end of its stdout and stderr, at most LOG_BYTES of valid UTF-8."""
        text = b"".join(self.log)[-LOG_BYTES:].decode(errors="replace")
        return text.encode()[-LOG_BYTES:].decode(errors="ignore")

    def ended(self, timed_out_s: float | None) -> Ended:
        """How the process ended, once it has; `timed_out_s` is the limit that ended it, if one did."""
        log, code = self.log_text(), self.process.returncode
        # Since it was started: a resident process may be killed while it rests.
        killed_for_memory = machine.out_of_memory_kills() > self.kills_before
        outcome, detail = classify(code, timed_out_s is not None, self.garbled, log, killed_for_memory)
        return Ended(outcome, detail if timed_out_s is None else f"not done after {timed_out_s:g} s", log)

    def close(self) -> None:
        """Close the pipes."""
        self.hang_up()
        self.selector.close()
        os.close(self.frames)
        if self.process.stdout:
            self.process.stdout.close()


def output_of(
    command: Sequence[str],
    timeout_s: float,
    tick: Tick = lambda: True,
    given: str = "",
    variables: Mapping[str, str] | None = None,
) -> str:
    """Output of a command for the given input; partial if the time limit came first.

    `tick` is called a few times a second; False ends it (Interrupted).
    """
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as output:
        asked.write(given)
        asked.seek(0)
        streams: dict[str, Any] = {"stdin": asked, "stdout": output, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env=variables, start_new_session=True, **streams)
        with guarded(process):
            while process.poll() is None and time.monotonic() < deadline:
                if not tick():
                    raise Interrupted
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TICK_S)
        output.seek(0)
        return output.read()


WHEN_ALONE = ("/bin/sh", "-c", 'read _; kill -s KILL -- "-$0"')
"""Waits until its input is closed, by us or by our death, then ends a process group."""


@contextlib.contextmanager
def guarded(process: subprocess.Popen) -> Iterator[None]:
    """End the process's group when the context ends or when this process dies, even by SIGKILL."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    guard = None
    try:
        # Detached (setsid), so that a signal to the coordinator's group does not end the guard.
        command = [*WHEN_ALONE, str(process.pid)]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **quiet)
        yield
    finally:
        end_group(process)
        if guard is not None:
            guard.kill()
            guard.communicate()


def end_group(process: subprocess.Popen) -> None:
    """End the process and its group: SIGTERM, a moment to comply, then SIGKILL."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def adopt_orphans() -> None:
    """Become the subreaper: orphans among our descendants become our children instead of init's."""
    if sys.platform == "linux":
        PR_SET_CHILD_SUBREAPER = 36
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_strays(known: Collection[int]) -> None:
    """End all children but the known ones: orphans of a run that left its group. Their children become ours in turn."""
    deadline = time.monotonic() + STRAYS_S
    while strays := [child for child in psutil.Process().children() if child.pid not in known]:
        for stray in strays:
            with contextlib.suppress(psutil.Error):
                stray.kill()
                stray.wait(GRACE_S)
        if time.monotonic() > deadline:
            return
