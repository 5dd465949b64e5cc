"""One relay of real processes without a framework: who runs when, and what happens if one of them does not."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from campaign_double import BACKENDS, study
from relay_double import CALL_S, Fault, give, log, seconds_of

from benchback import stats
from benchback.measure import process
from benchback.measure import relay as relays
from benchback.measure.metrics import CachesNotEmpty, run_metrics, run_turns
from benchback.measure.process import Ended, Interrupted
from benchback.measure.record import Cell, Record
from benchback.measure.relay import Pace, Relay, calls_of_a_turn, relay_launch, rounds_of, run_relay, warm_iterations

PACE = Pace(turn_s=2 * CALL_S, relay_s=0.6)
"""Turns of three calls: six rounds of three runners."""
SEED = 7


def cells(*backends: str, **changes: Any) -> list[Cell]:
    return list(study(backends, [0.9], **changes).cells)


TWO = cells("linen", "nnx")
THREE = cells(*BACKENDS)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No process of a relay survives it."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def run(
    folder: Path,
    *faults: Fault,
    cells: Sequence[Cell] = THREE,
    caches: Path | None = None,
    timeout_s: float = 300.0,
    tick: Callable[[], bool] = lambda: True,
) -> dict[str, Ended]:
    return run_relay(Relay(cells, SEED, timeout_s, PACE, tick, caches=caches, command=give(folder, *faults)))


def record_of(ended: Ended) -> Record:
    assert ended.outcome == "ok", ended
    return Record.from_dict(ended.messages[0]["record"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Record], list[dict[str, Any]]]:
    """The records of a relay to which nothing happened, by backend, and what its runners noted."""
    folder = tmp_path_factory.mktemp("whole")
    found = run(folder)
    assert list(found) == [cell.id for cell in THREE]
    return {cell.run["backend"]: record_of(found[cell.id]) for cell in THREE}, log(folder)


# Who runs when.


def test_exactly_one_runs_at_a_time(whole: tuple[dict[str, Record], list[dict[str, Any]]]) -> None:
    _, noted = whole
    assert all(earlier["to"] <= later["from"] for earlier, later in pairwise(noted))
    assert all(x["from"] <= x["to"] for x in noted)
    kinds = [x["what"] for x in noted]
    assert kinds == ["start"] * 3 + ["turn"] * 18 + ["finish"] * 3


def test_orders_are_balanced_and_recorded_as_run(whole: tuple[dict[str, Record], list[dict[str, Any]]]) -> None:
    records, noted = whole
    turns = [(x["round"], x["position"], x["name"]) for x in noted if x["what"] == "turn"]
    assert turns == sorted(turns)
    orders = [[name for number, _, name in turns if number == r] for r in range(1, 7)]
    expected = [[BACKENDS[i] for i in order] for order in stats.balanced_orders(3)]
    assert sorted(orders) == sorted(expected)
    assert orders != expected, "not shuffled"
    for name, record in records.items():
        samples = [record.samples[x] for x in ("round", "position")]
        told = list(dict.fromkeys(x for x in zip(*samples, strict=True) if x[0]))
        assert told == [(number, position) for number, position, who in turns if who == name]


def test_known_durations_come_out_exactly(whole: tuple[dict[str, Record], list[dict[str, Any]]]) -> None:
    """The first call of a turn takes ten times as long in the double, and is not counted."""
    records, _ = whole
    for cell in THREE:
        call_s = seconds_of(cell, SEED)
        turns = run_turns(records[cell.run["backend"]])["steady"]
        assert turns == {number: pytest.approx(call_s, rel=1e-12) for number in range(1, 7)}
        # A second to the end of the first call, two more of warm-up, three that are left of six.
        assert run_metrics(records[cell.run["backend"]])["total"] == pytest.approx(1.0 + 5 * call_s)


def test_a_relay_of_another_seed_has_another_order(tmp_path: Path) -> None:
    orders = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        run_relay(Relay(THREE, seed, 300.0, PACE, lambda: True, command=give(folder)))
        orders.append([x["name"] for x in log(folder) if x["what"] == "turn"])
    assert orders[0] != orders[1]


# Runners that do not do their part.

FAULTS = {
    "signalled": ("signal", "ended by SIGKILL"),
    "exited": ("error", "exit code 3: the reason why"),
    "left": ("garbled", "the worker ended without an answer"),
    "starved": ("memory", "RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
    "hanging": ("timeout", "not done after"),
    "garbage": ("garbled", "is not the beginning of a message"),
    "empty": ("garbled", "None of an answer must be a number greater than 0"),
}


@pytest.mark.parametrize("at", ["start", "turn", "finish"])
@pytest.mark.parametrize("do", FAULTS)
def test_whatever_a_runner_does_is_told_of_that_one_only(
    do: str, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linen, nnx = TWO
    monkeypatch.setattr(relays, "SLOW", 0.0)
    for limit_s in (3.0, 20.0, 300.0):  # a busy machine may take longer than the first where nobody hangs
        monkeypatch.setattr(relays, "LONGEST_TURN_S", limit_s)
        found = run(tmp_path, Fault("nnx", do, at, times=9), cells=TWO, timeout_s=limit_s)
        if linen.id not in found and (do == "hanging" or found[nnx.id].outcome != "timeout"):
            break
    outcome, detail = FAULTS[do]
    if (do, at) == ("empty", "finish"):
        detail = "a record must have exactly samples, marks, ledger, memory"
    assert [(id, ended.outcome) for id, ended in found.items()] == [(nnx.id, outcome)]
    assert detail in found[nnx.id].detail
    assert "\n" not in found[nnx.id].detail


@pytest.mark.parametrize("do", ["twice", "again"])
def test_answers_that_nobody_asked_for_are_not_taken_for_later_ones(do: str, tmp_path: Path) -> None:
    (ended,) = run(tmp_path, Fault("nnx", do), cells=TWO).values()
    assert ended.outcome == "garbled"
    assert ended.detail in (
        "the worker sent more than one message",
        "the worker sent a message that nobody asked for",
    )


def test_a_runner_killed_for_want_of_memory_while_it_rested_is_known_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = [0]
    monkeypatch.setattr(process.machine, "out_of_memory_kills", lambda: kills[0])

    def tick() -> bool:
        kills[0] = int(any(x["what"] == "turn" for x in log(tmp_path)))
        return True

    (ended,) = run(tmp_path, Fault("nnx", "signalled"), cells=TWO, tick=tick).values()
    assert (ended.outcome, ended.detail) == ("memory", "killed by the system for want of memory")


def test_a_failure_took_as_long_as_it_took(tmp_path: Path) -> None:
    (ended,) = run(tmp_path, Fault("nnx", "exited"), cells=TWO).values()
    spent_s = sum(x["to"] - x["from"] for x in log(tmp_path) if x["name"] == "nnx")
    assert spent_s <= ended.duration_s < relays.LONGEST_TURN_S


def test_a_request_to_stop_ends_every_process(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, Fault("nnx", "waiting"), tick=lambda: not any(x["what"] == "turn" for x in log(tmp_path)))
    assert not any(psutil.pid_exists(x["pid"]) for x in log(tmp_path))


# Memory.


class Available:
    """The memory of a machine on which this much is free."""

    def __init__(self, free_bytes: float) -> None:
        self.available = free_bytes


def legs_of(noted: list[dict[str, Any]]) -> dict[int, set[str]]:
    """Round -> who ran in it."""
    found: dict[int, set[str]] = {}
    for x in noted:
        if x["what"] == "turn":
            found.setdefault(x["round"], set()).add(x["name"])
    return found


def check_pairs(found: dict[str, Ended], noted: list[dict[str, Any]], first: str, others: Sequence[str]) -> None:
    legs = legs_of(noted)
    assert [names for _, names in sorted(legs.items())] == [
        {first, other} for other in others for _ in range(len(legs) // len(others))
    ]
    assert list(legs) == list(range(1, len(legs) + 1)), "rounds of all legs are counted on"
    assert all(earlier["to"] <= later["from"] for earlier, later in pairwise(noted))
    turns = {id: run_turns(record_of(ended))["steady"] for id, ended in found.items()}
    reference = turns.pop(next(cell.id for cell in THREE if cell.run["backend"] == first))
    for other in turns.values():
        assert isinstance(stats.relay_ratio(other, reference), float)
    one, two = turns.values()
    assert isinstance(stats.relay_ratio(one, two), stats.NoCommonRound)


def test_what_does_not_fit_in_memory_runs_in_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runners of 0.1 GB are there when the third does not find as much."""
    started = [0]

    def memory() -> Available:
        started[0] += 1
        return Available(1.0e8 if started[0] == 3 else 9e9)

    monkeypatch.setattr(relays.psutil, "virtual_memory", memory)
    found = run(tmp_path)
    assert len(found) == 3
    noted = log(tmp_path)
    last = max(i for i, x in enumerate(noted) if x["what"] == "start" and x["name"] == "linen")
    check_pairs(found, noted[last:], "linen", ["nnx", "equinox"])


