"""The coordinator: it completes, knows when to stop, and can be stopped, killed and joined without a trace."""

import errno
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from campaign_double import HOOKS, MACHINE, STUDY, modelled, proven, slowly, study, work
from test_process import double, is_gone, wait_for

from benchback.analysis.claims import Claim, all_claims, claims_of
from benchback.analysis.reader import read
from benchback.analysis.reasons import ParityNotProven
from benchback.cli.board import Noise, noise_of
from benchback.cli.outcomes import print_outcome
from benchback.errors import InputError
from benchback.measure import coordinator, gate
from benchback.measure.coordinator import open_campaign, owner, owner_is_gone
from benchback.measure.policy import is_accepted
from benchback.measure.process import Ended, Interrupted, run_cell
from benchback.measure.record import Attempt, Cell
from benchback.measure.results import block_times, results
from benchback.measure.stopping import BLOCKS_AT_ONCE, extend_groups, half_width, pair_ratios
from benchback.measure.store import Store, open_store
from benchback.measure.study import Product, Study
from benchback.measure.verify import verify
from benchback.stats import NoVerdict

DOUBLE = Path(__file__).parent / "campaign_double.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "double.sqlite"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The campaign that nothing happened to."""
    path = tmp_path_factory.mktemp("unbroken") / "double.sqlite"
    assert work(path)
    return path


def table(path: Path) -> list[Any]:
    """All that a report is made from, once the store has been found sound and no slot counted twice."""
    assert verify(path) == []
    with open_store(path, readonly=True) as store:
        accepted = Counter(attempt.slot for attempt in store.attempts() if is_accepted(attempt))
        assert set(accepted.values()) == {1}
        assert set(accepted) == {slot.id for slot in store.slots()}
        return [store.slots(), read(store).groups]


def steady_claims(store: Store) -> list[Claim]:
    """Every variant against the reference, in steady state."""
    source = read(store)
    return claims_of(source.parity, source.groups, "steady")


def attempts(path: Path) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    with open_store(path, readonly=True) as store:
        for attempt in store.attempts():
            found.setdefault(attempt.slot, []).append(attempt)
    return found


def blocks(path: Path) -> set[int]:
    """Numbers of blocks that the groups have."""
    with open_store(path, readonly=True) as store:
        return {1 + max(s.block for s in store.slots() if s.cell == cell) for cell in store.cells()}


# Completing, and knowing when to stop.


def test_a_campaign_runs_every_slot_once_with_canaries_and_proof(unbroken: Path) -> None:
    assert {len(tries) for tries in attempts(unbroken).values()} == {1}
    with open_store(unbroken, readonly=True) as store:
        counts = store.progress()
        assert (counts.ok, counts.failed, counts.running) == (counts.total, 0, 0)
        groups = {cell.group for cell in store.cells().values()}
        sung = Counter((c["group"], c["block"], c["when"]) for c in store.canaries())
        assert {group for group, *_ in sung} == groups
        assert len([s for s in sung if s[2] == "before"]) == len([s for s in sung if s[2] == "after"])
        (parity,) = [event.detail for event in store.events() if event.kind == "parity"]
        programs = ("linen/jit", "nnx/split", "equinox/flatten")
        assert parity["verdicts"] == {f"ppo/{name}/phase/mlp/float32/framework": "pass" for name in programs}
        assert [slot for slot, _ in results(store)] == store.slots()


def test_a_complete_campaign_is_left_as_it_is(path: Path) -> None:
    assert work(path)
    before = table(path)
    assert work(path, replace(HOOKS, launch=partial(pytest.fail, "nothing is open")))
    assert table(path) == before


@pytest.mark.parametrize(("cv", "expected"), [(0.0, {2}), (0.2, {6})])
def test_groups_are_extended_until_precise_or_at_their_limit(cv: float, expected: set[int], path: Path) -> None:
    few = study(max_blocks=6)
    assert work(path, replace(HOOKS, launch=partial(modelled, cv=cv)), few)
    assert blocks(path) == expected


