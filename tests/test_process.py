"""Whatever a worker does, it is ended, classified, and gone; and the next one never notices."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchback.measure import machine, process
from benchback.measure.classify import classify
from benchback.measure.process import LOG_BYTES, Ended, Interrupted, run_cell, supervise
from benchback.measure.record import Cell
from benchback.training.run import Run

DOUBLE = str(Path(__file__).parent / "worker_double.py")
CELL = Cell({name: x for name, x in Run.from_dict({"backend": "purejax"}).to_dict().items() if name != "seed"})
SOON_S = 120.0
"""Far less than the doubles would hang, far more than a busy machine takes."""


def double(fault: str) -> tuple[str, ...]:
    return sys.executable, DOUBLE, fault


def run(fault: str, timeout_s: float = 300.0, tick: Callable[[], bool] = lambda: True) -> Ended:
    return run_cell(CELL, 7, timeout_s, tick, double(fault))


def wait_for(path: Path) -> str:
    """What is in a file, once it is there."""
    deadline = time.monotonic() + SOON_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)
    return path.read_text()


def is_gone(pid: int, within_s: float = SOON_S) -> bool:
    """Whether a process ends in time; one that nobody has asked about yet counts as ended."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def assert_unaffected() -> None:
    """The next run is as if nothing had been, and nothing of the last is left."""
    ended = run("ok")
    assert (ended.outcome, ended.detail, ended.log) == ("ok", "", "")
    assert [m["kind"] for m in ended.messages] == ["record"]