def test_on_a_gpu_they_run_in_pairs_whatever_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays.psutil, "virtual_memory", lambda: Available(1.0))
    on_gpu = cells(*BACKENDS, device="gpu")
    found = run(tmp_path, cells=on_gpu)
    assert [x["name"] for x in log(tmp_path) if x["what"] == "start"] == ["linen", "nnx", "equinox"]
    assert {frozenset(names) for names in legs_of(log(tmp_path)).values()} == {
        frozenset({"linen", "nnx"}),
        frozenset({"linen", "equinox"}),
    }
    assert len(found) == 3


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_one_alone_takes_turns_with_nobody(device: str, tmp_path: Path) -> None:
    alone = cells("linen", device=device)
    assert [ended.outcome for ended in run(tmp_path, cells=alone).values()] == ["ok"]


# Compile caches.


def test_every_process_has_an_empty_folder_of_its_own_that_is_deleted(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for ended in run(tmp_path / name).values():
            record = record_of(ended)
            assert record.ledger["cached_files_before"] == 0
            assert run_metrics(record)["cold_start"] == 1.0
    folders = {x["caches"] for name in ("one", "two") for x in log(tmp_path / name)}
    assert len(folders) == 6
    assert not any(os.path.exists(folder) for folder in folders)


def test_kept_caches_are_found_by_the_next_relay_of_a_cell(tmp_path: Path) -> None:
    with relay_launch(keep_caches=True, command=give(tmp_path / "folder")) as launch:
        first, second = (launch(Relay(THREE, seed, 300.0, PACE, lambda: True)) for seed in (1, 2))
        folders = {x["caches"] for x in log(tmp_path / "folder")}
        assert len(folders) == 3
    assert not any(os.path.exists(folder) for folder in folders)
    for ended in first.values():
        assert run_metrics(record_of(ended))["cold_start"] == 1.0
    for ended in second.values():
        metrics = run_metrics(record_of(ended))
        assert metrics["cold_start"] == metrics["total"] == CachesNotEmpty(1)
        assert isinstance(metrics["steady"], float)


def loaded(folder: Path, *faults: Fault, timeout_s: float = 300.0) -> tuple[dict[str, Ended], list[dict[str, Any]]]:
    """A relay whose programs an earlier one has compiled, and what its runners noted."""
    caches = folder / "caches"
    run(folder / "first", caches=caches)
    return run(folder / "second", *faults, caches=caches, timeout_s=timeout_s), log(folder / "second")


def in_turns_s(record: Record) -> float:
    """Seconds of the calls in rounds."""
    places = zip(record.samples["total_s"], record.samples["round"], strict=True)
    return sum(seconds or 0.0 for seconds, place in places if place)


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Who was pinned to which lane, in order, on a machine with two."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(relays.machine, "lanes", lambda count: 2)
    monkeypatch.setattr(relays.machine, "pin", lambda pid, count, lane=0, busy=None: found.append((pid, lane)))
    return found


def test_runners_that_load_their_programs_start_on_all_processors_and_then_run_on_the_usual_ones(
    tmp_path: Path, pinned: list[tuple[int, int]]
) -> None:
    found, noted = loaded(tmp_path)
    assert [ended.outcome for ended in found.values()] == ["ok"] * 3
    starts = [x for x in noted if x["what"] == "start"]
    pids = {x["pid"]: x["name"] for x in starts}
    first, second, third = [x for x in pinned if x[0] in pids][:3]
    assert {first[1], second[1]} == {0, 1}, "two at a time, apart"
    assert third[0] not in (first[0], second[0])
    last = {pid: lane for pid, lane in pinned if pid in pids}
    assert set(last.values()) == {0}, "all take their turns in one place"
    turns = [x for x in noted if x["what"] == "turn"]
    assert [x["round"] for x in turns[:3]] == [0, 0, 0], "calls are timed there before the first round"
    assert max(x["to"] for x in starts) <= min(x["from"] for x in turns)
    assert all(earlier["to"] <= later["from"] for earlier, later in pairwise(turns))
    for record in map(record_of, found.values()):
        assert 0 not in run_turns(record)["steady"]
    began_s = min(x["from"] for x in noted)
    started_s = min(x["from"] for x in turns if x["round"]) - began_s
    counted_s = sum(ended.duration_s - in_turns_s(record_of(ended)) for ended in found.values())
    assert counted_s <= 1.1 * started_s + 0.1, "times that overlap are counted once"


@pytest.mark.usefixtures("pinned")
def test_starts_that_compile_are_alone(tmp_path: Path) -> None:
    """Two have compiled programs and the third has none: its start is measured."""
    run(tmp_path / "first", cells=TWO, caches=tmp_path / "caches")
    run(tmp_path / "second", caches=tmp_path / "caches")
    starts = [x for x in log(tmp_path / "second") if x["what"] == "start"]
    assert len(starts) == 3
    assert all(earlier["to"] <= later["from"] for earlier, later in pairwise(starts))


@pytest.mark.usefixtures("pinned")
def test_a_folder_without_programs_is_no_reason_to_start_side_by_side(tmp_path: Path) -> None:
    """A process that was killed before it compiled anything leaves its folder: its next start is measured."""
    for cell in THREE:
        (tmp_path / "caches" / cell.id / "cache").mkdir(parents=True)
    found = run(tmp_path / "runners", caches=tmp_path / "caches")
    starts = [x for x in log(tmp_path / "runners") if x["what"] == "start"]
    assert all(earlier["to"] <= later["from"] for earlier, later in pairwise(starts))
    assert all(run_metrics(record_of(ended))["cold_start"] == 1.0 for ended in found.values())


def test_one_writes_the_weights_and_the_others_load_them(tmp_path: Path) -> None:
    for caches in (None, tmp_path / "caches"):
        run(tmp_path / "runners", caches=caches)
        run(tmp_path / "runners", caches=caches)
    written = [x["writes"] for x in log(tmp_path / "runners") if x["what"] == "start"]
    assert written[:9] == [True, False, False] * 3
    assert sorted(written[9:]) == [False, False, True], "starts side by side end in any order"


@pytest.mark.parametrize("who", ["linen", "equinox"])
@pytest.mark.usefixtures("pinned")
def test_a_start_among_several_that_fails_is_told_of_that_one_only(who: str, tmp_path: Path) -> None:
    found, _ = loaded(tmp_path, Fault(who, "exited", "start"))
    assert [ended.detail for ended in found.values()] == ["exit code 3: the reason why"]
    assert list(found) == [cell.id for cell in THREE if cell.run["backend"] == who]


@pytest.mark.usefixtures("pinned")
def test_a_start_among_several_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    run(tmp_path / "first", caches=tmp_path / "caches")
    for limit_s in (3.0, 30.0):  # a busy machine may need more than the first to start the others
        fault = Fault("nnx", "hanging", "start")
        found = run(tmp_path / f"second {limit_s}", fault, caches=tmp_path / "caches", timeout_s=limit_s)
        if list(found) == [THREE[1].id]:
            break
    assert [(id, ended.outcome) for id, ended in found.items()] == [(THREE[1].id, "timeout")]
    assert found[THREE[1].id].detail == f"not done after {limit_s:g} s"


# How long turns and relays are.


def test_a_turn_lasts_and_has_a_call_to_spare() -> None:
    (cell,) = cells("linen")
    assert [calls_of_a_turn(cell, x, 0.05, 100) for x in (0.001, 0.02, 0.05, 0.2, 0.6)] == [51, 4, 2, 2, 1]
    assert calls_of_a_turn(cell, 0.001, 0.05, 20) == 20
    assert calls_of_a_turn(cell, 0.001, 0.05, 0) == 2


@pytest.mark.parametrize(("round_s", "rounds"), [(0.1, 198), (1.0, 18), (3.0, 6), (5.0, 4), (9.0, 3), (100.0, 3)])
def test_rounds_fill_the_time_with_every_order_as_often(round_s: float, rounds: int) -> None:
    assert rounds_of(round_s, 6, 20.0) == rounds


def test_everything_is_compiled_and_the_learning_rate_lasts(tmp_path: Path) -> None:
    def of(*rows: dict[str, Any], **fixed: Any) -> tuple[int, int]:
        return warm_iterations([Cell({**THREE[0].run, **fixed, **row}) for row in rows])

    chunk, half = {"unit": "chunk", "chunk": 6}, {"unit": "chunk", "chunk": 2}
    assert of({}, num_iterations=100) == (3, 100)
    assert of({}, num_iterations=3) == (3, 5)
    assert of({}, half, num_iterations=100) == (6, 100)
    assert of(chunk, {}, num_iterations=6) == (6, 18), "one program for the whole training"
    warm, most = of(half, {"unit": "chunk", "chunk": 3}, num_iterations=12)
    assert warm % math.lcm(2, 3) == most % math.lcm(2, 3) == 0
    assert most >= warm + 12