def test_a_group_stops_as_soon_as_it_is_precise(unbroken: Path) -> None:
    with open_store(unbroken, readonly=True) as store:
        slots, times = store.slots(), block_times(store, 0)
        for group in {cell.group for cell in store.cells().values()}:
            members = [id for id, cell in store.cells().items() if cell.group == group]
            n = 1 + max(slot.block for slot in slots if slot.cell in members)
            precise = [
                all(half_width(ratios[:k]) <= STUDY.precision for ratios in pair_ratios(times, members).values())
                for k in range(STUDY.min_blocks, n + 1, BLOCKS_AT_ONCE)
            ]
            assert precise[:-1] == [False] * (len(precise) - 1)
            assert precise[-1] or n == STUDY.max_blocks
    assert max(blocks(unbroken)) > STUDY.min_blocks, "nothing was extended: the test shows nothing"


class Busy:
    """A machine on which others are at work during the first `noisy` runs of every slot."""

    def __init__(self, noisy: int) -> None:
        self.noisy, self.time_s, self.busy_s = noisy, 0.0, 0.0
        self.runs: Counter[tuple[str, int]] = Counter()

    def sample(self) -> dict[str, float]:
        return {"time_s": self.time_s, "busy_s": self.busy_s, "own_s": 0.0}

    def launch(self, cell: Cell, seed: int, timeout_s: float, tick: Any) -> Ended:
        self.time_s += 1.0
        self.busy_s += 1.0 if self.runs[cell.id, seed] < self.noisy else 0.0
        self.runs[cell.id, seed] += 1
        return modelled(cell, seed)


@pytest.mark.parametrize(
    ("rerun", "noisy", "tags"),
    [
        (True, 0, [()]),
        (True, 1, [("noise",), ()]),
        (True, 9, [("noise",), ("noise",), ("noise",)]),
        (False, 9, [("noisy",)]),
    ],
)
def test_noisy_runs_are_kept_and_made_again_at_most_twice(
    rerun: bool, noisy: int, tags: list[tuple[str, ...]], path: Path
) -> None:
    busy = Busy(noisy)
    quick = study(gammas=(0.9,), max_blocks=2, rerun_noisy=rerun)
    assert work(path, replace(HOOKS, launch=busy.launch, sample=busy.sample), quick)
    for tries in attempts(path).values():
        assert [attempt.tags for attempt in tries] == tags
        assert all(("other_load 1 above" in a.detail) == bool(a.tags) for a in tries)
    with open_store(path, readonly=True) as store:
        assert store.progress().ok == store.progress().total
        assert [a.number for _, a in results(store)] == [len(tags) - 1] * store.progress().total
        slots = store.progress().total
        noisy = slots if tags[-1] else 0
        assert noise_of(store) == Noise(repeated=(len(tags) - 1) * slots, noisy=noisy)


@pytest.mark.parametrize(("failures", "tries"), [(1, ["signal", "ok"]), (9, ["signal", "signal"])])
def test_what_fails_is_tried_once_more_and_then_given_up(failures: int, tries: list[str], path: Path) -> None:
    made: Counter[int] = Counter()

    def launch(cell: Cell, seed: int, timeout_s: float, tick: Any) -> Ended:
        if cell.run["backend"] == "nnx":
            made[seed] += 1
            if made[seed] <= failures:
                return Ended("signal", "ended by SIGSEGV", log="boom")
        return modelled(cell, seed)

    assert work(path, replace(HOOKS, launch=launch), study(gammas=(0.9,)))
    with open_store(path, readonly=True) as store:
        cells = store.cells()
        assert verify(path) == []
        assert store.progress().failed == (len(made) if failures > 1 else 0)
        lost = next(claim for claim in steady_claims(store) if claim.subject.run["backend"] == "nnx")
        assert (lost.overall.reason is NoVerdict.NO_CELL) == (failures > 1)
    for slot, done in attempts(path).items():
        expected = tries if cells[slot.split("/")[0]].run["backend"] == "nnx" else ["ok"]
        assert [attempt.outcome for attempt in done] == expected
        assert all((a.detail, a.log) == ("ended by SIGSEGV", "boom") for a in done if a.outcome == "signal")


