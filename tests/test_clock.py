"""The clock: what it counts is what happened, in either timing, and a backend that does not wait is caught."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from benchback.agent import Agent, Backend
from benchback.measure import clock, metrics, wire
from benchback.measure.clock import Tape, Unsynchronised, check_finished, record_calls
from benchback.measure.record import Cell, Timing
from benchback.measure.worker import Job, perform
from benchback.training.run import Run


@dataclass
class Device:
    """A device that computes one call after another, and notes what it is asked; its time is that of the clock."""

    call_s: float = 0.0
    compile_at: tuple[int, ...] = (1,)
    now_s: float = 0.0
    busy_until_s: float = 0.0
    asked: int = 0
    compiled: int = 0
    log: list[tuple[str, int]] = field(default_factory=list)

    def enqueue(self, duration_s: float) -> int:
        """The number of a call, which is computed after all before it."""
        self.asked += 1
        self.compiled += self.asked in self.compile_at
        self.busy_until_s = max(self.now_s, self.busy_until_s) + duration_s
        self.log.append(("ask", self.asked))
        return self.asked

    def wait(self, until_s: float, call: int) -> None:
        self.log.append(("wait", call))
        self.now_s = max(self.now_s, until_s)

    def perf_counter(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return self.now_s / 2

    def host_works(self, duration_s: float) -> None:
        self.now_s += duration_s


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The one that the clock reads its time from: nothing here depends on how busy the machine is."""
    device = Device()
    monkeypatch.setattr(clock, "time", device)
    monkeypatch.setattr(clock, "queueing_s", lambda: 0.0)
    return device


def undefined(*_: Any) -> Any:
    raise NotImplementedError


def agent_of(**functions: Any) -> Agent:
    """An agent of which nothing is asked but these functions."""
    names = ("init", "load", "rollout", "update", "learn", "act", "export", "key")
    return Agent(**(dict.fromkeys(names, undefined) | functions), hyper=None, roles={})


def fake(device: Device, *, phases: tuple[float, float] | None = None) -> tuple[Agent, Backend]:
    """An agent whose calls take `device.call_s`, or a rollout and an update as long as `phases`."""

    def iterate(state: int) -> tuple[int, Any]:
        call = device.enqueue(device.call_s)
        return state + 1, (call, device.busy_until_s)

    def rollout(state: int) -> tuple[int, tuple[int, float]]:
        return state, (device.enqueue(phases[0] if phases else 0.0), device.busy_until_s)

    def update(state: int, batch: Any) -> tuple[int, Any]:
        return state + 1, (device.enqueue(phases[1] if phases else 0.0), device.busy_until_s)

    def mark(found: tuple[int, float]) -> Callable[[], None]:
        return partial(device.wait, found[1], found[0])

    agent = agent_of(rollout=rollout, update=update, iterate=None if phases else iterate)
    backend = Backend(
        modes={},
        compile=undefined,
        units={},
        block=lambda found: mark(found)(),
        mark=mark,
        fetch=lambda found: mark(found)() or found,
        compiles=lambda: device.compiled,
    )
    return agent, backend


def test_memory_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], iter("abc")
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    look = clock.sparingly(lambda: next(looks))
    seen = []
    for passed_s in (0.0, 0.4, 0.4, 0.4, 1.5):
        now[0] += passed_s * clock.LOOK_S
        seen.append(look())
    assert seen == ["a", "a", "a", "b", "c"]


def test_sync_times_every_phase_by_itself(device: Device) -> None:
    agent, backend = fake(device, phases=(0.02, 0.05))
    state, tape, metrics = record_calls(agent, backend, 0, 4, "sync", lambda: None)
    assert (state, len(metrics)) == (4, 4)
    assert tape.rollout_s == pytest.approx([0.02] * 4)
    assert tape.update_s == pytest.approx([0.05] * 4)
    assert tape.total_s == pytest.approx([0.07] * 4)
    assert tape.cpu_s == pytest.approx([0.035] * 4)
    assert (tape.host_syncs, tape.transfers) == ([2] * 4, [0] * 4)


