"""Tuning by populations: programs, searches that are stopped and continued, fresh seeds, what is written."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from shared_programs import share_programs

from benchback import cli
from benchback.errors import InputError
from benchback.parity.subject import computing
from benchback.population.folder import PopulationDir, open_population
from benchback.population.training import train_members
from benchback.report.drawing import draw
from benchback.stats import paired_difference
from benchback.tools.tune import confirm, page, responses, result, searching, space, trials
from benchback.tools.tune.programs import fits, programs_of
from benchback.tools.tune.result import Outcome
from benchback.tools.tune.searching import Hooks, Search, Settings
from benchback.tools.tune.space import Range, Space
from benchback.training.run import Run

BASE = {
    "algorithm": "ppo",
    "backend": "purejax",
    "unit": "iteration",
    "num_envs": 4,
    "num_steps": 32,
    "num_minibatches": 1,
    "num_epochs": 1,
    "num_iterations": 4,
    "hidden_sizes": [8],
}
RATES = (1e-5, 1e-3, 3e-2, 1e-2)
FLOATS = Space("floats", BASE, grid={"learning_rate": RATES}, seeds=2)


@pytest.fixture(autouse=True, scope="module")
def _shared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, computing("float32", optimised=False):
        share_programs(patch)
        yield


# Points and programs


def test_points_that_differ_in_floats_are_one_program() -> None:
    points = [{"learning_rate": x, "clip": y} for x in RATES for y in (0.1, 0.2)]
    (program,) = programs_of(BASE, points, (5, 6))
    assert (program.points, program.seeds, dict(program.shape)) == (tuple(range(8)), 2, {})
    assert program.members.seed == (5, 6) * 8
    assert program.members.values["clip"] == (0.1, 0.1, 0.2, 0.2) * 4
    assert program.run.config.learning_rate == 2.5e-4


def test_there_are_as_many_programs_as_shapes() -> None:
    points = [{"num_envs": n, "gamma": g, "hidden_sizes": h} for g in (0.9, 0.99) for n in (2, 4) for h in ([4], [8])]
    programs = programs_of(BASE, points, (0,))
    assert [dict(p.shape) for p in programs] == [{"num_envs": n, "hidden_sizes": h} for n in (2, 4) for h in ([4], [8])]
    assert [p.points for p in programs] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert all(p.members.values == {"gamma": (0.9, 0.99)} for p in programs)


def test_what_cannot_be_one_program_is_known() -> None:
    assert fits(Run.from_dict(BASE))
    assert not fits(Run.from_dict(BASE | {"env": "gymnasium/CartPole-v1"}))
    assert not fits(Run.from_dict(BASE | {"backend": "pytorch", "env": "torch/CartPole-v1"}))


def test_varied_axes_are_grids_or_evenly_drawn() -> None:
    given = {"clip": "0.1,0.2", "gamma": "0.9..0.98:3", "learning_rate": "log:1e-4..1e-2", "num_steps": "8..64:3"}
    found = space.varied(Space("x", BASE, points=16, sampling="sobol"), given)
    assert found.grid == {"clip": [0.1, 0.2], "gamma": [0.9, 0.94, 0.98], "num_steps": [8, 36, 64]}
    assert found.random == {"learning_rate": Range(1e-4, 1e-2, True)}
    rates = [p["learning_rate"] for p in space.points(found, 0)[:16]]
    assert np.histogram(np.log10(rates), bins=4, range=(-4, -2))[0].tolist() == [4, 4, 4, 4]
    longer = space.points(replace(found, points=20), 0)
    assert [p["learning_rate"] for p in longer[:16]] == rates
    with pytest.raises(InputError, match="list them: model=VALUE"):
        space.varied(found, {"model": "1..2"})


# Searches


def searched(out: Path, tuned: Space = FLOATS, stop_after: int | None = None, **settings: Any) -> list[dict[str, Any]]:
    """The rows of a search; stopped, where asked, after so many calls of a program."""
    calls: list[Any] = []
    hooks = Hooks(rows=calls.append, asked_to_stop=lambda: len(calls) == stop_after)
    search = Search(tuned, Settings(**settings), 0, out, hooks)
    searching.open_search(search)
    return searching.train_programs(search, searching.find_programs(search))


def test_a_search_over_floats_compiles_one_program_and_scores_the_last_tenth(tmp_path: Path) -> None:
    rows = searched(tmp_path / "a")
    folder = PopulationDir(tmp_path / "a" / "programs" / "000")
    assert sum(int(row["compiles"]) for row in folder.rows()) == 1
    (program,) = programs_of(BASE, space.points(FLOATS, 0), (0, 1))
    *_, last = train_members(program.run, program.members)
    expected = last.metrics["episode_return"][-1].reshape(4, 2)
    assert [row["values"] for row in rows] == [{"learning_rate": x} for x in RATES]
    np.testing.assert_allclose([row["scores"] for row in rows], expected, rtol=1e-6)
    assert searched(tmp_path / "a", stop_after=0) == rows  # read, not trained again


SHAPES = replace(FLOATS, grid={"learning_rate": RATES, "hidden_sizes": [[8], [4]]})
DRAWN = replace(FLOATS, grid={}, random={"learning_rate": Range(1e-5, 3e-2, True)}, points=4, seeds=1)
HALVED = replace(FLOATS, base=BASE | {"num_iterations": 12})
METHODS = {
    "population": (FLOATS, {}),
    "shapes": (SHAPES, {}),
    "halving": (HALVED, {"eta": 2}),
    "pbt": (DRAWN, {"every": 2}),
}


# That halving and evolution resume bit for bit is tested where they are, too.
@pytest.mark.parametrize("method", [pytest.param(x, marks=[pytest.mark.slow] * (x != "population")) for x in METHODS])
def test_a_search_that_is_stopped_goes_on_to_the_same_rows(method: str, tmp_path: Path) -> None:
    tuned, options = METHODS[method]
    options = options | {"method": method if method in ("halving", "pbt") else "population"}
    whole = searched(tmp_path / "whole", tuned, **options)
    with pytest.raises(KeyboardInterrupt, match="run the same command again"):
        searched(tmp_path / "broken", tuned, 1, **options)
    if method == "shapes":
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "broken", tuned, 4, **options)
        assert (tmp_path / "broken" / "programs" / "000" / "scores.json").exists()
        (tmp_path / "broken" / "programs" / "001" / "checkpoint.safetensors").unlink()  # killed before it was written
    assert searched(tmp_path / "broken", tuned, **options) == whole
    with pytest.raises(InputError, match=r"of another search.*choose another --out"):
        searched(tmp_path / "broken", replace(tuned, seeds=1, grid={"gamma": [0.9, 0.99]}), **options)


def test_dropped_points_keep_the_score_of_their_last_rung(tmp_path: Path) -> None:
    rows = searched(tmp_path / "a", HALVED, method="halving", eta=2)
    assert sorted(row["iterations"] for row in rows) == [3, 3, 6, 12]
    curves = PopulationDir(tmp_path / "a" / "programs" / "000")
    for row in rows:
        at = searching.folders.scores(curves, 8, row["iterations"]).reshape(4, 2)[row["point"]]
        assert row["scores"] == pytest.approx(at.tolist())
    lines = result.lines_from(rows, 2)
    assert [line["iterations"] for line in lines] == [12, 6, 3, 3]
    assert [line["rank"] for line in lines[:3]] == [1, 2, 3]


def test_evolved_points_have_their_last_values_and_their_history(tmp_path: Path) -> None:
    rows = searched(tmp_path / "a", DRAWN, method="pbt", every=2)
    search = Search(DRAWN, Settings("pbt", every=2), 0, tmp_path / "a")
    (program,) = searching.find_programs(search)
    past = searching.history(PopulationDir(tmp_path / "a" / "programs" / "000"), program)
    first = {row["member"]: row for row in past if row["parent"] is None}
    assert [first[i]["learning_rate"] for i in range(4)] == pytest.approx(program.members.values["learning_rate"])
    copied = [row for row in past if row["parent"] is not None]
    assert [row["iteration"] for row in copied] == [3]
    last = {row["member"]: row["learning_rate"] for row in past}
    assert [row["values"]["learning_rate"] for row in rows] == [last[i] for i in range(4)]
    with pytest.raises(InputError, match="one member for each point; choose --seeds 1"):
        searching.find_programs(replace(search, space=FLOATS))


# Optuna


def test_a_search_by_optuna_that_is_stopped_proposes_the_same_points(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    ranges = {"learning_rate": Range(1e-5, 3e-2, True)}
    tuned = Space("tpe", BASE, {"hidden_sizes": [[8]]}, ranges, points=3, seeds=8)
    search = Search(replace(tuned, points=3), Settings("optuna"), 0, tmp_path / "whole")
    whole = trials.train_trials(search)
    assert [row["point"] for row in whole] == [0, 1, 2]
    assert len({row["values"]["learning_rate"] for row in whole}) == 3
    broken = replace(search, out=tmp_path / "broken")
    trials.train_trials(replace(broken, space=replace(tuned, points=2)))
    begun: list[int] = []
    called: list[Any] = []
    hooks = Hooks(begun=lambda number, program: begun.append(number), rows=called.append)
    assert trials.train_trials(replace(broken, hooks=hooks)) == whole
    assert begun == [0, 1, 2]
    assert len(called) == 4  # iterations of the third point only


def test_optuna_proposes_every_kind_of_field() -> None:
    optuna = pytest.importorskip("optuna")
    tuned = Space(
        "x",
        BASE,
        {"hidden_sizes": [[8], [4]], "pair": [{"num_envs": 2, "num_steps": 8}], "anneal": [True, False]},
        {"gamma": Range(0.9, 0.99, False), "num_epochs": Range(1.0, 4.0, False)},
    )
    point = trials.proposed(optuna.create_study().ask(), tuned)
    assert (point["num_envs"], point["num_steps"]) == (2, 8)
    assert point["hidden_sizes"] in ([8], [4])
    assert isinstance(point["anneal"], bool)
    assert 0.9 <= point["gamma"] <= 0.99
    assert point["num_epochs"] in (1, 2, 3, 4)


def test_optuna_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'benchback\[optuna\]'"):
        trials.check_installed()


# Ranks and fresh seeds


def rows_of(scores: list[list[float | None]]) -> list[dict[str, Any]]:
    return [{"point": i, "values": {"gamma": 0.9}, "scores": x, "iterations": 4} for i, x in enumerate(scores)]


def test_a_rank_counts_the_points_that_are_better_beyond_doubt() -> None:
    lines = result.lines_from(
        rows_of([[10.0, 11.0, 12.0], [100.0, 101.0, 102.0], [50.0, 100.0, 150.0], [None, 1.0, 2.0], [None] * 3]), 3
    )
    assert [(line["point"], line["rank"]) for line in lines] == [(1, 1), (2, 1), (0, 2), (3, 4), (4, 5)]
    assert lines[0]["low"] == pytest.approx(101 - 4.303 / np.sqrt(3), abs=1e-3)
    assert lines[-1]["error"] == "no episode ended"
    alone = result.lines_from(rows_of([[1.0], [3.0], [2.0]]), 1)
    assert [(line["point"], line["rank"]) for line in alone] == [(1, 1), (2, 2), (0, 3)]


def test_differences_are_told_only_where_they_are_there() -> None:
    random = np.random.default_rng(0)
    found = [paired_difference(random.normal(size=10), random.normal(size=10)).sign for _ in range(2000)]
    assert np.mean(np.abs(found)) == pytest.approx(0.05, abs=0.015)
    shared = random.normal(0, 10, size=10)
    assert paired_difference(shared + random.normal(2, 0.5, 10), shared).sign == 1
    assert paired_difference([1.0, 2.0, np.nan], [3.0, 4.1, 5.0]).seeds == 2
    assert paired_difference([500.0] * 5, [500.0] * 5).sign == 0
    assert paired_difference([1.0], [2.0]).sign == 0


def test_the_best_and_the_defaults_are_trained_on_the_same_seeds_that_the_search_has_not_seen(tmp_path: Path) -> None:
    search = Search(FLOATS, Settings(scale=0.75), 0, tmp_path)
    found = confirm.confirm(search, {"learning_rate": 3e-2}, 4)
    stored = open_population(tmp_path / "confirm-4" / "000")
    assert stored.members.seed == found.seeds * 2
    assert not set(found.seeds) & set(search.seeds)
    assert stored.members.values["learning_rate"] == (2.5e-4,) * 4 + (3e-2,) * 4
    assert stored.checkpoint.iteration == 4
    last = searching.folders.scores(stored.folder, 8, 4)
    assert (found.defaults.tolist(), found.best.tolist()) == (last[:4].tolist(), last[4:].tolist())
    with pytest.raises(InputError, match="--confirm 1 must be at least 2"):
        confirm.confirm(search, {}, 1)


def test_fresh_seeds_avoid_the_used_ones_and_grow() -> None:
    few = confirm.fresh_seeds(0, 5, ())
    assert confirm.fresh_seeds(0, 8, ())[:5] == few
    others = confirm.fresh_seeds(0, 5, few[:2])
    assert others[:3] == few[2:]
    assert not set(others) & set(few[:2])


@pytest.mark.parametrize(
    ("best", "words"),
    [
        ([20.0, 21.0, 23.0], "better than the defaults by 10.33 [8.899, 11.77]"),
        ([1.0, 2.0, 2.5], "worse than the defaults, by -9.167"),
        ([10.0, 12.0, 11.0], "cannot be told apart from the defaults"),
        ([np.nan, np.nan, 1.0], "Too few episodes"),
    ],
)
def test_fresh_seeds_are_told_plainly(best: list[float], words: str) -> None:
    found = confirm.Confirmation((7, 8, 9), np.array(best), np.array([10.0, 11.0, 12.0]))
    assert words in " ".join(confirm.sentences(found))
    json.dumps(found.to_dict(), allow_nan=False)


# What is written


def outcome(count: int = 24) -> Outcome:
    random = np.random.default_rng(0)
    rows = [
        {
            "point": i,
            "values": {"learning_rate": 10.0 ** random.uniform(-4, -1), "model": "small" if i % 2 else "medium"},
        }
        | {"scores": random.normal(100, 10, 3).tolist(), "iterations": 4}
        for i in range(count)
    ]
    lines = result.lines_from([{**row, "values": {"gamma": 0.9, **row["values"]}} for row in rows], 3)
    return Outcome("tune-x", lines, 3, BASE, method="population")


def test_a_band_is_the_middle_half_of_the_nearest_points() -> None:
    x, y = np.linspace(0, 1, 40), np.arange(40.0)
    found = responses.band(x.tolist(), y.tolist(), log=False)
    assert found[0] == pytest.approx({"at": 0.0, "q25": 1.0, "median": 2.0, "q75": 3.0})
    assert found[-1]["median"] == 37.0
    assert responses.band(x[:5].tolist(), y[:5].tolist(), log=False) == []
    places = [row["at"] for row in responses.band(np.geomspace(1e-4, 1, 40).tolist(), y.tolist(), log=True)]
    assert np.diff(np.log(places)) == pytest.approx(np.full(39, np.log(1e4) / 39))


def test_charts_show_every_point_over_the_fields_that_differ(tmp_path: Path) -> None:
    found = outcome()
    assert responses.tuned(found.lines) == ["learning_rate", "model"]
    paths = {path.name for path in page.write(found, tmp_path)}
    assert paths == {f"{x}.{y}" for x in ("scores", "responses", "maps") for y in ("svg", "png")} | {
        "results.csv",
        "best.yaml",
        "report.html",
    }
    chart = responses.responses(found.lines, "x")
    assert chart is not None
    shown = [len(part["data"]["values"]) for part in chart["concat"]]
    assert shown == [24, 24]
    assert chart["concat"][0]["layer"][-1]["encoding"]["x"]["scale"]["type"] == "log"
    assert (tmp_path / "responses.png").read_bytes().startswith(b"\x89PNG")
    written = (tmp_path / "report.html").read_text()
    assert written.count("<svg") == 2
    assert "--confirm 10" in written
    assert "http" not in written.replace("http://www.w3.org", "")
    begun = {"program": 0, "parent": None}
    past = [begun | {"iteration": i, "member": m, "gamma": 0.9 + m / 100} for m in (0, 1) for i in (1, 3)]
    svg, _ = draw(responses.evolution(past, 4, "x"))
    assert b"iteration" in svg


# The command line

SIZES = {"num-envs": 4, "num-steps": 32, "num-minibatches": 1, "num-epochs": 1, "hidden-sizes": 8, "num-iterations": 4}
SMALL = [
    "--backend",
    "purejax",
    "--unit",
    "iteration",
    *(w for name, x in SIZES.items() for w in (f"--{name}", str(x))),
]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path) -> Iterator[Callable]:
    """Runs the command line in this process, in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["benchback", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", os.environ.copy())
        yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def test_tune_plans_searches_and_confirms(command: Callable, tmp_path: Path) -> None:
    arguments = ["tune", "ppo", *SMALL, "--vary", "learning_rate=log:1e-5..3e-2", "--points", "4", "--seeds", "2"]
    code, out, _ = command(*arguments, "--out", "a", "--json")
    plan, *rows, found = map(json.loads, out.splitlines())
    assert (code, plan["event"], len(plan["programs"])) == (0, "plan", 1)
    assert {name: plan["programs"][0][name] for name in ("points", "seeds", "members")} == {
        "points": 4,
        "seeds": 2,
        "members": 8,
    }
    assert plan["programs"][0]["bytes"] > 10_000
    assert [row["event"] for row in rows] == ["iteration"] * 4
    assert (found["method"], len(found["rows"]), found["confirmation"]) == ("population", 4, None)
    best = Run.from_dict(yaml.safe_load(Path("a/best.yaml").read_text()))
    assert best.config.learning_rate == found["rows"][0]["values"]["learning_rate"]
    code, out, err = command(*arguments, "--out", "a", "--confirm", "4")
    assert code == 0
    assert "8 members (4 points x 2 seeds)" in err
    assert "On 4 fresh seeds" in out
    assert "benchback train --config a/best.yaml" in out
    assert "the defaults" in Path("a/report.html").read_text()


WRONG = {
    "--vary gamma=0.9,0.99 --method halving --eta 1": "--eta 1 must be at least 2",
    "--vary gamma=0.9,0.99 --eta 3": "--eta is about --method halving, and this is population",
    "--vary gamma=0.9,0.99 --sampler tpe": "--sampler is about --method optuna",
    "--vary gamma=0.9,0.99 --timeout-s 3": "--timeout-s is about --method runs",
    "--vary num_envs=2,4 --confirm 3": "--confirm is about populations, and this is --method runs",
    "--vary gamma=0.9,0.99 --method runs --devices 2": "--devices is about populations",
    "--vary gamma=0.9,0.99,0.5 --method pbt": "--points 3 are too few",
    "--vary gamma=0.9,0.99,0.5,0.6 --method pbt --seeds 3": "one member for each point",
    "--vary gamma=0.9,0.99 --devices 2 --seeds 2": "--devices 2: there are 1",
    "--vary gamma=0.9,0.99 --group 9 --seeds 2": "--group 9 does not fit 4 members",
    "--vary gamma=0.9,0.99 --scale 2": "must be greater than 0 and at most 1",
    "--vary gama=0.9,0.99": "did you mean gamma?",
    "--vary gamma=0.9,0.99 --space vpg_halfcheetah": "is of vpg",
    "--vary gamma=0.9..1.5": "gamma",
    "--vary gamma=0.9,0.99 --confirm 1": "must be at least 2",
    "--vary gamma=0.9,0.99 --env gymnasium/CartPole-v1 --method population": "use --method runs",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_searches_are_refused_in_one_line(arguments: str, command: Callable, tmp_path: Path) -> None:
    code, out, err = command("tune", "ppo", *SMALL, *arguments.split(), "--out", "a")
    assert (code, out) == (2, "")
    assert WRONG[arguments] in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