def test_a_canary_that_fails_costs_no_run(path: Path) -> None:
    def canary() -> dict[str, float]:
        raise subprocess.CalledProcessError(1, "canary")

    assert work(path, replace(HOOKS, canary=canary))
    with open_store(path, readonly=True) as store:
        assert store.canaries() == []
        assert "canary" in {event.kind for event in store.events()}


# Machines, studies, and the proof of parity.


def test_a_changed_machine_is_refused_with_a_diff(path: Path) -> None:
    open_campaign(path, STUDY, fingerprint=MACHINE).close()
    with pytest.raises(InputError, match=r"cpu: a model -> another; .*--new-stratum"):
        open_campaign(path, STUDY, fingerprint=MACHINE | {"cpu": "another"})


@pytest.mark.parametrize("order", ["protocol", "original"])
def test_a_new_stratum_repeats_the_schedule_and_is_not_pooled(order: str, path: Path) -> None:
    chosen = study(order=order, repeats=2, max_blocks=2)
    assert work(path, HOOKS, chosen)
    slower = replace(HOOKS, launch=partial(modelled, effects=dict.fromkeys(("linen", "nnx", "equinox"), 1.0)))
    other = MACHINE | {"cpu": "another"}
    with open_campaign(path, chosen, fingerprint=other, new_stratum=True) as store:
        first, second = ([s for s in store.slots() if s.stratum == number] for number in (0, 1))
        assert [(s.cell, s.block, s.seed) for s in first] == [(s.cell, s.block, s.seed) for s in second]
        assert coordinator.work(store, chosen, slower)
        assert store.progress(1).ok == len(second)
        old, new = (block_times(store, number) for number in (0, 1))
        for cell in old:
            assert old[cell].keys() == new[cell].keys()
            assert all(new[cell][b].seconds == pytest.approx(2 * old[cell][b].seconds) for b in old[cell])
    with open_campaign(path, chosen, fingerprint=other) as store:
        assert len(store.strata()) == 2
    assert verify(path) == []


def test_of_two_that_open_a_stratum_at_once_one_joins(path: Path) -> None:
    other = MACHINE | {"cpu": "another"}
    open_campaign(path, STUDY, fingerprint=MACHINE).close()
    with open_store(path) as slow:
        seen = slow.slots()
        open_campaign(path, STUDY, fingerprint=other, new_stratum=True).close()
        with pytest.raises(ValueError, match="not all of its slots"):
            slow.add_stratum(other, coordinator.plan.again(STUDY, seen, 0, 1))
        assert len(slow.strata()) == 2
        assert len(slow.slots()) == 2 * len(seen)


