"""Training populations: who the members are, what their folder has, and that stopping it leaves no trace."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import psutil
import pytest
from conftest import TINY

from benchback import cli, registry
from benchback.agent import start
from benchback.errors import InputError
from benchback.parity.subject import computing
from benchback.population import folder as folders
from benchback.population import memory
from benchback.population.folder import CurveWriter, PopulationDir
from benchback.population.spec import Members, Population, kept, members_of, parse_vary
from benchback.population.summary import summarise
from benchback.population.thinning import POINTS, likely_thin
from benchback.population.training import Trained, rows_first, summarised, train_members, train_population
from benchback.training import advance, checkpoint, run_dir, train
from benchback.training.run import Run, build

DTYPE = "float64"
"""In which a deviation of rounding never grows into another action."""
RUN = Run(
    replace(TINY, num_steps=16, num_iterations=4, hidden_sizes=(8,), dtype=DTYPE), backend="purejax", unit="iteration"
)
ASKED = Population({"learning_rate": [1e-3, 3e-2], "clip": "0.1,0.3"}, group=2)
"""Four members, two of them side by side."""


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with computing(DTYPE, optimised=False):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A population trained without a stop."""
    with computing(DTYPE, optimised=False):
        return train_population(RUN, ASKED, out=tmp_path_factory.mktemp("whole") / "pop")


def rows_of(folder: run_dir.RunDir) -> list[dict[str, str]]:
    """Rows without what depends on the machine."""
    return [{name: x for name, x in row.items() if name not in ("seconds", "compiles")} for row in folder.rows()]


def curves_of(folder: PopulationDir) -> pl.DataFrame:
    return pl.read_parquet(list(folder.parts().values()))


def equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], x) for name, x in theirs.items())


def check_same(ours: PopulationDir, theirs: PopulationDir) -> None:
    """Both folders have the same members, curves, summaries and states, bit for bit."""
    ours_at, theirs_at = (checkpoint.read(folder.checkpoint) for folder in (ours, theirs))
    assert ours_at.iteration == theirs_at.iteration
    assert equal(ours_at.weights, theirs_at.weights)
    assert curves_of(ours).equals(curves_of(theirs))
    assert rows_of(ours) == rows_of(theirs)
    assert ours.population.read_text() == theirs.population.read_text()


# Who the members are


def test_seeds_alone_follow_the_seed_of_the_run() -> None:
    members = members_of(Population(seeds=3), replace(RUN, seed=5))
    assert (members.seed, members.values) == ((5, 6, 7), {})


def test_a_grid_has_every_combination_with_every_seed() -> None:
    members = members_of(Population(parse_vary(["clip=0.1,0.2", "gamma=0.9..0.98:3"]), seeds=2), RUN)
    assert members.seed == (0, 1) * 6
    assert members.values["clip"] == (0.1,) * 6 + (0.2,) * 6
    assert members.values["gamma"] == (0.9, 0.9, 0.94, 0.94, 0.98, 0.98) * 2


def test_ranges_are_linear_unless_they_say_log() -> None:
    members = members_of(Population({"learning_rate": "log:1e-4..1e-2:3", "adam_epsilon": "1e-4..1e-2:3"}), RUN)
    assert sorted(set(members.values["learning_rate"])) == [1e-4, 1e-3, 1e-2]
    assert sorted(set(members.values["adam_epsilon"])) == [1e-4, 5.05e-3, 1e-2]


@pytest.mark.parametrize("sampling", ["random", "sobol"])
def test_drawn_points_fill_their_ranges_and_follow_the_seed(sampling: Any) -> None:
    asked = Population({"learning_rate": "log:1e-5..1e-1", "clip": "0.1,0.2,0.3,0.4"}, 256, sampling=sampling)
    members = members_of(asked, RUN)
    rates = np.log10(members.values["learning_rate"])
    counts = np.histogram(rates, bins=4, range=(-5, -1))[0]
    assert len(members) == 256
    assert counts.min() > (63 if sampling == "sobol" else 40)
    assert {members.values["clip"].count(x) > 40 for x in (0.1, 0.2, 0.3, 0.4)} == {True}
    assert members_of(asked, RUN) == members
    assert members_of(asked, replace(RUN, seed=1)).values != members.values


