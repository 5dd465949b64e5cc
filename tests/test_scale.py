"""Scaling: the points that are asked, what they are measured by, and files that can be looked at."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from campaign_double import HOOKS, MACHINE

from benchback.cli import reporting, workloads
from benchback.errors import InputError
from benchback.measure import caches, coordinator, scale
from benchback.measure.coordinator import open_campaign
from benchback.measure.peers import environments
from benchback.measure.peers.launch import demand_of
from benchback.measure.peers.sides import SIDES
from benchback.measure.peers.work import told
from benchback.measure.process import Ended
from benchback.measure.record import Cell, Record
from benchback.measure.verify import verify
from benchback.report import scale as report
from benchback.stats import Fitted

BASE = {"envs": 64, "width": 64, "depth": 2, "threads": 1, "agents": 1}
PEERS = ("purejax_style", "rejax", "stable_baselines3", "sbx")


def row(value: int, speed: float | None, block: int = 0, axis: str = "envs", side: str = "linen/jit/phase") -> Any:
    place = {"side": side, "axis": axis, "value": value, "block": block}
    if speed is None:
        return place | {"error": "memory: too much"}
    figures = {"steps_per_s": speed, "rollout_steps_per_s": 4 * speed, "update_steps_per_s": 2 * speed}
    return place | figures | {"step_us": 1e6 / speed, "peak_rss_bytes": 5e8, "error": ""}


def test_one_axis_is_varied_at_a_time() -> None:
    entries = scale.study_for(backends=["linen"]).entries
    assert [scale.AXES["envs"].value(e.cell) for e in entries if e.label == "envs"] == [4**i for i in range(8)]
    for entry in entries:
        if entry.label != "replay":
            at = {axis: scale.AXES[axis].value(entry.cell) for axis in BASE if axis != entry.label}
            assert at == {axis: x for axis, x in BASE.items() if axis != entry.label}
    others = [{k: x for k, x in e.cell.run.items() if k != "replay_capacity"} for e in entries if e.label == "replay"]
    assert len(others) == 5
    assert all(other == others[0] for other in others)


@pytest.mark.parametrize("axis", scale.AXES)
def test_a_value_is_read_from_the_cell_it_was_given(axis: str) -> None:
    entries = scale.study_for(backends=["linen"], axes=[axis], peers=["purejax_style"]).entries
    values = scale.values_on(axis)
    assert [scale.AXES[axis].value(entry.cell) for entry in entries] == [*values, *values]


def test_points_of_the_axes_reach_as_far_as_they_say() -> None:
    reach = {axis: (about.values[0], about.values[-1]) for axis, about in scale.AXES.items() if axis != "threads"}
    expected = {"envs": (1, 16_384), "width": (16, 1024), "depth": (1, 8), "agents": (1, 512)}
    assert reach == expected | {"replay": (10_000, 1_000_000)}


def test_backends_at_one_point_are_compared_with_each_other_and_the_base_is_run_once() -> None:
    study = scale.study_for(backends=["linen", "pytorch"], axes=["envs", "width"])
    groups = Counter(cell.group for cell in study.cells)
    assert set(groups.values()) == {2}
    assert len(groups) == 8 + 7 - 1


@pytest.mark.parametrize(("processors", "threads"), [(1, [1]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_threads_go_up_to_all_processors(processors: int, threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale.machine, "allowed_processors", lambda: list(range(processors)))
    assert scale.values_on("threads") == threads


def test_torch_scales_on_its_own_environment_and_has_no_axis_of_agents() -> None:
    study = scale.study_for(backends=["pytorch"])
    assert {cell.run["env"] for cell in study.cells} == {"torch/CartPole-v1"}
    assert {entry.label for entry in study.entries} == {*scale.AXES} - {"agents"}


@pytest.mark.parametrize("peer", PEERS)
def test_peers_do_the_points_that_they_can_as_their_own_program_takes_them(peer: str) -> None:
    cells = [cell for cell in scale.study_for(backends=["linen"], peers=[peer]).cells if cell.kind == "peer"]
    able = {"envs", "width", "depth", "threads", "replay"} | ({"agents"} if SIDES[peer].populations else set())
    study = scale.study_for(backends=["linen"], peers=[peer])
    assert {entry.label for entry in study.entries if entry.cell.kind == "peer"} == able
    for cell in cells:
        side = SIDES[cell.variant]
        assert demand_of(side, cell) is None
        assert {name: x for name, x in told(cell, 3).items() if name != "seed"}.keys() >= {"env", "num_envs", "gamma"}
        assert (cell.run["env"], cell.run["algorithm"] in side.algorithms) == ("CartPole-v1", True)


def test_peers_do_the_same_work_as_ours() -> None:
    study = scale.study_for(backends=["linen"], peers=["purejax_style"], axes=["envs", "depth", "agents"])
    by_place: dict[Any, list[Cell]] = {}
    for entry in study.entries:
        by_place.setdefault((entry.label, scale.AXES[entry.label].value(entry.cell)), []).append(entry.cell)
    for ours, theirs in by_place.values():
        work = {name: x for name, x in theirs.run.items() if name not in ("workload", "variant", "env", "agents")}
        # Fields that are not written where they have their defaults.
        assert {name: ours.run.get(name, x) for name, x in work.items()} == work
        assert ours.run.keys() >= {"num_envs", "hidden_sizes", "num_minibatches", "anneal"}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"axes": ["height"]}, "axis=height is unknown"),
        ({"backends": ["jax"]}, "backend=jax"),
        ({"peers": ["rejaks"]}, "did you mean rejax"),
        ({"blocks": 0}, "at least 1"),
        ({"largest": 0}, "leaves no value"),
        (
            {"axes": ["agents"], "backends": ["pytorch"]},
            "axis=agents is not one of pytorch: its agents are trained one",
        ),
        ({"axes": ["agents"], "peers": ["sbx"]}, "axis=agents is not one of sbx: it does no such work; leave out one"),
        ({"axes": ["replay"], "backends": ["linen"], "peers": ["brax_ppo"]}, "axis=replay is not one of brax_ppo"),
    ],
)
def test_nonsense_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scale.study_for(**choice)


def test_a_point_that_failed_is_shown_as_such_and_blocks_are_medians() -> None:
    lines = scale.summarise([row(1, 10.0), row(1, 30.0, 1), row(1, 20.0, 2), row(4, None)])
    assert (lines[0]["steps_per_s"], lines[0]["slowest"], lines[0]["fastest"], lines[0]["blocks"]) == (20, 10, 30, 3)
    assert (lines[1]["steps_per_s"], lines[1]["error"], lines[1]["blocks"]) == (None, "memory: too much", 0)
    (partly,) = scale.summarise([row(1, 10.0), row(1, None, 1), row(1, 30.0, 2)])
    assert (partly["steps_per_s"], partly["blocks"], partly["error"]) == (20, 2, "memory: too much")


def test_fits_are_of_the_points_that_ran_and_know_what_one_wants_more_of() -> None:
    speeds = {1: 1.0, 4: 4.0, 16: 16.0, 64: 16.0, 256: 16.0}
    rows = [row(x, y, block) for x, y in speeds.items() for block in range(2)] + [row(1024, None)]
    rows += [row(x, 1e6 / x**2, axis="width") for x in (16, 64, 256, 1024)]
    found = scale.fits(rows)
    envs, width = found["envs", "linen/jit/phase"], found["width", "linen/jit/phase"]
    assert isinstance(envs.knee, Fitted)
    assert isinstance(width.beyond, Fitted)
    assert envs.knee.value == pytest.approx(12.8)
    assert envs.knee.low == pytest.approx(12.8)
    assert width.beyond.value == pytest.approx(2)


def launched() -> Callable[..., Ended]:
    """Runs that last as long as their numbers say: a quarter of each call others had the processor."""
    # The first two calls are warm-up: with them every median is another.
    samples: dict[str, list[float | None]] = {
        "total_s": [9.0, 1.0, 0.5, 0.25, 0.4],
        "update_s": [3.0, 2.0, 0.5, 0.2, 0.2],
        "rollout_s": [9.0, 0.5, 0.2, 0.1, 0.1],
        "waited_s": [2.25, 0.25, 0.125, 0.0625, 0.1],
    }
    ledger = {"env_steps_per_call": 75, "iterations_per_call": 1}
    record = Record(samples, {"first_call": 1.0, "finished": 2.0}, ledger, {"peak_rss_bytes": 7.0})
    steady: dict[str, list[float | None]] = {"env_steps": [100.0], "steady_s": [4.0], "waited_s": [2.0]}
    peer = Record(steady, {}, {"config": {}}, {"peak_rss_bytes": 9.0})

    def launch(cell: Cell, seed: int, timeout_s: float, tick: Any) -> Ended:
        if cell.run["num_envs"] == 4:
            return Ended("signal", "ended by SIGKILL")
        found = peer if cell.kind == "peer" else record
        return Ended("ok", messages=[{"kind": "record", "record": asdict(found)}])

    return launch


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    study = scale.study_for(backends=["linen"], peers=["purejax_style"], axes=["envs"], largest=4, blocks=2)
    hooks = replace(HOOKS, launch=launched(), prove=None)
    with open_campaign(tmp_path / "scale.sqlite", study, fingerprint=MACHINE) as store:
        assert coordinator.work(store, study, hooks)
    return tmp_path / "scale.sqlite"


def test_rows_come_from_the_runs_in_the_store_without_the_time_of_others(store_path: Path) -> None:
    with coordinator.open_store(store_path, readonly=True) as store:
        study = scale.study_in(store)
        assert study is not None
        good, _, bad, _, peer, _, killed, _ = scale.rows(store, study)
    # 75 steps in three quarters of 0.4, 0.1 and 0.2 s.
    assert [good[name] for name in scale.FIGURES] == pytest.approx([250, 4000, 1000, 500, 7.0])
    assert (bad["error"], killed["error"]) == ("signal: ended by SIGKILL",) * 2
    assert (peer["side"], peer["steps_per_s"], peer["peak_rss_bytes"]) == ("purejax_style", 50.0, 9.0)
    assert verify(store_path) == []


def test_on_several_threads_waiting_is_not_left_out() -> None:
    """A thread may wait while another runs: what waiting costs is then not known."""
    cell = scale.study_for(backends=["linen"], peers=["purejax_style"], axes=["envs"], largest=1, blocks=1).cells[-1]
    record = Record({"env_steps": [100.0], "steady_s": [4.0], "waited_s": [2.0]}, {}, {}, {"peak_rss_bytes": 1.0})
    assert scale.measured(record, cell)["steps_per_s"] == 50.0
    assert scale.measured(record, replace(cell, threads=2))["steps_per_s"] == 25.0


def test_learning_starts_before_it_is_timed() -> None:
    cell = scale.study_for(backends=["linen"], axes=["replay"], blocks=1).cells[0]
    before = 1_000 // 10 - 1  # learning starts in the iteration that ends with the last of 1,000 steps
    calls: list[float | None] = [*[1.0] * (before + scale.WARM_UP_CALLS), *[2.0] * 5]
    record = Record(
        {"total_s": calls, "rollout_s": calls, "update_s": calls},
        {},
        {"env_steps_per_call": 10},
        {"peak_rss_bytes": 1.0},
    )
    assert scale.measured(record, cell)["steps_per_s"] == 5.0


def test_a_store_is_reported_by_its_page_and_tables(store_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reporting.report([str(store_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {line["side"] for line in found["rows"]} == {"linen/jit/phase", "purejax_style"}
    made = store_path.with_name("scale-report")
    assert "signal: ended by SIGKILL" in (made / "index.html").read_text()
    assert reporting.report([str(store_path)]) == 0
    assert "too few" in capsys.readouterr().out


def test_the_plan_says_how_long_each_axis_takes_and_counts_no_run_twice(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--backends", "linen", "--axes", "envs", "width", "--blocks", "2", "--plan", "--json"]
    assert workloads.scale(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    study = scale.study_for(backends=["linen"], axes=["envs", "width"], blocks=2)
    assert found["seconds"] == pytest.approx(2 * sum(map(scale.seconds_of, study.cells)))
    assert [x["axis"] for x in found["rows"]] == ["envs", "width"]


def test_every_peer_has_a_time_in_the_plan() -> None:
    found = scale.seconds(scale.study_for(backends=["linen"], peers=PEERS, blocks=1))
    assert all(x > 1 for (axis, _), x in found.items() if axis != "threads")
    assert found["envs", "stable_baselines3"] > found["envs", "rejax"]


def test_peers_that_are_not_installed_are_named_with_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCHBACK_CACHE", str(tmp_path))
    arguments = ["--backends", "linen", "--axes", "envs", "--peers", "purejax_style", "rejax"]
    with pytest.raises(InputError, match="rejax not installed; get them by benchback peers --quick --wor"):
        workloads.scale(arguments)
    assert workloads.scale([*arguments, "--plan"]) == 0
    assert "get them by benchback peers --quick --workloads A --sides rejax\n" in capsys.readouterr().out
    both = scale.study_for(peers=["stable_baselines3", "rejax"])
    assert scale.missing_environments(both) == ["stable_baselines3", "rejax"], "one side for each environment"
    assert scale.how_to_get(["rejax_dqn"]) == "benchback peers --quick --workloads D --sides rejax_dqn"
    study = scale.study_for(axes=["envs"], peers=["purejax_style", "rejax"])
    environment = SIDES["rejax"].environment
    assert environment is not None
    marker = caches.cache_folder("peers") / environment.name / environments.MARKER
    marker.parent.mkdir(parents=True)
    marker.write_text(json.dumps(environment.steps))
    assert scale.missing_environments(study) == []


def test_files_hold_every_point_and_a_picture(tmp_path: Path) -> None:
    rows = [row(1, 10.0), row(4, 30.0), row(16, None), row(1, 5.0, axis="threads"), row(4, 9.0, side="rejax")]
    rows += [row(x, 1e6 / x, axis="width") for x in (16, 32, 64, 128)]
    lines, fits = scale.summarise(rows), scale.fits(rows)
    for _ in range(2):
        files = report.write(lines, fits, "a machine", tmp_path / "out")
    assert {file.name for file in files} == {file.name for file in (tmp_path / "out").iterdir()}
    with (tmp_path / "out" / "scale.csv").open() as file:
        assert [r["value"] for r in csv.DictReader(file)] == ["1", "4", "16", "1", "4", "16", "32", "64", "128"]
    with (tmp_path / "out" / "knees.csv").open() as file:
        (width,) = [r for r in csv.DictReader(file) if r["axis"] == "width"]
    assert float(width["beyond"]) == pytest.approx(1)
    assert (tmp_path / "out" / "scale.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "out" / "scale.svg").read_text()
    assert all(word in drawn for word in ("environments", "units per hidden layer", "rejax", "peak memory"))
    page = (tmp_path / "out" / "index.html").read_text()
    assert "memory: too much" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    text = (tmp_path / "out" / "scale.md").read_text()
    assert "| units per hidden layer | linen/jit/phase |" in text
    columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert columns == {len(report.COLUMNS) + 1, len(report.FIT_COLUMNS) + 1}


def test_nothing_measured_has_a_page_without_a_picture(tmp_path: Path) -> None:
    lines = scale.summarise([row(1, None)])
    files = report.write(lines, scale.fits([row(1, None)]), "a machine", tmp_path)
    assert [file.suffix for file in files] == [".html", ".md", ".csv", ".csv"]


@pytest.mark.parametrize(
    ("knee", "text"),
    [
        (Fitted(51.23, float("nan"), float("nan")), "51.2"),
        (Fitted(51.23, 40.0, 20_566.0), "51.2 [40, 20,600]"),
        (Fitted(2.0, 2.0, 2.0), "at most 2"),
        (Fitted(2.375, float("nan"), float("nan")), "2.38"),
        (Fitted(1_234_567.0, float("nan"), float("nan")), "1,230,000"),
    ],
)
def test_a_knee_in_words(knee: Fitted, text: str) -> None:
    assert report.knee_text(knee, 2.0) == text


def test_a_large_smallest_value_is_written_out() -> None:
    assert report.knee_text(Fitted(10_000.0, 1.0, 1.0), 10_000.0) == "at most 10,000"
