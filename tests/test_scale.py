"""Scaling: the points that are asked, the knee, and files that can be looked at."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from benchback.errors import InputError
from benchback.measure import scale
from benchback.measure.process import Ended
from benchback.measure.record import Record


def row(value: int, speed: float | None, block: int = 0, axis: str = "envs") -> dict[str, Any]:
    place = {"backend": "linen", "axis": axis, "value": value, "block": block}
    if speed is None:
        return place | {"error": "memory: too much"}
    figures = {"steps_per_s": speed, "rollout_steps_per_s": 4 * speed, "update_steps_per_s": 2 * speed}
    return place | figures | {"peak_rss_bytes": 5e8, "error": ""}


def test_one_axis_is_varied_at_a_time() -> None:
    points = scale.points_for(backends=["linen"])
    assert [p.value for p in points if p.axis == "envs"] == [1, 4, 16, 64, 256, 1024, 4096]
    for point in points:
        at = {"envs": point.cell.run["num_envs"], "width": point.cell.run["hidden_sizes"][0]}
        at["threads"] = point.cell.threads
        assert {name: x for name, x in at.items() if name != point.axis} == {
            name: x for name, x in scale.BASE.items() if name != point.axis
        }
        assert at[point.axis] == point.value


@pytest.mark.parametrize(("processors", "threads"), [(1, [1]), (6, [1, 2, 4])])
def test_no_more_threads_than_processors(processors: int, threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale.machine, "allowed_processors", lambda: list(range(processors)))
    assert [p.value for p in scale.points_for(backends=["linen"], axes=["threads"])] == threads


def test_torch_scales_on_its_own_environment() -> None:
    assert {p.cell.run["env"] for p in scale.points_for(backends=["pytorch"])} == {"torch/CartPole-v1"}


@pytest.mark.parametrize(
    ("choice", "message"), [({"axes": ["depth"]}, "axis=depth is unknown"), ({"backends": ["jax"]}, "backend=jax")]
)
def test_nonsense_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scale.points_for(**choice)


def test_the_knee_is_where_more_buys_little() -> None:
    rows = [row(value, speed) for value, speed in ((1, 10.0), (4, 39.0), (16, 85.0), (64, 100.0), (256, 98.0))]
    lines = scale.summarise(rows)
    assert [line["value"] for line in lines if line["knee"]] == [16]
    assert scale.knee(scale.summarise(rows[:1])) is None


def test_a_point_that_failed_is_shown_as_such_and_blocks_are_medians() -> None:
    lines = scale.summarise([row(1, 10.0), row(1, 30.0, 1), row(1, 20.0, 2), row(4, None)])
    assert (lines[0]["steps_per_s"], lines[0]["slowest"], lines[0]["fastest"], lines[0]["blocks"]) == (20, 10, 30, 3)
    assert (lines[1]["steps_per_s"], lines[1]["error"]) == (None, "memory: too much")


def test_rows_come_from_the_records_of_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: dict[str, list[float | None]] = {
        "total_s": [9.0, 1.0, 0.5, 0.25, 0.5],
        "rollout_s": [9.0, 0.5, 0.1, 0.1, 0.1],
    }
    samples["update_s"] = [0.0, 0.5, 0.4, 0.4, 0.4]
    record = Record(samples, {}, {"env_steps_per_call": 100}, {"peak_rss_bytes": 7.0})
    message = {"kind": "record", "record": vars(record)}
    outcomes = iter([Ended("ok", messages=[message]), Ended("signal", "ended by SIGKILL")])
    monkeypatch.setattr(scale, "run_cell", lambda cell, seed, timeout_s: next(outcomes))
    kept = []
    rows = scale.run(scale.points_for(backends=["linen"], axes=["envs"], largest=4), blocks=1, keep=kept.append)
    assert kept == rows
    good, bad = sorted(rows, key=lambda row: row["error"])
    assert (good["steps_per_s"], good["rollout_steps_per_s"], good["peak_rss_bytes"]) == (200, 1000, 7.0)
    assert bad["error"] == "signal: ended by SIGKILL"


def test_files_hold_every_point_and_a_picture(tmp_path: Path) -> None:
    lines = scale.summarise([row(1, 10.0), row(4, 30.0), row(16, None), row(1, 5.0, axis="threads")])
    keep = scale.keeper(tmp_path / "out")
    for number in (1, 2):
        keep({"value": number})
    kept = (tmp_path / "out" / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in kept] == [{"value": 1}, {"value": 2}]
    with pytest.raises(InputError, match="exists"):
        scale.keeper(tmp_path / "out")
    scale.write(lines, tmp_path / "out")
    with (tmp_path / "out" / "scale.csv").open() as file:
        assert [r["value"] for r in csv.DictReader(file)] == ["1", "4", "16", "1"]
    assert (tmp_path / "out" / "scale.png").read_bytes().startswith(b"\x89PNG")
    assert "environments" in (tmp_path / "out" / "scale.svg").read_text()