def test_points_are_drawn_by_sobol_if_their_number_is_given() -> None:
    asked = Population({"gamma": "0.9..0.99"}, points=5)
    assert members_of(asked, RUN).values == members_of(replace(asked, sampling="sobol"), RUN).values


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(InputError, match="gamma has 2 values for 3 members"):
        Members((0, 1, 2), {"gamma": (0.9, 0.99)})


@pytest.mark.parametrize(("keep", "expected"), [("best", [3]), ("all", [0, 1, 2, 3, 4]), ("every:2", [0, 2, 4])])
def test_members_are_kept_as_asked(keep: str, expected: list[int]) -> None:
    assert kept(keep, 5, best=3) == expected


# What is trained


@pytest.mark.parametrize("index", range(4))
def test_a_member_is_the_same_run_alone(whole: Trained, index: int, tmp_path: Path) -> None:
    alone = run_dir.train_run(whole.members.run(RUN, index), out=tmp_path / "alone").run_dir
    folders.keep(whole.folder, whole.members, [index])
    folder = whole.folder.member(index)
    ours, theirs = (checkpoint.read(place.checkpoint) for place in (folder, alone))
    assert (ours.run, ours.iteration) == (theirs.run, theirs.iteration)
    for name, x in theirs.weights.items():
        np.testing.assert_allclose(ours.weights[name], x, rtol=1e-9, atol=1e-11, err_msg=name)
    assert rows_of(folder)[0].keys() == rows_of(alone)[0].keys()
    for row, expected in zip(rows_of(folder), rows_of(alone), strict=True):
        for name, x in expected.items():
            assert float(row[name]) == pytest.approx(float(x), rel=1e-7, abs=1e-9, nan_ok=True), name
    assert folder.config.read_text() == alone.config.read_text()


@pytest.mark.parametrize(("unit", "programs"), [("phase", 2), ("iteration", 1), ("chunk", 1)])
def test_whatever_varies_is_one_program(unit: str, programs: int) -> None:
    run = replace(RUN, unit=unit, chunk=2)
    floats = {name: x for name, x in run.config.hyper._asdict().items() if isinstance(x, float)}
    everything = {name: [x, x * 0.9] for name, x in floats.items() if name != "initial_log_std"}
    values = {name: tuple(x) for name, x in everything.items()}
    assert sum(progress.compiles for progress in train_members(run, Members((0, 1), values), group=2)) == programs


PAIRS = [
    pytest.param(algorithm, name, marks=[] if (algorithm, name) == ("dqn", "nnx") else [pytest.mark.slow])
    for algorithm in registry.ALGORITHMS
    for name, spec in registry.BACKENDS.items()
    if spec.family == "jax"
]


@pytest.mark.parametrize(("algorithm", "name"), PAIRS)
def test_every_algorithm_and_backend_resumes_and_gives_members(algorithm: str, name: str, tmp_path: Path) -> None:
    config = import_module(f"benchback.parity.{algorithm}.cases").TINY
    config, env = replace(config, num_iterations=4, dtype=DTYPE), registry.ALGORITHMS[algorithm].env
    run = Run(config, env, name, unit="chunk", chunk=2)
    asked = Population({"gamma": [0.9, 0.99]}, group=1)
    whole = train_population(run, asked, out=tmp_path / "whole")
    train_population(run, asked, out=tmp_path / "broken", asked_to_stop=lambda: True)
    resumed = train_population(run, origin=folders.open_population(tmp_path / "broken"))
    check_same(resumed.folder, whole.folder)
    path, index, ours = folders.open_any(f"{whole.folder.path}#{whole.best}")
    assert (path, index) == (whole.folder.path, whole.best)
    assert equal(ours.weights, run_dir.open_run(whole.folder.member(whole.best).path)[1].weights)


