"""The clock: drives an agent call by call and keeps every sample. It prints, stores and summarises nothing.

Two timings that never mix. `sync` waits after every rollout and update. `async` lets the device run ahead: the end of
a call is observed after the next one has been dispatched, so that the device never waits for Python. In both the first
call, which compiles, is synchronised separately. A call whose results are ready when it returns ends then.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchback.agent import Agent, Backend
from benchback.measure.record import Timing
from benchback.training import advance

FORGOTTEN_S = 0.005
"""Longest wait, in seconds, after a finished run that does not count as unsynchronised."""

MATERIAL = 0.02
"""A wait after the last call counts from this share of the time of the run's settled calls."""

LOOK_S = 0.05
"""Seconds between two readings of memory: a system call that would slow down short iterations."""


class Unsynchronised(Exception):
    """The clock was stopped before the device had finished."""


@dataclass
class Tape:
    """One value per call, in seconds, bytes and counts."""

    total_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    """Processor time of the process, all its threads."""
    rollout_s: list[float] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)
    compiles: list[int] = field(default_factory=list)
    host_syncs: list[int] = field(default_factory=list)
    transfers: list[int] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)


class Counted:
    """A backend that counts how often it is waited for and read from."""

    def __init__(self, backend: Backend) -> None:
        self.host_syncs, self.transfers = 0, 0
        self.backend = replace(backend, block=self._block, mark=self._mark, fetch=self._fetch)
        self._inner = backend

    def _block(self, tree: Any) -> None:
        self.host_syncs += 1
        self._inner.block(tree)

    def _mark(self, tree: Any) -> Callable[[], None] | None:
        self.host_syncs += 1
        return self._inner.mark(tree)

    def _fetch(self, tree: Any) -> Any:
        self.transfers += 1
        return self._inner.fetch(tree)


def record_calls(
    agent: Agent, backend: Backend, state: Any, calls: int, timing: Timing, first_done: Callable[[], None]
) -> tuple[Any, Tape, list[Any]]:
    """The state after `calls` calls, the tape, and the metrics of each call, still on the device."""
    counted, tape, metrics = Counted(backend), Tape(), []
    one = _timed_sync if timing == "sync" else _timed_async
    step = one(agent, counted.backend, tape, metrics)
    counts = [(backend.compiles(), 0, 0)]
    with resident_bytes() as (look, parse_rss):
        look, seen = sparingly(look), []
        for call in range(calls):
            state = step(state, call == 0, call == calls - 1)
            counts.append((backend.compiles(), counted.host_syncs, counted.transfers))
            seen.append(look())
            if call == 0:
                first_done()
        # Arithmetic is done after the clock has stopped.
        tape.rss_bytes.extend(map(parse_rss, seen))
    for kept, totals in zip((tape.compiles, tape.host_syncs, tape.transfers), zip(*counts, strict=True), strict=True):
        kept.extend(later - earlier for earlier, later in pairwise(totals))
    return state, tape, metrics


def _timed_sync(agent: Agent, backend: Backend, tape: Tape, metrics: list[Any]) -> Callable[[Any, bool, bool], Any]:
    def step(state: Any, first: bool, last: bool) -> Any:
        started, started_cpu = time.perf_counter(), time.process_time()
        if agent.iterate is not None:
            state, found = agent.iterate(state)
        else:
            state, batch = agent.rollout(state)
            backend.block(batch)
            tape.rollout_s.append(time.perf_counter() - started)
            state, found = agent.update(state, batch)
        backend.block(found)
        tape.total_s.append(time.perf_counter() - started)
        tape.cpu_s.append(time.process_time() - started_cpu)
        if agent.iterate is None:
            tape.update_s.append(tape.total_s[-1] - tape.rollout_s[-1])
        metrics.append(found)
        return state

    return step


