"""Scaling: the points that are asked, the knee, and files that can be looked at."""

import csv
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from campaign_double import HOOKS, MACHINE

from benchback.errors import InputError
from benchback.measure import coordinator, scale
from benchback.measure.coordinator import open_campaign
from benchback.measure.process import Ended
from benchback.measure.record import Cell, Record
from benchback.measure.verify import verify


def row(value: int, speed: float | None, block: int = 0, axis: str = "envs") -> dict[str, Any]:
    place = {"backend": "linen", "axis": axis, "value": value, "block": block}
    if speed is None:
        return place | {"error": "memory: too much"}
    figures = {"steps_per_s": speed, "rollout_steps_per_s": 4 * speed, "update_steps_per_s": 2 * speed}
    return place | figures | {"peak_rss_bytes": 5e8, "error": ""}


def test_one_axis_is_varied_at_a_time() -> None:
    entries = scale.study_for(backends=["linen"]).entries
    assert [scale.value_at(e.cell, "envs") for e in entries if e.label == "envs"] == [1, 4, 16, 64, 256, 1024, 4096]
    for entry in entries:
        at = {axis: scale.value_at(entry.cell, axis) for axis in scale.AXES if axis != entry.label}
        assert at == {axis: x for axis, x in scale.BASE.items() if axis != entry.label}


def test_backends_at_one_point_are_compared_with_each_other_and_the_base_is_run_once() -> None:
    study = scale.study_for(backends=["linen", "pytorch"], axes=["envs", "width"])
    groups = Counter(cell.group for cell in study.cells)
    assert set(groups.values()) == {2}
    assert len(groups) == 7 + 4 - 1


@pytest.mark.parametrize(("processors", "threads"), [(1, [1]), (6, [1, 2, 4])])
def test_no_more_threads_than_processors(processors: int, threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale.machine, "allowed_processors", lambda: list(range(processors)))
    assert scale.values_on("threads") == threads


def test_torch_scales_on_its_own_environment() -> None:
    assert {cell.run["env"] for cell in scale.study_for(backends=["pytorch"]).cells} == {"torch/CartPole-v1"}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"axes": ["depth"]}, "axis=depth is unknown"),
        ({"backends": ["jax"]}, "backend=jax"),
        ({"blocks": 0}, "at least 1"),
        ({"largest": 0}, "leaves no value"),
    ],
)
def test_nonsense_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scale.study_for(**choice)


def test_the_knee_is_where_more_buys_little() -> None:
    rows = [row(value, speed) for value, speed in ((1, 10.0), (4, 39.0), (16, 85.0), (64, 100.0), (256, 98.0))]
    lines = scale.summarise(rows)
    assert [line["value"] for line in lines if line["knee"]] == [16]
    assert scale.knee(scale.summarise(rows[:1])) is None


def test_a_point_that_failed_is_shown_as_such_and_blocks_are_medians() -> None:
    lines = scale.summarise([row(1, 10.0), row(1, 30.0, 1), row(1, 20.0, 2), row(4, None)])
    assert (lines[0]["steps_per_s"], lines[0]["slowest"], lines[0]["fastest"], lines[0]["blocks"]) == (20, 10, 30, 3)
    assert (lines[1]["steps_per_s"], lines[1]["error"], lines[1]["blocks"]) == (None, "memory: too much", 0)
    (partly,) = scale.summarise([row(1, 10.0), row(1, None, 1), row(1, 30.0, 2)])
    assert (partly["steps_per_s"], partly["blocks"], partly["error"]) == (20, 2, "memory: too much")


def test_rows_come_from_the_runs_in_the_store(tmp_path: Path) -> None:
    # The first two calls are warm-up: with them every median is another.
    samples: dict[str, list[float | None]] = {
        "total_s": [9.0, 1.0, 0.5, 0.25, 0.4],
        "update_s": [3.0, 2.0, 0.5, 0.2, 0.2],
    }
    samples["rollout_s"] = [9.0, 0.5, 0.2, 0.1, 0.1]
    ledger = {"env_steps_per_call": 100, "iterations_per_call": 1}
    record = Record(samples, {"first_call": 1.0, "finished": 2.0}, ledger, {"peak_rss_bytes": 7.0})

    def launch(cell: Cell, seed: int, timeout_s: float, tick: Any) -> Ended:
        if cell.run["num_envs"] == 4:
            return Ended("signal", "ended by SIGKILL")
        return Ended("ok", messages=[{"kind": "record", "record": asdict(record)}])

    study = scale.study_for(backends=["linen"], axes=["envs"], largest=4, blocks=2)
    hooks = replace(HOOKS, launch=launch, prove=None)
    with open_campaign(tmp_path / "scale.sqlite", study, fingerprint=MACHINE) as store:
        assert coordinator.work(store, study, hooks)
        good, _, bad, _ = scale.rows(store, study)
    assert (good["steps_per_s"], good["rollout_steps_per_s"], good["update_steps_per_s"]) == (250, 1000, 500)
    assert good["peak_rss_bytes"] == 7.0
    assert bad["error"] == "signal: ended by SIGKILL"
    assert verify(tmp_path / "scale.sqlite") == []


def test_files_hold_every_point_and_a_picture(tmp_path: Path) -> None:
    lines = scale.summarise([row(1, 10.0), row(4, 30.0), row(16, None), row(1, 5.0, axis="threads")])
    for _ in range(2):
        scale.write(lines, tmp_path / "out")
    with (tmp_path / "out" / "scale.csv").open() as file:
        assert [r["value"] for r in csv.DictReader(file)] == ["1", "4", "16", "1"]
    assert (tmp_path / "out" / "scale.png").read_bytes().startswith(b"\x89PNG")
    assert "environments" in (tmp_path / "out" / "scale.svg").read_text()