def test_progress_has_all_members_and_exports_one_of_them(whole: Trained) -> None:
    run = replace(RUN, unit="chunk", chunk=4)
    (progress,) = train_members(run, whole.members, group=2)
    assert {x.shape for x in progress.metrics.values()} == {(4, 4)}
    assert [row["iteration"] for row in run_dir.numbered(progress, run, 0.0)] == [1, 2, 3, 4]
    every, one = progress.export(), progress.export_member(2)
    assert equal(one, {name: x[2] for name, x in every.items()})
    returns = curves_of(whole.folder).sort("iteration", "member")["episode_return"].to_numpy().reshape(4, 4)
    np.testing.assert_allclose(progress.metrics["episode_return"], returns, rtol=1e-9)


# What the folder has


def test_rows_summarise_the_members(whole: Trained) -> None:
    rows = whole.folder.rows()
    curves = curves_of(whole.folder)
    assert curves.height == 16
    for row in rows:
        returns = curves.filter(pl.col("iteration") == int(row["iteration"]))["episode_return"].to_numpy()
        expected = {"": np.nanmean, "_std": np.nanstd, "_min": np.nanmin, "_max": np.nanmax, "_median": np.nanmedian}
        for ending, function in expected.items():
            assert float(row[f"episode_return{ending}"]) == pytest.approx(function(returns))
        assert int(row["best_member"]) == np.nanargmax(returns)
    assert [int(row["env_steps"]) for row in rows] == [64, 128, 192, 256]


def test_members_without_a_finite_value_are_left_out_and_counted() -> None:
    x = np.array([[1.0, np.nan, 3.0, 10.0, -np.inf], [np.nan] * 5])
    first, second = summarise({"episode_return": x, "loss": np.ones((2, 5))})
    seen = [1.0, 3.0, 10.0]
    assert first["episode_return"] == pytest.approx(np.mean(seen))
    assert first["episode_return_std"] == pytest.approx(np.std(seen))
    for name, share in {"min": 0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1}.items():
        assert first[f"episode_return_{name}"] == pytest.approx(np.quantile(seen, share))
    assert (first["episode_return_count"], first["best_member"]) == (3, 3)
    assert np.isnan(second["episode_return_median"])
    assert (second["episode_return_count"], second["best_member"], second["loss_count"]) == (0, -1, 5)