def test_a_store_of_another_study_is_refused(path: Path) -> None:
    open_campaign(path, STUDY, fingerprint=MACHINE).close()
    with pytest.raises(InputError, match="with other configurations; choose another --store"):
        open_campaign(path, study(gammas=(0.5,)), fingerprint=MACHINE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 4096}, "threads=4096 but this process may use"),
        ({"device": "gpu"}, "no NVIDIA GPU answers"),
    ],
)
def test_what_this_machine_cannot_run_is_refused_before_anything_is_written(
    changes: dict[str, Any], message: str, path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        open_campaign(path / "below", study(**changes), fingerprint=MACHINE)
    assert not path.exists()


def test_a_campaign_keeps_its_seed(path: Path) -> None:
    open_campaign(path, STUDY, fingerprint=MACHINE, seed=7).close()
    with pytest.raises(InputError, match="begun with seed 7, not 0; leave out --seed"):
        open_campaign(path, STUDY, fingerprint=MACHINE, seed=0)
    with open_campaign(path, STUDY, fingerprint=MACHINE) as store:
        assert store.campaign()["seed"] == 7
    open_campaign(path, STUDY, fingerprint=MACHINE, seed=7).close()


def test_a_later_note_is_kept_beside_the_first(path: Path) -> None:
    for note in ("first", "", "first", "second"):
        open_campaign(path, STUDY, fingerprint=MACHINE, note=note).close()
    with open_store(path, readonly=True) as store:
        assert store.campaign()["note"] == "first"
        assert [(event.kind, event.detail) for event in store.events()] == [("note", "second")]


def test_a_negative_seed_is_refused_before_anything_is_written(path: Path) -> None:
    with pytest.raises(InputError, match="seed=-1"):
        open_campaign(path / "below", STUDY, fingerprint=MACHINE, seed=-1)
    assert not path.exists()


LINEN, NNX, EQUINOX, HAIKU, TORCH = (
    f"ppo/{name}/phase/mlp/float32/framework"
    for name in ("linen/jit", "nnx/split", "equinox/flatten", "haiku/jit", "pytorch/compile")
)


def test_parity_is_proven_once_for_a_state_of_the_code(path: Path) -> None:
    work(path)
    work(path, replace(HOOKS, prove=lambda *_: pytest.fail("proven already")))


def test_a_proof_of_backends_in_mode_none_is_none_of_their_programs(path: Path) -> None:
    older = {f"ppo/{name}": "pass" for name in ("linen", "nnx", "equinox")}
    work(path, replace(HOOKS, prove=lambda *_: older))
    asked: list[set[str]] = []
    work(path, replace(HOOKS, prove=lambda proofs, *rest: asked.append(set(proofs)) or proven(proofs, *rest)))
    assert asked == [{LINEN, NNX, EQUINOX}]


def test_a_proof_that_failed_is_tried_anew(path: Path) -> None:
    work(path, replace(HOOKS, prove=lambda *_: {LINEN: "not measured"}))
    with open_store(path, readonly=True) as store:
        (unproven, *_) = steady_claims(store)
    (gap, *_) = unproven.cells[0].gaps
    assert gap.causes[0] == ParityNotProven(NNX, "not measured")
    work(path)
    with open_store(path, readonly=True) as store:
        assert all(claim.verdict for claim in steady_claims(store))


def test_a_proof_that_is_interrupted_is_not_recorded(path: Path) -> None:
    def interrupted(*_: Any) -> dict[str, str]:
        raise Interrupted

    assert not work(path, replace(HOOKS, prove=interrupted))
    with open_store(path, readonly=True) as store:
        assert store.events() == []


PARITY = """
import json, os, sys
from benchback.measure.wire import write_frame
job = json.load(sys.stdin)
with open({asked!r}, "a") as asked:
    asked.write(json.dumps(job) + chr(10))
rows = [{{"proof": proof, "ok": True}} for proof in job if "nnx" not in proof]
with os.fdopen(int(sys.argv[-1]), "wb") as stream:
    write_frame(stream, {{"kind": "parity", "rows": rows}})
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a worker that finds every backend but nnx correct writes what it was asked."""
    code = PARITY.format(asked=str(tmp_path / "asked"))
    monkeypatch.setattr(gate, "COMMAND", (sys.executable, "-c", code))
    return tmp_path / "asked"


def test_proving_can_be_interrupted_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = tmp_path / "pid"
    monkeypatch.setattr(gate, "COMMAND", double(f"hang:{ready}"))
    started = time.monotonic()
    with pytest.raises(Interrupted):
        gate.measure([LINEN], lambda: not ready.exists())
    assert time.monotonic() - started < 300
    assert is_gone(int(ready.read_text()))


@pytest.mark.parametrize("fault", ["fail", "garble:0", "half:whole", "nothing"])
def test_a_worker_that_fails_proves_nothing(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "COMMAND", double(fault))
    assert gate.measure([LINEN, NNX]) == {}


def test_a_deviation_that_is_too_large_fails_its_proof() -> None:
    good = {"proof": "linen", "level": "L0", "quantity": "value", "deviation": 1e-9, "ok": True}
    assert gate.verdicts_of([good, good | {"deviation": 0.5, "ok": False}]) == {
        "linen": "fail: L0 value off by 5.0e-01"
    }
    assert gate.verdicts_of([good | {"deviation": None, "ok": False}]) == {"linen": "fail: L0 value no number"}
    failed = {"proof": "linen", "ok": False, "error": "InputError: no such device"}
    assert gate.verdicts_of([good, failed]) == {"linen": "fail: InputError: no such device"}


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_spoiled_memory_of_proofs_is_not_believed(content: str, tmp_path: Path, asked: Path) -> None:
    cache = tmp_path / "cache"
    assert gate.verdicts([LINEN, NNX], MACHINE, cache=cache) == {LINEN: "pass", NNX: "not measured"}
    (file,) = cache.iterdir()
    file.write_text(content)
    assert gate.verdicts([LINEN], MACHINE, cache=cache) == {LINEN: "pass"}
    assert json.loads(file.read_text()) == {LINEN: "pass"}
    assert gate.verdicts([LINEN], MACHINE, cache=Path("/proc/none")) == {LINEN: "pass"}


def test_parity_is_measured_on_all_processors_and_once_for_each_program(
    tmp_path: Path, asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.machine, "allowed_processors", lambda: [0, 1])
    three, cache = [LINEN, EQUINOX, TORCH], tmp_path / "cache"
    assert set(gate.verdicts(three, MACHINE, cache=cache).values()) == {"pass"}
    # The longest has a processor of its own.
    assert sorted(json.loads(line) for line in asked.read_text().splitlines()) == [[EQUINOX, LINEN], [TORCH]]
    asked.unlink()
    assert set(gate.verdicts([*three, HAIKU], MACHINE, cache=cache).values()) == {"pass"}
    assert json.loads(asked.read_text()) == [HAIKU]
    other = HAIKU.replace("/phase/", "/chunk/")
    assert gate.verdicts([other], MACHINE, cache=cache) == {other: "pass"}
    assert json.loads(asked.read_text().splitlines()[-1]) == [other]


# Sudden ends, and several at once.


@pytest.fixture(scope="module")
def coordinators() -> Iterator[Any]:
    """Starts coordinators as processes, without importing everything anew for each."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(DOUBLE.parent)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["campaign_double"])
    yield lambda path: context.Process(target=slowly, args=(path,))
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def check_kills(kills: int, folder: Path, unbroken: Path, coordinators: Any) -> None:
    """Kill at random moments and start again, in one campaign after another, until enough have been killed."""
    rng, done, campaigns = random.Random(0), 0, 0
    expected = table(unbroken)
    while done < kills:
        path = folder / f"{campaigns}.sqlite"
        campaigns += 1
        complete = False
        while not complete:
            process = coordinators(path)
            process.start()
            process.join(rng.uniform(0.0, 0.25) if done < kills else 60.0)
            complete = process.exitcode == 0
            if not complete:
                process.kill()
                process.join()
                assert process.exitcode == -signal.SIGKILL
                done += 1
            process.close()
        assert table(path) == expected


def test_a_killed_coordinator_costs_nothing(tmp_path: Path, unbroken: Path, coordinators: Any) -> None:
    check_kills(6, tmp_path, unbroken, coordinators)


@pytest.mark.slow
def test_two_hundred_killed_coordinators_cost_nothing(tmp_path: Path, unbroken: Path, coordinators: Any) -> None:
    check_kills(200, tmp_path, unbroken, coordinators)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_coordinators_that_work_at_once_share_the_work(
    count: int, path: Path, unbroken: Path, coordinators: Any
) -> None:
    several = [coordinators(path) for _ in range(count)]
    for process in several:
        process.start()
    for process in several:
        process.join(60)
        assert process.exitcode == 0
    assert table(path) == table(unbroken)


def test_groups_are_not_extended_twice_by_two_who_see_the_same(path: Path) -> None:
    assert work(path, HOOKS, study(max_blocks=2))
    with open_store(path) as one, open_store(path) as two:
        assert extend_groups(one, study(precision=1e-6), 0, HOOKS.log)
        once = one.slots()
        assert extend_groups(two, study(precision=1e-6), 0, HOOKS.log)
        assert two.slots() == once


@pytest.mark.parametrize("name", [f"{socket.gethostname()}:{2**22 + 1}", owner()], ids=["gone", "our own"])
def test_a_slot_of_a_dead_owner_is_taken_over_at_once(name: str, path: Path) -> None:
    with open_campaign(path, STUDY, fingerprint=MACHINE) as store:
        assert store.lease(name, 3600.0)
    started = time.monotonic()
    assert work(path)
    assert time.monotonic() - started < 1800


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        (owner(), False),
        (f"{socket.gethostname()}:{2**22 + 1}", True),
        (f"{socket.gethostname()}:1", False),
        ("another-host:1", False),
        (f"{socket.gethostname()}:x", False),
        (f"{socket.gethostname()}:{10**30}", False),
        ("", False),
    ],
    # Names of their own: those of the values differ between the processes that run the tests.
    ids=["ours", "no process", "the first process", "another host", "no number", "no such number", "nobody"],
)
def test_only_processes_of_this_host_are_known_to_be_gone(name: str, gone: bool) -> None:
    assert owner_is_gone(name) == gone


def test_a_coordinator_that_lost_its_slot_stores_nothing_for_it(path: Path) -> None:
    stolen: list[str] = []
    with open_campaign(path, STUDY, fingerprint=MACHINE) as thief:

        def launch(cell: Cell, seed: int, timeout_s: float, tick: Any) -> Ended:
            if not stolen:
                thief.forget(lambda name: True)
                lease = thief.lease("thief", 60.0)
                assert lease is not None
                stolen.append(lease.slot.id)
                thief.release(lease)
            return modelled(cell, seed)

        assert work(path, replace(HOOKS, launch=launch))
        assert "fenced" in {event.kind for event in thief.events()}
    assert {len(tries) for tries in attempts(path).values()} == {1}


def check_shots(slots: int, path: Path) -> None:
    """The first worker at every slot is killed at some moment of its life; the second is let live."""
    shots: Counter[tuple[str, int]] = Counter()

    def launch(cell: Cell, seed: int, timeout_s: float, tick: Any) -> Ended:
        shots[cell.id, seed] += 1
        if shots[cell.id, seed] > 1:
            return modelled(cell, seed)
        return run_cell(cell, seed, timeout_s, tick, double(f"shot:{0.2 * len(shots) / slots}"))

    chosen = study(gammas=(0.9,), min_blocks=slots // 4, max_blocks=slots // 4)
    assert work(path, replace(HOOKS, launch=launch), chosen)
    found = attempts(path)
    assert len(found) == slots
    for tries in found.values():
        assert [(a.outcome, a.detail) for a in tries] == [("signal", "ended by SIGKILL"), ("ok", "")]
    assert verify(path) == []


def test_killed_workers_are_recorded_and_the_campaign_completes(path: Path) -> None:
    check_shots(4, path)


@pytest.mark.slow
def test_a_hundred_killed_workers_are_recorded_and_the_campaign_completes(path: Path) -> None:
    check_shots(100, path)


@pytest.mark.parametrize("worker", ["hang", "polite"])
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2, [signal.SIGTERM] * 3])
def test_whoever_asks_to_stop_is_obeyed_at_once(worker: str, signals: list[int], path: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(DOUBLE), str(path)]
    ready = tmp_path / "pid"
    process = subprocess.Popen([*command, f"{worker}:{ready}"], stderr=subprocess.PIPE)
    pid = int(wait_for(ready))
    started = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    _, said = process.communicate(timeout=300)
    assert (process.returncode, said) == (130, b"")
    assert time.monotonic() - started < 120
    assert not psutil.pid_exists(pid)
    with open_store(path) as store:
        assert store.progress().running == 0
        assert list(store.attempts()) == []
    chosen = study(gammas=(0.9,), max_blocks=2)
    assert work(path, HOOKS, chosen)
    assert work(tmp_path / "whole.sqlite", HOOKS, chosen)
    assert table(path) == table(tmp_path / "whole.sqlite")


def test_asking_to_stop_during_a_canary_starts_no_run(path: Path) -> None:
    asked: list[bool] = []

    def canary() -> dict[str, float]:
        asked.append(True)
        return {"matmul_s": 1.0, "memcpy_s": 1.0}

    nothing = partial(pytest.fail, "a run was started")
    assert not work(path, replace(HOOKS, canary=canary, asked_to_stop=lambda: bool(asked), launch=nothing))
    with open_store(path) as store:
        assert store.progress().running == 0


# Disks.


def test_a_full_disk_is_said_and_the_campaign_goes_on_when_there_is_room(path: Path, unbroken: Path) -> None:
    with open_campaign(path, STUDY, fingerprint=MACHINE) as store:
        (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(OSError, match="the disk is full") as caught:
            coordinator.work(store, STUDY, HOOKS)
        assert caught.value.errno == errno.ENOSPC
        done = store.progress().ok
    assert done > 0
    assert verify(path) == []
    assert work(path)
    assert table(path) == table(unbroken)


# What is put in is found.

EFFECTS = {"linen": 0.0, "nnx": 0.0, "haiku": 0.02, "equinox": 0.05, "purejax": 0.10}


def injected(path: Path, groups: int, cv: float) -> Store:
    """A campaign of 20 blocks in which backends are slower by EFFECTS."""
    twenty = study(EFFECTS, [0.9 + i / 1000 for i in range(groups)], min_blocks=20, max_blocks=20)
    assert work(path, replace(HOOKS, launch=partial(modelled, effects=EFFECTS, cv=cv)), twenty)
    return open_store(path, readonly=True)


def p_of(row: Any) -> float:
    assert row.p is not None
    return row.p


def covers(row: Any, ratio: float) -> bool:
    assert row.low is not None
    return row.low <= ratio <= row.high


def test_known_effects_are_recovered(path: Path) -> None:
    with injected(path, 1, 0.005) as store:
        found = {claim.subject.run["backend"]: claim.overall for claim in steady_claims(store)}
    assert set(found) == set(EFFECTS), "the A/A pair goes by the name of its cell"
    for name, row in found.items():
        assert row.n == 20
        assert row.ratio == pytest.approx(1 + EFFECTS[name], rel=0.006)
    assert found["linen"].name == "linen/jit/phase' : linen/jit/phase"
    assert [found[name].verdict for name in EFFECTS][:2] == ["equivalent", "equivalent"]
    assert [found[name].verdict for name in ("equinox", "purejax")] == ["slower", "slower"]
    assert p_of(found["haiku"]) < 1e-6


def test_what_is_never_pooled_is_compared_apart(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other algorithms, and cells that lack the usual reference, have a reference and a table of their own."""
    ppo, dqn, alone = {"algorithm": "ppo"}, {"algorithm": "dqn"}, {"algorithm": "ppo", "gamma": 0.9}
    work_of = [(ppo, ("linen", "nnx")), (dqn, ("nnx", "haiku")), (alone, ("equinox", "purejax"))]
    products = [Product(axes={"backend": list(backends)}, fixed=fixed) for fixed, backends in work_of]
    mixed = Study(
        name="mixed", products=tuple(products), min_blocks=2, max_blocks=2, rerun_noisy=False, aa=False, protocol="runs"
    )
    assert work(path, HOOKS, mixed)
    with open_store(path, readonly=True) as store:
        print_outcome(store, as_json=True)
        found = json.loads(capsys.readouterr().out)["claims"]["total"]
        print_outcome(store, as_json=False)
        source = read(store)
        told = {(x.setting.algorithm, x.variant, x.reference) for x in all_claims(source)}
    assert [(row["setting"].partition(",")[0], row["overall"]["name"]) for row in found] == [
        ("ppo", "nnx/split/phase : linen/jit/phase"),
        ("ppo", "purejax/jit/phase : equinox/flatten/phase"),
        ("dqn", "haiku/jit/phase : nnx/split/phase"),
    ]
    pairs = {(row["setting"].partition(",")[0], row["variant"], row["reference"]) for row in found}
    assert told == pairs, "the page compares whom the terminal compares"
    assert set(source.references.values()) == {reference for _, _, reference in pairs}
    shown = capsys.readouterr().out
    assert shown.count("times as long") == 3
    assert "dqn, async, cpu, 1 thread: times as long" in shown


@pytest.mark.slow
def test_effects_are_found_and_covered_as_often_as_promised(path: Path) -> None:
    with injected(path, 10, 0.018) as store:
        rows = {claim.subject.run["backend"]: claim.cells for claim in steady_claims(store)}
    names = [name for name in EFFECTS if name != "linen"]
    covered = [covers(row, 1 + EFFECTS[name]) for name in names for row in rows[name]]
    assert len(covered) == 40
    assert sum(covered) >= 0.9 * 40
    assert sum(p_of(row) < 0.05 for row in rows["haiku"]) >= 0.8 * 10
    assert sum(p_of(row) < 0.05 for row in rows["nnx"]) <= 0.2 * 10