FAULTS = {
    "fail": ("error", "exit code 3: the reason why"),
    "segfault": ("signal", "ended by SIGSEGV"),
    "abort": ("signal", "ended by SIGABRT"),
    "own_signal:9": ("signal", "ended by SIGKILL"),
    "own_signal:15": ("signal", "ended by SIGTERM"),
    "own_signal:40": ("signal", "ended by signal 40"),
    "memory": ("memory", "MemoryError"),
    "starved_below": ("memory", "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
    "garble:0": ("garbled", "is not the beginning of a message"),
    "garble:1": ("garbled", "is not the beginning of a message"),
    "two:2": ("garbled", "the worker sent more than one message"),
    "two:20000": ("garbled", "the worker sent more than one message"),
    "nothing": ("garbled", "the worker ended without sending its record"),
    "half:whole": ("garbled", "the worker ended without sending its record"),
    "half:killed": ("signal", "ended by SIGKILL"),
    "incomplete:null": ("garbled", "a record must have exactly samples, marks, ledger, memory"),
    'incomplete:{"samples":{},"marks":{},"ledger":{},"memory":[]}': ("garbled", "memory of a record"),
    "nobody": ("error", "exit code 1: KeyError: 'nobody'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_end_is_told_apart_and_the_next_run_is_unaffected(fault: str) -> None:
    started = time.monotonic()
    ended = run(fault)
    assert time.monotonic() - started < SOON_S + process.GRACE_S
    outcome, detail = FAULTS[fault]
    assert ended.outcome == outcome, ended
    assert detail in ended.detail
    assert "\n" not in ended.detail
    assert_unaffected()


def test_a_worker_that_does_not_listen_may_still_speak() -> None:
    assert run("deaf").outcome == "ok"


def test_a_job_that_nobody_reads_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        supervise(double("fail"), machine.variables(1, "/tmp"), "x" * 50_000, 300.0, lambda: True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_command_that_cannot_be_started_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        supervise(("/nowhere/python",), {}, "", 1.0, lambda: True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_hangs_is_asked_to_end_and_then_ended(tmp_path: Path) -> None:
    for limit_s in (1.0, 8.0, 64.0):  # a busy machine takes its time until the process is there to hang
        ended = run(f"hang:{tmp_path / 'pid'}", timeout_s=limit_s)
        assert (ended.outcome, ended.detail) == ("timeout", f"not done after {limit_s:g} s")
        if (tmp_path / "pid").exists():
            break
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert_unaffected()


def test_one_that_can_end_politely_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_S", 2 * SOON_S)
    started = time.monotonic()
    with pytest.raises(Interrupted):
        run(f"polite:{tmp_path / 'pid'}", tick=lambda: not (tmp_path / "pid").exists())
    assert time.monotonic() - started < SOON_S
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("how", ["quiet", "flood"])
def test_nothing_that_a_worker_started_survives_it(how: str, tmp_path: Path) -> None:
    variables = machine.variables(1, tmp_path) | {"PIDS": str(tmp_path / "pids")}
    job = json.dumps(process.Job(CELL, 7, 0.0).to_dict())
    started = time.monotonic()
    ended = supervise(double(f"children:{how}"), variables, job, 300.0, lambda: True)
    assert time.monotonic() - started < SOON_S + process.GRACE_S
    assert ended.outcome == "ok"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == {"quiet": 3, "flood": 4}[how]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert_unaffected()


def test_children_of_ours_that_were_there_before_are_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        assert run("ok").outcome == "ok"
        assert bystander.poll() is None
        assert bystander.stdin is not None
        bystander.stdin.write(b"\n")


def check_output(megabytes: int) -> None:
    """A flood of output: the end of it is kept, and the coordinator does not grow."""
    ours = psutil.Process()
    before, most = ours.memory_info().rss, [0]

    def tick() -> bool:
        most[0] = max(most[0], ours.memory_info().rss)
        return True

    ended = run(f"output:{megabytes}", 600.0, tick)
    assert ended.outcome == "ok"
    assert ended.log.endswith("the end")
    assert LOG_BYTES - 4 <= len(ended.log.encode()) <= LOG_BYTES
    assert most[0] - before < 16 << 20
    assert_unaffected()


def test_fifty_megabytes_of_output_are_cut_to_their_end() -> None:
    check_output(50)


@pytest.mark.slow
def test_a_gigabyte_of_output_is_cut_to_its_end() -> None:
    check_output(1024)


def test_output_that_is_no_text_stays_within_the_limit() -> None:
    assert 0 < len(run("bytes_only").log.encode()) <= LOG_BYTES


def check_shots(points: int) -> None:
    """Shots spread over the life of a worker: before it is told, while it speaks, after its last word."""
    for point in range(points):
        ended = run(f"shot:{0.2 * point / points}")
        assert (ended.outcome, ended.detail) == ("signal", "ended by SIGKILL"), point
    assert_unaffected()


def test_a_worker_killed_at_any_point_is_recorded_with_the_signal() -> None:
    check_shots(6)


@pytest.mark.slow
def test_a_worker_killed_at_a_hundred_points_is_recorded_with_the_signal() -> None:
    check_shots(100)


COORDINATOR = """
import sys
from test_process import run
run(sys.argv[1], 600.0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_worker_dies_with_its_coordinator(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COORDINATOR, f"orphan:{tmp_path / 'pid'}"]
    coordinator = subprocess.Popen(command, cwd=Path(__file__).parent)
    pid = int(wait_for(tmp_path / "pid"))
    assert psutil.pid_exists(pid)
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait()
    assert is_gone(pid)


def test_what_a_worker_started_dies_with_the_coordinator(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COORDINATOR, f"parent:{tmp_path / 'pid'}"]
    coordinator = subprocess.Popen(command, cwd=Path(__file__).parent)
    grandchild = int(wait_for(tmp_path / "pid"))
    worker = psutil.Process(grandchild).ppid()
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait()
    assert is_gone(grandchild)
    assert is_gone(worker)


@pytest.mark.parametrize(
    ("code", "garbled", "log", "starved", "outcome", "detail"),
    [
        (0, "", "MemoryError", True, "ok", ""),
        (1, "", "", False, "error", "exit code 1: no message"),
        (-9, "", "MemoryError\n" + "later\n" * 5, False, "signal", "ended by SIGKILL"),
        (-9, "", "", True, "memory", "killed by the system for want of memory"),
        (-6, "", "what():  std::bad_alloc\n", False, "memory", "what():  std::bad_alloc"),
        (-15, "nonsense", "", False, "garbled", "nonsense"),
        (1, "", "ValueError: " + "x" * 1000, False, "error", "exit code 1: ValueError: " + "x" * 288),
    ],
)
def test_the_reason_is_found_in_what_is_known(
    code: int, garbled: str, log: str, starved: bool, outcome: str, detail: str
) -> None:
    assert classify(code, False, garbled, log, starved) == (outcome, detail)