@pytest.mark.parametrize("shape", [(300,), (300, 4)])
def test_summaries_of_large_populations_come_from_the_device(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    metrics = {name: random.normal(size=shape).astype(np.float32) for name in ("episode_return", "loss")}
    metrics["episode_return"][random.random(shape) < 0.3] = np.nan
    metrics["loss"][:, ...] = np.inf
    backend = registry.load("ppo", "purejax")[1]
    rows, fetched = summarised(backend, jax.tree.map(jnp.asarray, metrics), 300)
    expected = summarise(rows_first(metrics, 300))
    assert [list(row) for row in rows] == [list(row) for row in expected]
    for row, other in zip(rows, expected, strict=True):
        np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(fetched["episode_return"], rows_first(metrics, 300)["episode_return"])


def test_the_best_member_has_the_highest_return_of_the_last_tenth(tmp_path: Path) -> None:
    folder = PopulationDir(tmp_path)
    writer = CurveWriter(folder)
    returns = np.zeros((40, 3))
    returns[:36, 0], returns[36:, 1], returns[39, 2] = 100.0, 5.0, 8.0
    returns[39, 1] = np.nan
    writer.add(40, {"episode_return": returns})
    writer.flush()
    np.testing.assert_array_equal(folders.scores(folder, 4, 40), [0.0, 5.0, 2.0, np.nan])


def test_curves_are_written_before_they_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_ROWS", 100)
    folder = PopulationDir(tmp_path)
    writer = CurveWriter(folder)
    for i in range(1, 13):
        writer.add(i, {"episode_return": np.full((1, 30), float(i))})
        assert writer.rows < 100
    assert sorted(folder.parts()) == [1, 5, 9]
    assert curves_of(folder)["iteration"].to_list() == np.repeat(np.arange(1, 13), 30).tolist()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_iterations(tmp_path: Path) -> None:
    process, seen = psutil.Process(), []
    config = replace(TINY, num_envs=1, num_steps=4, num_minibatches=1, num_epochs=1, num_iterations=2000)
    run = Run(replace(config, hidden_sizes=(4,)), backend="purejax", unit="chunk", chunk=20)
    asked = Population(seeds=1024, group=64)
    train_population(run, asked, out=tmp_path / "pop", on_rows=lambda rows: seen.append(process.memory_info().rss))
    # All curves would be 100 MB.
    assert max(seen[80:]) - max(seen[20:40]) < 20e6


def test_curves_are_thinned_to_what_a_screen_can_show() -> None:
    assert [likely_thin(n) for n in (1, POINTS, POINTS + 1, 10_000)] == [1, 1, 2, 5]


def test_a_row_of_thinned_curves_is_the_mean_of_its_iterations(whole: Trained, tmp_path: Path) -> None:
    run = replace(RUN, unit="chunk", chunk=2)  # a call ends within a bucket, and a bucket within a call
    thinned = train_population(run, replace(ASKED, thin=3), out=tmp_path / "pop")
    every, curves = curves_of(whole.folder), curves_of(thinned.folder)
    assert curves.select("iteration", "iterations").unique().sort("iteration").rows() == [(3, 3), (4, 1)]
    for row in curves.to_dicts():
        within = pl.col("iteration").is_between(row["iteration"] - row["iterations"] + 1, row["iteration"])
        rows = every.filter(within, pl.col("member") == row["member"])
        for name in set(every.columns) - {"iteration", "member"}:
            values = rows[name].to_numpy()
            assert row[f"{name}_count"] == np.isfinite(values).sum()
            assert row[name] == pytest.approx(np.mean(values[np.isfinite(values)]), rel=1e-6), name
    member = rows_of(thinned.folder.member(thinned.best))
    assert [row["iteration"] for row in member] == ["3", "4"]
    assert len(rows_of(thinned.folder)) == 4, "summaries over members are of every iteration"


def written(folder: Path, thin: int, metrics: dict[str, np.ndarray], calls: int) -> PopulationDir:
    """Curves of metrics of shape [iterations, members], written in so many calls."""
    place = PopulationDir(folder)
    place.path.mkdir()
    writer, done = CurveWriter(place, thin), 0
    for part in np.array_split(np.arange(len(metrics["episode_return"])), calls):
        done += len(part)
        writer.add(done, {name: x[part] for name, x in metrics.items()})
    writer.flush()
    writer.end()
    return place


@pytest.mark.parametrize("calls", [1, 7, 40])
def test_thinned_curves_give_the_same_scores_and_name_the_same_losses(calls: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    metrics = {"episode_return": random.normal(size=(40, 3)), "policy_loss": random.normal(size=(40, 3))}
    metrics["episode_return"][random.random((40, 3)) < 0.5] = np.nan
    metrics["policy_loss"][17:, 1], metrics["policy_loss"][39:, 2] = np.nan, np.inf
    every, thinned = (written(tmp_path / str(thin), thin, metrics, calls) for thin in (1, 4))
    np.testing.assert_allclose(folders.scores(thinned, 3, 40), folders.scores(every, 3, 40))
    assert folders.diverged(thinned, RUN) == folders.diverged(every, RUN) == {1: 18, 2: 40}


# Stopped and resumed


def stopping_after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls - 1, -1, -1))
    return lambda: next(left) == 0