def _timed_async(agent: Agent, backend: Backend, tape: Tape, metrics: list[Any]) -> Callable[[Any, bool, bool], Any]:
    waits: list[Callable[[], None] | None] = []
    ended, cpu = [time.perf_counter()], [time.process_time()]

    def observe_oldest() -> None:
        wait = waits.pop(0)
        if wait is not None:
            wait()
        ended.append(time.perf_counter())
        cpu.append(time.process_time())
        tape.total_s.append(ended[-1] - ended[-2])
        tape.cpu_s.append(cpu[-1] - cpu[-2])

    def step(state: Any, first: bool, last: bool) -> Any:
        state, found = advance(agent, state)
        waits.append(backend.mark(found))
        metrics.append(found)
        # A result that is already there ended now, not after the next call.
        ahead = 0 if first or last or waits[-1] is None else 1
        while len(waits) > ahead:
            observe_oldest()
        return state

    return step


def check_finished(backend: Backend, metrics: Any, tape: Tape) -> None:
    """Raise Unsynchronised if reading the last results has to wait although the clock has stopped."""
    first_s, second_s = _reading_s(backend, metrics), _reading_s(backend, metrics)
    steady_s = sorted(tape.total_s)[len(tape.total_s) // 2]
    # On a busy machine any read may be delayed by some milliseconds: ignore waits that would change no result.
    if first_s - second_s > max(FORGOTTEN_S, steady_s / 2, MATERIAL * steady_s * len(tape.total_s)):
        raise Unsynchronised(
            f"reading the results took {first_s:.3f} s after the clock had stopped, and {second_s:.3f} s again: "
            "the backend does not wait for its device, so its times mean nothing"
        )


def _reading_s(backend: Backend, metrics: Any) -> float:
    """Seconds of a read, without those in which other threads had the processor that this one could have used."""
    queued_s, started = queueing_s(), time.perf_counter()
    backend.fetch(metrics)
    return time.perf_counter() - started - (queueing_s() - queued_s)


def queueing_s(thread: Path = Path("/proc/thread-self")) -> float:
    """Seconds that a thread has been ready to run without a processor; 0 where the system does not tell."""
    try:
        # Linux, see its Documentation/scheduler/sched-stats: time running, time waiting for a processor, time slices.
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def all_queueing_s() -> float:
    """The same of all threads of this process together; takes a tenth of a millisecond."""
    tasks = Path("/proc/self/task")
    return sum(map(queueing_s, tasks.iterdir())) if tasks.exists() else 0.0


def waited_s(tape: Tape, queued_s: float) -> list[float]:
    """Seconds of each call in which a process with one processor waited for it because others had it.

    That is the time in which none of its threads ran, as far as they were queueing, for `queued_s` in all calls: a
    process that sleeps does not run either. Of several threads that queue at a time, only one could have run.
    """
    without_s = [max(0.0, total - busy) for total, busy in zip(tape.total_s, tape.cpu_s, strict=True)]
    # Threads that have ended take what they queued with them.
    share = min(1.0, max(0.0, queued_s) / sum(without_s)) if any(without_s) else 0.0
    return [share * x for x in without_s]


def sparingly(look: Callable[[], Any]) -> Callable[[], Any]:
    """`look`, called at most once every LOOK_S; in between the last value is returned."""
    seen, due_s = None, 0.0

    def maybe() -> Any:
        nonlocal seen, due_s
        now_s = time.perf_counter()
        if now_s >= due_s:
            seen, due_s = look(), now_s + LOOK_S
        return seen

    return maybe


@contextmanager
def resident_bytes() -> Iterator[tuple[Callable[[], Any], Callable[[Any], int]]]:
    """Two functions: one reads this process's resident memory within microseconds, one parses the reading later."""
    try:
        # Opened once: opening it takes ten times as long as reading it.
        statm = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        import psutil

        yield psutil.Process().memory_info, lambda seen: seen.rss
        return
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    try:
        yield partial(os.pread, statm, 128, 0), lambda seen: int(seen.split()[1]) * page_bytes
    finally:
        os.close(statm)


def peak_bytes() -> int:
    """Most memory this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike ru_maxrss this is reset at exec, so it does not include the parent's peak.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import psutil

    info = psutil.Process().memory_info()
    return getattr(info, "peak_wset", info.rss)