def test_sync_times_a_program_that_is_both_phases_as_one(device: Device) -> None:
    device.call_s = 0.02
    _, tape, _ = record_calls(*fake(device), 0, 3, "sync", lambda: None)
    assert tape.total_s == pytest.approx([0.02] * 3)
    assert (tape.rollout_s, tape.update_s, tape.host_syncs) == ([], [], [1, 1, 1])


def test_async_times_what_the_device_takes_and_adds_up_to_the_whole(device: Device) -> None:
    device.call_s = 0.02
    _, tape, _ = record_calls(*fake(device), 0, 6, "async", lambda: None)
    assert tape.total_s == pytest.approx([0.02] * 6)
    assert tape.cpu_s == pytest.approx([0.01] * 6)
    assert sum(tape.total_s) == pytest.approx(device.now_s)
    assert len(tape.rss_bytes) == 6


def test_async_gives_each_call_its_own_time_where_the_device_computes_before_it_returns(device: Device) -> None:
    agent, backend = fake(device)
    calls_s = iter([9.0, 0.5, 0.2, 0.3, 0.4])

    def eager(state: Any) -> Any:
        assert agent.iterate is not None
        device.host_works(next(calls_s))
        return agent.iterate(state)

    at_once = replace(backend, mark=lambda found: None)
    _, tape, _ = record_calls(replace(agent, iterate=eager), at_once, 0, 5, "async", lambda: None)
    assert tape.total_s == pytest.approx([9.0, 0.5, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(("timing", "expected_s"), [("async", 0.03), ("sync", 0.05)])
def test_only_async_hides_the_host_behind_the_device(timing: Timing, expected_s: float, device: Device) -> None:
    device.call_s = 0.03
    agent, backend = fake(device)

    def slow_host(state: Any) -> Any:
        assert agent.iterate is not None
        device.host_works(0.02)
        return agent.iterate(state)

    _, tape, _ = record_calls(replace(agent, iterate=slow_host), backend, 0, 8, timing, lambda: None)
    assert tape.total_s[2:] == pytest.approx([expected_s] * 6)
    assert sum(tape.total_s) == pytest.approx(device.now_s)


def test_async_never_waits_for_the_newest_call_but_the_first_and_the_last(device: Device) -> None:
    record_calls(*fake(device), 0, 5, "async", lambda: None)
    assert device.log == [
        *[("ask", 1), ("wait", 1)],
        ("ask", 2),
        *[("ask", 3), ("wait", 2)],
        *[("ask", 4), ("wait", 3)],
        *[("ask", 5), ("wait", 4), ("wait", 5)],
    ]


@pytest.mark.parametrize("timing", ["async", "sync"])
def test_the_first_call_is_told_once_when_it_is_done(timing: Timing, device: Device) -> None:
    told = []
    record_calls(*fake(device), 0, 3, timing, lambda: told.append(list(device.log)))
    assert told == [[("ask", 1), ("wait", 1)]]


@pytest.mark.parametrize("timing", ["async", "sync"])
def test_compiles_and_transfers_are_counted_where_they_happen(timing: Timing, device: Device) -> None:
    device.compile_at = (1, 4)
    device.compiled = 3  # before the run: parameters, the first reset
    agent, backend = fake(device)
    counted = clock.Counted(backend)
    assert (counted.backend.fetch((1, 0.0)), counted.transfers, counted.host_syncs) == ((1, 0.0), 1, 0)
    _, tape, _ = record_calls(agent, backend, 0, 5, timing, lambda: None)
    assert (tape.compiles, tape.host_syncs, tape.transfers) == ([1, 0, 0, 1, 0], [1] * 5, [0] * 5)


@pytest.mark.parametrize("timing", ["async", "sync"])
def test_one_call_is_timed_in_either_timing(timing: Timing, device: Device) -> None:
    device.call_s = 0.01
    _, tape, _ = record_calls(*fake(device), 0, 1, timing, lambda: None)
    assert tape.total_s == pytest.approx([0.01])


@pytest.mark.parametrize("timing", ["async", "sync"])
@pytest.mark.parametrize("call_s", [0.001, 0.02])
def test_a_backend_that_forgets_to_wait_is_caught(timing: Timing, call_s: float, device: Device) -> None:
    device.call_s = call_s
    agent, backend = fake(device)
    forgetful = replace(backend, block=lambda found: None, mark=lambda found: lambda: None)
    _, tape, metrics = record_calls(agent, forgetful, 0, 20, timing, lambda: None)
    with pytest.raises(Unsynchronised, match="does not wait for its device"):
        check_finished(forgetful, metrics[-1], tape)


@pytest.mark.parametrize("timing", ["async", "sync"])
def test_a_backend_that_waits_is_not_accused(timing: Timing, device: Device) -> None:
    device.call_s = 0.02
    agent, backend = fake(device)
    _, tape, metrics = record_calls(agent, backend, 0, 20, timing, lambda: None)
    check_finished(backend, metrics[-1], tape)


def test_reading_that_is_always_slow_is_no_accusation(device: Device) -> None:
    _, backend = fake(device)
    slow = replace(backend, fetch=lambda found: device.host_works(0.03))
    check_finished(slow, (1, 0.0), Tape(total_s=[0.001]))


def test_a_read_held_up_by_a_busy_machine_is_no_accusation(device: Device) -> None:
    _, backend = fake(device)
    delays = iter([0.007, 0.0])
    held_up = replace(backend, fetch=lambda found: device.host_works(next(delays)))
    check_finished(held_up, (1, 0.0), Tape(total_s=[0.005] * 120))


def test_a_read_that_waits_for_a_processor_is_no_accusation(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    _, backend = fake(device)
    delays, queued_s = iter([0.5, 0.0]), iter([1.0, 1.499, 1.5, 1.5])
    monkeypatch.setattr(clock, "queueing_s", lambda: next(queued_s))
    starved = replace(backend, fetch=lambda found: device.host_works(next(delays)))
    check_finished(starved, (1, 0.0), Tape(total_s=[0.005] * 3))


def test_sleeping_is_no_queueing() -> None:
    before_s, started = clock.queueing_s(), time.perf_counter()
    threading.Event().wait(0.05)
    slept_s = time.perf_counter() - started
    assert clock.queueing_s() - before_s < slept_s - 0.045


def test_all_threads_that_wait_for_a_processor_are_counted() -> None:
    assert clock.all_queueing_s() >= clock.queueing_s()


def test_a_process_waits_while_it_queues_and_does_not_run() -> None:
    tape = Tape(total_s=[0.1, 0.4, 0.2], cpu_s=[0.1, 0.2, 0.2])
    assert clock.waited_s(tape, 0.2) == pytest.approx([0.0, 0.2, 0.0])
    assert clock.waited_s(tape, 0.5) == pytest.approx([0.0, 0.2, 0.0]), "several threads queued at a time"
    assert clock.waited_s(tape, 0.1) == pytest.approx([0.0, 0.1, 0.0]), "half of the time it slept"
    assert clock.waited_s(tape, 0.0) == pytest.approx([0.0, 0.0, 0.0]), "it slept"
    assert clock.waited_s(Tape(total_s=[0.1], cpu_s=[0.1001]), 0.0) == [0.0], "two clocks"


def test_a_long_first_call_excuses_no_wait(device: Device) -> None:
    _, backend = fake(device)
    delays = iter([0.1, 0.0])
    forgetful = replace(backend, fetch=lambda found: device.host_works(next(delays)))
    with pytest.raises(Unsynchronised):
        check_finished(forgetful, (1, 0.0), Tape(total_s=[10.0] + [0.1] * 12))


@pytest.fixture(scope="module")
def real() -> tuple[Agent, Backend, Any]:
    """A JAX program of some tens of milliseconds, which JAX lets run on while Python goes on."""
    import jax
    import jax.numpy as jnp

    from benchback.backends import xla

    @jax.jit
    def iterate(state: Any) -> Any:
        state = jax.lax.fori_loop(0, 60, lambda _, x: jnp.tanh(x @ x), state)
        return state, {"loss": state.sum()}

    agent, backend = agent_of(iterate=iterate), xla.BACKEND
    state = jnp.eye(256) * 0.5
    jax.block_until_ready(iterate(state))
    return agent, backend, state


@pytest.mark.parametrize("timing", ["async", "sync"])
def test_a_real_backend_passes_and_its_forgetful_twin_is_caught(timing: Timing, real: Any) -> None:
    agent, backend, state = real
    _, tape, metrics = record_calls(agent, backend, state, 6, timing, lambda: None)
    check_finished(backend, metrics[-1], tape)
    assert tape.compiles == [0] * 6
    forgetful = replace(backend, block=lambda found: None, mark=lambda found: lambda: None)
    _, wrong, metrics = record_calls(agent, forgetful, state, 6, timing, lambda: None)
    assert sum(wrong.total_s) < sum(tape.total_s) / 2, "the program is too small to be run ahead of"
    with pytest.raises(Unsynchronised):
        check_finished(forgetful, metrics[-1], wrong)


def test_phases_that_are_not_waited_for_are_caught(real: Any) -> None:
    agent, backend, state = real
    two = replace(agent, iterate=None, rollout=agent.iterate, update=lambda state, batch: agent.iterate(state))
    forgetful = replace(backend, block=lambda found: None)
    _, tape, metrics = record_calls(two, forgetful, state, 4, "sync", lambda: None)
    with pytest.raises(Unsynchronised):
        check_finished(forgetful, metrics[-1], tape)


TINY = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "num_epochs": 1, "hidden_sizes": [8], "num_iterations": 6}
LEDGER = {
    "backend": "purejax",
    "mode": "jit",
    "threads": 1,
    "seed": 3,
    "optimiser_steps": 12,
    "dtype": "float32",
    "matmul_precision": "highest",
    "bridged": False,
}


@pytest.mark.parametrize(("timing", "unit", "calls"), [("sync", "phase", 6), ("async", "chunk", 3)])
def test_a_run_is_recorded_whole(timing: Timing, unit: str, calls: int) -> None:
    run = Run.from_dict({"backend": "purejax", "unit": unit, "chunk": 2, **TINY}).to_dict()
    cell = Cell({name: x for name, x in run.items() if name != "seed"}, timing=timing)
    launched_s = time.monotonic()
    record = perform(Job(cell, 3, launched_s))
    assert list(record.marks) == ["started", "imported", "env_built", "built", "initialised", "first_call", "finished"]
    times = list(record.marks.values())
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= time.monotonic() - launched_s
    expected = LEDGER | {"timing": timing, "unit": unit, "calls": calls, "iterations_per_call": 6 // calls}
    assert expected.items() <= record.ledger.items()
    assert record.ledger["env_steps_per_call"] == 32 * 6 // calls
    assert record.ledger["parameters"] == 4 * 8 + 8 + 8 * 2 + 2 + 4 * 8 + 8 + 8 + 1
    assert record.ledger["host_syncs_per_call"] == (2 if timing == "sync" else 1)
    assert record.ledger["transfers_per_call"] == 0
    compiles = [count or 0 for count in record.samples["compiles"]]
    assert record.ledger["compiles"] == sum(compiles) == compiles[0] > 0
    for name in ("total_s", "compiles", "host_syncs", "transfers", "rss_bytes"):
        assert len(record.samples[name]) == calls
    assert ("rollout_s" in record.samples) == (timing == "sync")
    assert len(record.samples["episode_return"]) == 6
    assert 1 << 20 < (record.samples["rss_bytes"][-1] or 0) <= record.memory["peak_rss_bytes"]
    message = json.loads(json.dumps(asdict(record), allow_nan=False))
    assert wire.parse_record(message) == record
    assert metrics.run_metrics(record)["total"] == record.marks["finished"]