@pytest.mark.parametrize("calls", [1, 3])
def test_an_interrupted_population_resumes_to_the_same_end(whole: Trained, calls: int, tmp_path: Path) -> None:
    stopped = train_population(RUN, ASKED, out=tmp_path / "pop", asked_to_stop=stopping_after(calls))
    assert (stopped.interrupted, stopped.iteration) == (True, calls)
    assert not (tmp_path / "pop" / "members").exists()
    resumed = train_population(RUN, origin=folders.open_population(tmp_path / "pop"))
    assert not resumed.interrupted
    check_same(resumed.folder, whole.folder)
    assert resumed.folder.member(whole.best).checkpoint.exists()


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_bucket_that_a_stop_divides_is_whole_after_resuming(calls: int, tmp_path: Path) -> None:
    asked = replace(ASKED, thin=3)
    whole = train_population(RUN, asked, out=tmp_path / "whole")
    train_population(RUN, asked, out=tmp_path / "pop", asked_to_stop=stopping_after(calls))
    assert curves_of(PopulationDir(tmp_path / "pop"))["iteration"].max() == calls, "all that was trained can be read"
    resumed = train_population(RUN, origin=folders.open_population(tmp_path / "pop"))
    check_same(resumed.folder, whole.folder)
    again = train_population(RUN, origin=folders.open_population(tmp_path / "pop"))
    check_same(again.folder, whole.folder)
    with pytest.raises(InputError, match="--thin 2: the curves have a row for each 3 iterations already"):
        train_population(RUN, replace(asked, thin=2), origin=folders.open_population(tmp_path / "pop"))


def test_sums_of_a_bucket_written_after_the_last_checkpoint_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(ASKED, thin=3)
    whole = train_population(RUN, asked, out=tmp_path / "whole")
    save = run_dir.save

    def die(*given: Any) -> None:
        if given[1].iteration == 2:
            raise KeyboardInterrupt  # the sums are written, the checkpoint is not
        save(*given)

    monkeypatch.setattr(run_dir, "save", die)
    with pytest.raises(KeyboardInterrupt):
        train_population(RUN, asked, out=tmp_path / "pop", checkpoint_every=1)
    monkeypatch.undo()
    resumed = train_population(RUN, origin=folders.open_population(tmp_path / "pop"))
    check_same(resumed.folder, whole.folder)


def test_what_a_killed_population_left_after_its_checkpoint_is_dropped(whole: Trained, tmp_path: Path) -> None:
    def die(rows: list[dict[str, Any]]) -> None:
        if rows[-1]["iteration"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_population(RUN, ASKED, out=tmp_path / "pop", checkpoint_every=2, on_rows=die)
    folder = PopulationDir(tmp_path / "pop")
    assert sorted(folder.parts()) == [1]
    stray = folder.curves / "part-00000004.parquet"
    stray.write_bytes(folder.parts()[1].read_bytes())
    with folder.metrics.open("a") as file:
        file.write("1")  # of a row whose iteration is 12
    (folder.curves / ".part-00000004.99.new.parquet").write_bytes(b"PAR1 and no more")
    resumed = train_population(RUN, origin=folders.open_population(folder.path))
    check_same(resumed.folder, whole.folder)
    assert [path.name for path in folder.curves.glob(".*")] == []


IN_TURN = replace(RUN, backend="pytorch", mode="none", unit="phase", env="torch/CartPole-v1")


@pytest.mark.parametrize(("group", "words"), [(1, "one after another"), (3, "3 side by side")])
def test_members_of_torch_are_the_same_runs_alone_and_resume_to_the_same_end(
    group: int, words: str, tmp_path: Path
) -> None:
    asked, told = replace(ASKED, group=group, seeds=2, keep="all"), []
    whole = train_population(IN_TURN, asked, out=tmp_path / "whole", on_begin=lambda begun: told.append(begun.group))
    assert told == [words]
    for index in (0, 5, 7):
        *_, last = train(whole.members.run(IN_TURN, index))
        ours, theirs = checkpoint.read(whole.folder.member(index).checkpoint).weights, last.export()
        assert ours.keys() == theirs.keys()
        for name, x in theirs.items():
            np.testing.assert_allclose(ours[name], x, rtol=1e-9 * (group > 1), atol=1e-11 * (group > 1), err_msg=name)
    train_population(IN_TURN, asked, out=tmp_path / "pop", asked_to_stop=stopping_after(2))
    resumed = train_population(IN_TURN, origin=folders.open_population(tmp_path / "pop"))
    check_same(resumed.folder, whole.folder)


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 3])
def test_members_of_torch_share_compiled_programs(group: int, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from benchback.population.spec import Population
from benchback.population.training import train_population
from benchback.training.run import Run, build
run = Run.from_dict({replace(IN_TURN, mode="compile", unit="iteration").to_dict()!r})
rows = []
train_population(run, Population(seeds=3, group={group}), out=Path({str(tmp_path / "pop")!r}), on_rows=rows.extend)
print([int(row["compiles"]) for row in rows])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=1800)
    first, *rest = json.loads(found.stdout.splitlines()[-1])
    assert 1 <= first <= 3, "as many as one agent has: a rollout, an update, and the values between them"
    assert sum(rest) == 0


