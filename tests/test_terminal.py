"""Figures as the terminal shows them, recomputed by hand, and flags that reach what they are about."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_double import STUDY
from store_writer import attempt_for

from benchback.cli import episodes, machines
from benchback.cli.board import Board
from benchback.cli.planning import PlanFlags, chosen_study, print_plan
from benchback.cli.stores import event_text
from benchback.cli.tables import hours
from benchback.measure import complexity, machine, plan
from benchback.measure.lease import Event
from benchback.measure.record import Attempt
from benchback.measure.store import create
from benchback.training.run import Run


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.0, "7 s"), (99.0, "99 s"), (720.0, "12 min"), (5940.0, "99 min"), (12240.0, "3.4 h")]
)
def test_durations_are_in_the_unit_they_name(seconds: float, text: str) -> None:
    assert hours(seconds) == text


def test_episodes_that_did_not_finish_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    returns = np.array([10.0, np.nan, 20.0, np.nan, 60.0])
    episodes.print_evaluation(Run.from_dict({}), 7, returns, as_json=True)
    found = json.loads(capsys.readouterr().out)
    expected = {"iteration": 7, "episodes": 3, "unfinished": 2, "mean": 30.0, "min": 10.0, "max": 60.0}
    assert {name: found[name] for name in expected} == expected
    episodes.print_evaluation(Run.from_dict({}), 7, returns, as_json=False)
    assert "return 30.0 +- 21.6 (min 10.0, max 60.0) over 3 episodes, 2 unfinished" in capsys.readouterr().out


def test_steps_are_relative_to_the_fastest_at_the_same_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {("slow", 4): 8e-6, ("fast", 4): 2e-6, ("slow", 64): 9e-5, ("fast", 64): 3e-5}
    monkeypatch.setattr(complexity, "step_seconds", lambda id, size: seconds[id, size])
    rows = complexity.measure(("slow", "fast"), (64, 4))
    assert {(row["env"], row["num_envs"]): row["step_s"] for row in rows} == seconds
    assert [row["relative"] for row in rows] == pytest.approx([3.0, 1.0, 4.0, 1.0])
    machines.print_complexity(rows, as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] in (["slow"], ["fast"])]
    assert lines == [
        ["fast", "4", "2.0", "1.0"],
        ["slow", "4", "8.0", "4.0"],
        ["fast", "64", "30.0", "1.0"],
        ["slow", "64", "90.0", "3.0"],
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), {}),
        (("--blocks", "3"), {"min_blocks": 3, "max_blocks": 3}),
        (("--order", "original", "--repeats", "4"), {"order": "original", "repeats": 4}),
        (("--order", "protocol"), {"order": "protocol"}),
        (("--scale", "0.5"), {"scale": 0.5, "comparable": False}),
        (("--index", "2"), {"only": (2,)}),
        (("--from", "1", "--count", "3"), {"only": (1, 2, 3)}),
    ],
)
def test_flags_of_a_plan_reach_the_study(flags: Sequence[str], expected: dict[str, Any]) -> None:
    usual, _ = chosen_study(["benchback_rl"], "plan", PlanFlags)
    study, _ = chosen_study(["benchback_rl", *flags], "plan", PlanFlags)
    names = ("min_blocks", "max_blocks", "order", "repeats", "scale", "comparable", "only")
    assert {name: getattr(study, name) for name in names} == {name: getattr(usual, name) for name in names} | expected


def test_a_board_counts_failures_and_not_interruptions(tmp_path: Path) -> None:
    cells, slots = plan.schedule(STUDY, 0)
    with create(tmp_path / "board.sqlite", {"study": {"name": "board"}}, cells, slots) as store:
        board = Board(store, as_json=True)
        for outcome in ("ok", "timeout", "interrupted", "error"):
            lease = store.lease("me", 60.0)
            assert lease is not None
            record = attempt_for(lease).record if outcome == "ok" else None
            attempt = Attempt(lease.slot.id, lease.number, outcome, "2026-01-01T00:00:00+00:00", 2.0, record=record)
            store.finish(lease, attempt)
            board.learn(lease.slot.cell, attempt)
        assert board.failures == 2
        assert Board(store, as_json=True).failures == 2
        assert board.time_left(5) == Board(store, as_json=True).time_left(5) == "10 s left +- 0 s"


@pytest.mark.parametrize(("load", "factor"), [(0.0, 1.0), (1.0, 1.0), (3.0, 2.0)])
def test_a_plan_takes_longer_while_others_are_busy(load: float, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (load, 9.0, 9.0))
    monkeypatch.setattr(machine, "allowed_processors", lambda: [0, 1])
    assert machine.slowdown(1) == factor


@pytest.mark.parametrize("name", ["smoke", "hour", "networks"])
def test_a_plan_names_models_by_their_layers_and_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    study, _ = chosen_study([name], "plan", PlanFlags)
    print_plan(study, *plan.schedule(study, 0), plan.estimate(study), False, [])
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    widths = {"x".join(map(str, entry.cell.run["hidden_sizes"])) for entry in study.entries}
    assert [width for width in widths if not re.search(rf"\b{width}\b", told)] == []


def test_status_counts_the_programs_that_passed_and_names_the_others() -> None:
    verdicts = {"ppo/linen/jit": "pass", "ppo/nnx/split": "L2 metric/loss 1e-3"}
    text = event_text(Event("2026-11-18T00:59:21.205+00:00", "parity", {"verdicts": verdicts}))
    assert text == "1 of 2 programs pass; not ppo/nnx/split (L2 metric/loss 1e-3)"
    assert event_text(Event("", "stopped", {"why": "asked"})) == '{"why": "asked"}'
