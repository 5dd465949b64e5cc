"""Tuning: the points of a space, campaigns of them that are broken off and continued, and the best as a run."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from campaign_double import FIXED, MACHINE, quiet

from benchback import registry
from benchback.errors import InputError
from benchback.measure import coordinator
from benchback.measure.coordinator import Hooks
from benchback.measure.process import Ended
from benchback.measure.record import Cell, Record
from benchback.measure.store import open_store
from benchback.measure.study import Study
from benchback.tools.tune import result, search, space
from benchback.tools.tune.space import Range, Space
from benchback.training import train
from benchback.training.run import Run

BASE = {"algorithm": "ppo", "backend": "purejax", **FIXED}
RATES = (1e-4, 1e-3, 1e-2)
SPACE = Space("double", BASE, grid={"learning_rate": RATES}, seeds=3)


def learned(learning_rate: float, seed: int) -> float:
    """A return that the middle rate is best at, give or take a little that the seed decides."""
    return 100 - 20 * abs(np.log10(learning_rate) + 3) + float(np.random.default_rng(seed).normal())


def modelled(cell: Cell, seed: int, timeout_s: float, tick: Callable[[], bool]) -> Ended:
    """A run of twenty iterations whose last two have the return of the model."""
    last = learned(cell.run["learning_rate"], seed)
    samples = {"total_s": [0.01] * 20, "episode_return": [None] * 5 + [0.0] * 13 + [last - 1, last + 1]}
    record = Record(samples, {"started": 0.1}, {"seed": seed}, {"peak_rss_bytes": 1.0})
    return Ended("ok", messages=[{"kind": "record", "record": asdict(record)}])


HOOKS = Hooks(launch=modelled, sample=quiet, prove=None, canary=None)


def work(path: Path, tuning: Study, hooks: Hooks = HOOKS) -> list[dict[str, Any]] | None:
    """The lines of the tuning at `path` after this coordinator; None if it was broken off."""
    with coordinator.open_campaign(path, tuning, fingerprint=MACHINE) as store:
        return result.lines_of(store, tuning) if coordinator.work(store, tuning, hooks) else None


def test_the_grid_is_like_nested_loops_with_the_draws_within() -> None:
    tried = Space("x", BASE, {"gamma": [0.9, 0.99], "clip": [0.1, 0.2]}, {"learning_rate": Range(1e-5, 1e-2, True)}, 3)
    found = space.points(tried, seed=0)
    assert [(p["gamma"], p["clip"]) for p in found[::3]] == [(0.9, 0.1), (0.9, 0.2), (0.99, 0.1), (0.99, 0.2)]
    draws = [p["learning_rate"] for p in found[:3]]
    assert [p["learning_rate"] for p in found] == draws * 4
    assert len(set(draws)) == 3
    assert found == space.points(tried, seed=0) != space.points(tried, seed=1)
    assert space.points(replace(tried, points=5), seed=0)[:3] == found[:3]


@pytest.mark.parametrize(("log", "middle"), [(True, 10**-3.5), (False, 0.5 * (1e-5 + 1e-2))])
def test_half_of_the_draws_lie_below_the_middle_of_the_scale(log: bool, middle: float) -> None:
    drawn = [
        p["learning_rate"]
        for p in space.points(Space("x", BASE, {}, {"learning_rate": Range(1e-5, 1e-2, log)}, 400), 0)
    ]
    assert min(drawn) >= 1e-5
    assert max(drawn) <= 1e-2
    assert abs(sum(x < middle for x in drawn) - 200) < 60


def test_ranges_over_a_decade_are_logarithmic_unless_they_say_otherwise() -> None:
    given = {
        "learning_rate": "1e-5..1e-2",
        "gamma": "0.9..0.999",
        "clip": "linear:0.01..0.5",
        "adam_epsilon": "log:1..2",
    }
    found = space.extended(Space("x", BASE), {}, given).random
    assert {name: source.log for name, source in found.items() if isinstance(source, Range)} == {
        "learning_rate": True,
        "gamma": False,
        "clip": False,
        "adam_epsilon": True,
    }
    whole = space.points(space.extended(Space("x", BASE, points=4), {}, {"num_steps": "8..64"}), 0)
    assert all(type(p["num_steps"]) is int for p in whole)


def test_text_becomes_what_the_field_holds() -> None:
    given = {"hidden_sizes": "64x64,8", "anneal": "true,false", "learning_rate": "1e-4", "model": "small,medium"}
    found = space.extended(Space("x", BASE), given, {}).grid
    assert found == {
        "hidden_sizes": [[64, 64], [8]],
        "anneal": [True, False],
        "learning_rate": [1e-4],
        "model": ["small", "medium"],
    }


@pytest.mark.parametrize(
    ("grid", "random", "message"),
    [
        ({"learning_rat": "1"}, {}, "learning_rat is not a field of the run; did you mean learning_rate"),
        ({"learning_rate": ""}, {}, "learning_rate has no values"),
        ({"learning_rate": []}, {}, "learning_rate has no values"),
        ({"num_envs": "many"}, {}, "num_envs=many must be of type int, e.g. 32"),
        ({"seed": "1,2"}, {}, "seed is not tuned"),
        ({"gamma": "0.9"}, {"gamma": "0.1..0.2"}, "in the grid and drawn"),
        ({"pair": [{"gama": 1}]}, {}, "did you mean gamma"),
        ({}, {"gamma": "0.9..0.1"}, "must begin below its end"),
        ({}, {"gamma": "0.1..nan"}, "must begin below its end"),
        ({}, {"gamma": "0.1..much"}, "must be LOW..HIGH"),
        ({}, {"gamma": "log:0..1"}, "must begin above 0"),
        ({}, {"gamma": "cubic:0..1"}, "has the scale cubic"),
        ({}, {"model": "1..2"}, "list them"),
        ({}, {"num_envs": "1..2"}, "only 2 different ones"),
        ({}, {}, "nothing to tune"),
    ],
)
def test_nonsense_is_refused(grid: dict[str, Any], random: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        space.points(space.extended(Space("x", BASE, points=5), grid, random), 0)


@pytest.mark.parametrize("name", space.names())
def test_a_space_that_comes_along_can_run_where_its_algorithm_exists(name: str) -> None:
    algorithm = yaml.safe_load((space.FOLDER / f"{name}.yaml").read_text())["base"]["algorithm"]
    if algorithm not in registry.ALGORITHMS:
        with pytest.raises(InputError, match=f"algorithm={algorithm} is unknown"):
            space.load(name)
        return
    tuning = search.study_of(space.load(name), 0, scale=0.01)
    assert len(tuning.entries) == {"ppo_cartpole": 6, "vpg_halfcheetah": 20, "td3_halfcheetah": 12}[name]
    assert all(entry.cell.run["num_iterations"] >= 3 for entry in tuning.entries)


def test_every_point_meets_the_same_seeds_and_the_best_mean_is_first(tmp_path: Path) -> None:
    tuning = search.study_of(SPACE, 0)
    lines = work(tmp_path / "runs.sqlite", tuning)
    assert lines is not None
    with open_store(tmp_path / "runs.sqlite", readonly=True) as store:
        seeds = {cell: sorted(s.seed for s in store.slots() if s.cell == cell) for cell in store.cells()}
    one, *others = seeds.values()
    assert len(set(one)) == 3
    assert others == [one, one]
    expected = {rate: [learned(rate, seed) for seed in one] for rate in RATES}
    assert [line["values"]["learning_rate"] for line in lines] == [
        1e-3,
        *sorted(RATES, key=lambda r: -np.mean(expected[r]))[1:],
    ]
    for line in lines:
        scores = expected[line["values"]["learning_rate"]]
        assert line["score"] == pytest.approx(np.mean(scores))
        assert line["std"] == pytest.approx(np.std(scores, ddof=1))


def test_a_tuning_that_is_stopped_after_every_run_ends_with_the_same_lines(tmp_path: Path) -> None:
    tuning = search.study_of(SPACE, 0)
    whole = work(tmp_path / "whole.sqlite", tuning)
    for _ in range(9):
        asked: list[Any] = []
        hooks = replace(
            HOOKS, asked_to_stop=lambda asked=asked: bool(asked), finished=lambda *run, asked=asked: asked.append(run)
        )
        assert work(tmp_path / "parts.sqlite", tuning, hooks) is None
        assert len(asked) == 1
    assert work(tmp_path / "parts.sqlite", tuning) == whole


def test_points_that_lack_a_seed_come_last_and_say_why(tmp_path: Path) -> None:
    def launch(cell: Cell, *rest: Any) -> Ended:
        fails = cell.run["learning_rate"] == 1e-3
        return Ended("error", "exit code 1: boom") if fails else modelled(cell, *rest)

    lines = work(tmp_path / "runs.sqlite", search.study_of(SPACE, 0), replace(HOOKS, launch=launch))
    assert lines is not None
    assert lines[-1]["values"] == {"learning_rate": 1e-3}
    assert (lines[-1]["score"], lines[-1]["seeds"], lines[-1]["error"]) == (None, 0, "exit code 1: boom")
    assert lines[0]["error"] == ""
    result.write(result.outcome_of(lines, search.study_of(SPACE, 0)), tmp_path)
    with (tmp_path / "results.csv").open() as file:
        assert [row["seeds"] for row in csv.DictReader(file)] == ["3", "3", "0"]


def test_the_best_of_a_scaled_tuning_is_a_run_of_full_length(tmp_path: Path) -> None:
    tuning = search.study_of(SPACE, 0, scale=0.5)
    assert {cell.run["num_iterations"] for cell in tuning.cells} == {3}
    lines = work(tmp_path / "runs.sqlite", tuning)
    assert lines is not None
    paths = result.write(result.outcome_of(lines, tuning), tmp_path)
    assert [path.name for path in paths] == ["results.csv", "best.yaml", "scores.svg", "scores.png"]
    best = Run.from_dict(yaml.safe_load((tmp_path / "best.yaml").read_text()))
    assert (best.config.learning_rate, best.config.num_iterations) == (1e-3, 6)
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")
    assert "learning_rate=0.001" in (tmp_path / "scores.svg").read_text()


ARGUMENTS = ["ppo", "--backend", "pytorch", "--mode", "none", "--env", "torch/CartPole-v1", "--num-envs", "4"]
ARGUMENTS += ["--num-steps", "16", "--num-minibatches", "2", "--num-epochs", "1", "--num-iterations", "3"]
ARGUMENTS += ["--hidden-sizes", "8", "--grid", "learning_rate=1e-3,1e-2", "--seeds", "2", "--out", "tuned"]


@pytest.mark.slow
def test_an_interrupted_tuning_goes_on_and_finds_what_training_by_hand_finds(
    benchback: Callable[..., subprocess.CompletedProcess], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "benchback.cli", "tune", *ARGUMENTS, "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert first["outcome"] == "ok"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors == "benchback: stopped; 1 of 4 runs are done and kept: run the same command again to go on\n"
    again = benchback("tune", *ARGUMENTS, "--json")
    assert again.returncode == 0, again.stderr
    *runs, outcome = map(json.loads, again.stdout.splitlines())
    assert len(runs) == 3
    assert first["slot"] not in {run["slot"] for run in runs}
    with open_store(tmp_path / "tuned" / "runs.sqlite", readonly=True) as store:
        seeds = list(dict.fromkeys(slot.seed for slot in sorted(store.slots(), key=lambda slot: slot.block)))
    best = yaml.safe_load((tmp_path / "tuned" / "best.yaml").read_text())
    for line in outcome["rows"]:
        by_hand = [list(train(Run.from_dict(best | line["values"] | {"seed": seed})))[-1] for seed in seeds]
        assert line["scores"] == pytest.approx([progress.rows[-1]["episode_return"] for progress in by_hand])
    refused = benchback("tune", *ARGUMENTS, "--grid", "gamma=0.9")
    assert refused.returncode == 2
    assert "choose another --out" in refused.stderr
    trained = benchback("train", "--config", "tuned/best.yaml", "--out", "trained")
    assert trained.returncode == 0, trained.stderr
    assert os.path.exists(tmp_path / "trained" / "checkpoint.safetensors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pppo"], "did you mean ppo?"),
        (["ppo", "--grid", "gamma"], "must be FIELD=VALUES"),
        (["ppo", "--grid", "gamma=0.9", "--grid", "gamma=0.8"], "given twice"),
        (["ppo", "--grid", "num_minibatches=7"], "does not divide"),
        (["missing.yaml"], "cannot be read"),
    ],
)
def test_wrong_input_is_one_line(
    benchback: Callable[..., subprocess.CompletedProcess], arguments: list[str], message: str
) -> None:
    done = benchback("tune", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_failed_runs_are_shown_and_tell_by_the_exit_code(benchback: Callable[..., subprocess.CompletedProcess]) -> None:
    late = ["--method", "runs", "--seeds", "1", "--timeout-s", "0.1", "--out", "late"]
    done = benchback("tune", "ppo", "--grid", "gamma=0.9", *late)
    assert done.returncode == 3, done.stderr
    assert "not done after 0.1 s" in " ".join(done.stdout.split())
    assert "1 runs have no result: benchback list-runs late/runs.sqlite" in done.stdout
    assert "best.yaml" not in done.stdout