@pytest.mark.slow
def test_a_population_killed_at_any_moment_leaves_whole_files_and_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchback.cli", *TRAIN, "--num-iterations", "400", "--checkpoint-every", "7"]
    for attempt, wait_s in enumerate((0.0, 0.3, 0.9)):
        out = tmp_path / f"{attempt}"
        process = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.DEVNULL)
        while not (out / "checkpoint.safetensors").exists() and process.poll() is None:
            time.sleep(0.02)
        time.sleep(wait_s)
        process.kill()
        process.wait()
        for part in PopulationDir(out).parts().values():
            assert pl.read_parquet(part).height
        again = [sys.executable, "-m", "benchback.cli", "train", "--resume", str(out)]
        assert subprocess.run(again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        curves = curves_of(PopulationDir(out))
        assert curves["iteration"].to_list() == np.repeat(np.arange(1, 401), 2).tolist()
    ends = [checkpoint.read(tmp_path / f"{attempt}" / "checkpoint.safetensors").weights for attempt in range(3)]
    assert equal(ends[0], ends[1])
    assert equal(ends[0], ends[2])


def test_a_checkpoint_of_other_members_is_refused(whole: Trained, tmp_path: Path) -> None:
    (tmp_path / "population.yaml").write_text(whole.folder.population.read_text())
    (tmp_path / "checkpoint.safetensors").write_bytes(whole.folder.member(whole.best).checkpoint.read_bytes())
    with pytest.raises(InputError, match="not of the 4 members"):
        folders.open_population(tmp_path)


def test_more_members_can_be_kept_afterwards(whole: Trained) -> None:
    stored = folders.open_population(whole.folder.path)
    again = train_population(RUN, replace(stored.asked, keep="all"), origin=stored)
    kept_now = sorted(path.name for path in (whole.folder.path / "members").iterdir())
    assert kept_now == ["0000", "0001", "0002", "0003"]
    assert (again.iteration, again.interrupted) == (4, False)


def test_members_keep_what_is_their_own(whole: Trained) -> None:
    stored = folders.open_population(whole.folder.path)
    for run in (replace(RUN, seed=1), replace(RUN, config=replace(RUN.config, clip=0.5))):
        with pytest.raises(InputError, match="every member has its own"):
            train_population(run, origin=stored)


# The command line

SIZES = {"num-envs": 4, "num-steps": 16, "num-minibatches": 2, "num-epochs": 1, "hidden-sizes": 8}
SMALL = ["--unit", "iteration", *(word for name, x in SIZES.items() for word in (f"--{name}", str(x)))]
TRAIN = ["train", "ppo", "--backend", "purejax", *SMALL, "--seeds", "2"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path) -> Iterator[Callable]:
    """Runs the command line in this process, in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["benchback", *arguments])
        with computing("float32", optimised=False), pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", os.environ.copy())
        yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_population_is_trained_evaluated_and_a_member_continued(command: Callable, tmp_path: Path) -> None:
    code, out, _ = command(*TRAIN, "--vary", "clip=0.1,0.2", "--num-iterations", "3", "--out", "pop", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [event["event"] for event in events] == ["population", *["iteration"] * 3, "done"]
    assert (events[0]["members"], events[0]["varied"], events[-1]["folder"]) == (4, ["clip"], "pop")
    best = events[-1]["best"]
    assert best["clip"] == (0.1 if best["member"] < 2 else 0.2)
    assert best["seed"] == best["member"] % 2
    assert events[-1]["best"]["mean"] >= events[-1]["mean"]
    assert [path.name for path in Path("pop/members").iterdir()] == [f"{best['member']:04d}"]

    member, longer = f"pop#{best['member']}", ["--num-iterations", "4"]
    evaluated = json.loads(command("eval", member, "--episodes", "3", "--json")[1])
    assert (evaluated["iteration"], evaluated["episodes"]) == (3, 3)
    assert command("train", "--resume", member, *longer, "--out", "a")[0] == 0
    alone = run_dir.open_run(Path("a"))[1]
    assert (alone.iteration, alone.run["clip"], alone.run["seed"]) == (4, best["clip"], best["seed"])
    code, out, _ = command("train", "--resume", "pop", *longer, "--out", "longer")
    assert (code, "over 4 members" in out) == (0, True)
    assert checkpoint.read(tmp_path / "longer" / "checkpoint.safetensors").iteration == 4

    refused = {
        ("eval", "pop"): "name one of them, e.g. pop#0",
        ("eval", "pop#4"): "members are 0 to 3",
        ("eval", "pop#x"): "members are 0 to 3",
        ("eval", "a#0"): "not the folder of a population",
        ("eval", "none#0"): "not the folder of a population",
        ("play", "pop#-1"): "members are 0 to 3",
        ("train", "--resume", "pop#9"): "members are 0 to 3",
        ("train", "--resume", "pop", "--seeds", "8"): "settled by --resume pop",
        ("train", "--resume", "a", "--seeds", "8"): "settled by --resume a",
        ("train", "--resume", "pop", "--seed", "3"): "every member has its own",
        ("train", "--resume", "pop", "--clip", "0.3"): "every member has its own",
        ("train", "--resume", "pop", "--keep", "worst"): "choose best, all or every:K",
        (*TRAIN, "--out", "pop"): "pop exists; choose another --out",
    }
    for arguments, words in refused.items():
        check_refused(command(*arguments), words)


def check_refused(outcome: tuple[int, str, str], words: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1


WRONG = {
    "--seeds 0": "--seeds 0 must be at least 1",
    "--seeds -3": "at least 1",
    "--seeds 2000000": "too many",
    "--seeds 2 --seed 4294967295": "too many",
    "--vary gamma=0.9,0.99 --population 0": "--population 0 must be at least 1",
    "--vary gamma=0.9,0.99 --group 0": "--group 0 must be at least 1",
    "--seeds 4 --group 5": "choose 1 to 4",
    "--seeds 4 --keep worst": "choose best, all or every:K",
    "--seeds 4 --keep every:0": "choose best, all or every:K",
    "--keep best": "give --seeds N or --vary",
    "--group 2": "give --seeds N or --vary",
    "--population 8": "use --seeds 8",
    "--seeds 2 --sampling sobol": "nothing to place",
    "--vary num_envs=4,8": "part of the program",
    "--vary backend=linen,nnx": "part of the program",
    "--vary seed=1,2": "--seeds N",
    "--vary learnin_rate=1e-3,1e-2": "did you mean learning_rate?",
    "--vary learning_rate": "must be FIELD=VALUE,VALUE",
    "--vary learning_rate=": "has no values",
    "--vary learning_rate=1e-3,": "is not a number",
    "--vary learning_rate=fast": "is not a number",
    "--vary learning_rate=nan,1e-3": "must be finite",
    "--vary learning_rate=1e-3,inf": "must be finite",
    "--vary learning_rate=0,1e-3": "learning_rate=0.0 must be greater than 0",
    "--vary gamma=0.9..1.5 --population 4": "must lie between 0 and 1",
    "--vary gamma=0.9..0.8 --population 4": "must begin below its end",
    "--vary gamma=log:0..1 --population 4": "must begin above 0",
    "--vary gamma=0.9..0.99": "write gamma=LOW..HIGH:8",
    "--vary gamma=0.9..0.99:1": "at least 2 values",
    "--vary gamma=0.9..0.99:4 --population 8": "which only a grid has",
    "--vary gamma=0.9,0.99 --sampling random": "give --population N",
    "--vary gamma=0.9,0.99 --population 3 --sampling grid": "not the size of the grid, 2",
    "--vary gamma=0.9 --vary gamma=0.99": "given twice",
    "--seeds 2 --mode eager": "does not fit a population",
    "--seeds 2 --backend pytorch --mode none --unit phase --group 2": "is not of torch tensors; use --group 1",
    "--seeds 2 --backend pytorch --mode none --unit phase --env gymnasium/CartPole-v1": "has one state",
    "--seeds 2 --env gymnasium/CartPole-v1": "runs in Python",
    "--seeds 2 --checkpoint-every 0": "must be at least 1",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_populations_are_refused_in_one_line(arguments: str, command: Callable, tmp_path: Path) -> None:
    usual = ["--backend", "purejax", *SMALL]
    starts = [place for place, word in enumerate(usual) if word.startswith("--")]
    parts = [usual[i:j] for i, j in zip(starts, [*starts[1:], None], strict=True)]
    kept = [word for part in parts if part[0] not in arguments.split() for word in part]
    check_refused(command("train", "ppo", *kept, *arguments.split()), WRONG[arguments])
    assert list(tmp_path.iterdir()) == []


def test_a_population_that_does_not_fit_is_refused_before_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    available = 10_000_000
    monkeypatch.setattr(memory, "_available", lambda: (available, 3))
    with pytest.raises(InputError, match=r"100000 members do not fit into .* each takes [\d,]+ bytes") as refused:
        train_members(RUN, members_of(Population(seeds=100_000), RUN))
    largest = int(str(refused.value).partition("so at most ")[2].split()[0])
    assert 100 < largest < 100_000
    monkeypatch.setattr(memory, "_available", lambda: (100, 3))
    with pytest.raises(InputError, match="not even one does"):
        train_members(RUN, members_of(Population(seeds=1), RUN))


@pytest.mark.parametrize(
    "content", ["", "members: 3", "members: {seed: [a], values: {}}", "- 1", "seeds: 2", "{", "x: 1"]
)
def test_a_damaged_population_file_is_named(content: str, whole: Trained, tmp_path: Path) -> None:
    (tmp_path / "population.yaml").write_text(content)
    (tmp_path / "checkpoint.safetensors").write_bytes(whole.folder.checkpoint.read_bytes())
    with pytest.raises(InputError, match=r"population\.yaml: damaged"):
        folders.open_population(tmp_path)


@pytest.mark.slow
def test_512_seeds_together_are_distributed_as_512_single_runs() -> None:
    """Other seeds on either side: what is compared is the distribution, not the members one by one."""
    from scipy.stats import ks_2samp

    number, config = 512, replace(TINY, num_steps=32, num_iterations=30, learning_rate=3e-3)
    with computing("float32", optimised=True):
        run = Run(config, backend="purejax", unit="chunk", chunk=30)
        *_, last = train_members(run, members_of(Population(seeds=number), run), group=64)
        agent, backend = build(run)
        alone = [backend.fetch(advance(agent, start(agent, number + i))[1]) for i in range(number)]
    for metric in ("episode_return", "loss", "entropy"):
        found = [last.metrics[metric][-1], *(np.array([float(x[metric][at]) for x in alone]) for at in (-1, 0))]
        together, apart, untrained = (x[np.isfinite(x)] for x in found)  # in some iterations no episode ends
        assert len(np.unique(together)) > number / 4, "seeds differ"
        same, other = (float(np.asarray(ks_2samp(together, x))[1]) for x in (apart, untrained))
        assert same > 0.001, metric
        assert other < 1e-6, f"{metric}: training changes the distribution, and it shows"
