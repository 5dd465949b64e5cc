"""What is watched while an agent trains: evaluations, the best weights, a return to stop at, numbers that are lost."""

import json
import math
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
from conftest import TINY

from benchback import cli
from benchback.algorithms.td3.config import Config as TD3
from benchback.errors import InputError
from benchback.population.folder import open_any
from benchback.population.spec import Population
from benchback.population.training import train_population
from benchback.training import Progress, checkpoint, run_dir
from benchback.training.evaluate import evaluate
from benchback.training.monitor import RECENT, Diverged, Monitor, Watch, first_not_finite
from benchback.training.rows import read_rows
from benchback.training.run import Run
from benchback.training.run_dir import RunDir, train_run

RUN = Run(replace(TINY, learning_rate=5e-3), backend="purejax", unit="iteration")
"""32 steps an iteration, 6 iterations."""
MONITOR = Monitor(evaluate_every=50, evaluate_episodes=4)
HOPELESS = 1e30
"""A learning rate that no network survives."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return train_run(RUN, out=tmp_path_factory.mktemp("plain") / "run").run_dir


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return train_run(RUN, out=tmp_path_factory.mktemp("watched") / "run", monitor=MONITOR).run_dir


def rows_of(folder: RunDir) -> list[dict[str, str]]:
    """Rows without what depends on the machine."""
    return [{name: x for name, x in row.items() if name != "seconds"} for row in folder.rows()]


def equal(a: RunDir, b: RunDir) -> bool:
    ours, theirs = (checkpoint.read(x.checkpoint).weights for x in (a, b))
    return ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)


def stopping_after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls - 1, -1, -1))
    return lambda: next(left) == 0


# Evaluations


def test_evaluating_changes_nothing_of_the_training(plain: RunDir, watched: RunDir) -> None:
    assert rows_of(watched) == rows_of(plain)
    assert equal(watched, plain)
    assert not plain.evaluations.exists()
    assert not plain.monitor.exists()


def test_evaluations_are_as_many_steps_apart_as_asked_and_one_is_at_the_end(watched: RunDir) -> None:
    rows = read_rows(watched.evaluations)
    assert [(int(row["iteration"]), int(row["env_steps"])) for row in rows] == [(2, 64), (4, 128), (5, 160), (6, 192)]
    assert {row["episodes"] for row in rows} == {"4"}


def test_the_best_weights_are_those_of_the_best_evaluation(watched: RunDir) -> None:
    rows = read_rows(watched.evaluations)
    means = [float(row["return_mean"]) for row in rows]
    best = checkpoint.read(watched.best)
    assert best.iteration == int(rows[int(np.argmax(means))]["iteration"])
    assert evaluate(RUN, best.weights, 4, seed=1).mean() == max(means)
    assert not [name for name in best.weights if name.startswith(("env/", "rng", "replay/"))]


def test_the_best_weights_are_opened_by_name_or_by_wish(watched: RunDir, plain: RunDir) -> None:
    folder, member, found = open_any(str(watched.best))
    assert (folder, member) == (watched.path, None)
    assert open_any(str(watched.path), best=True)[2].iteration == found.iteration
    with pytest.raises(InputError, match=r"no best\.safetensors; train with --evaluate-every"):
        open_any(str(plain.path), best=True)


def test_a_resumed_run_goes_on_evaluating_as_it_was_begun(watched: RunDir, tmp_path: Path) -> None:
    first = train_run(RUN, out=tmp_path / "run", monitor=MONITOR, asked_to_stop=stopping_after(3))
    assert (first.iteration, first.interrupted) == (3, True)
    # A row after the checkpoint, as a process leaves it that was killed later on.
    with first.run_dir.evaluations.open("a") as file:
        file.write("4,128,4,9999.0,0.0,9999.0,9999.0\n")
    _, at = run_dir.open_run(tmp_path / "run")
    resumed = train_run(RUN, origin=(tmp_path / "run", at)).run_dir
    assert resumed.evaluations.read_text() == watched.evaluations.read_text()
    assert equal(resumed, watched)
    best, expected = (checkpoint.read(x.best) for x in (resumed, watched))
    assert best.iteration == expected.iteration


# A return to stop at


def test_training_ends_when_an_evaluation_reaches_the_return(watched: RunDir, tmp_path: Path) -> None:
    means = [float(row["return_mean"]) for row in read_rows(watched.evaluations)]
    goal = means[1]
    found = train_run(RUN, out=tmp_path / "run", monitor=replace(MONITOR, stop_at=goal))
    reached = next(i for i, x in enumerate(means) if x >= goal)
    assert (found.iteration, found.reached, found.interrupted) == ((2, 4)[reached], means[reached], False)
    assert checkpoint.read(found.run_dir.checkpoint).iteration == found.iteration


def watch(tmp_path: Path, stop_at: float) -> Watch:
    return Watch(RUN, Monitor(stop_at=stop_at), *(tmp_path / name for name in ("evaluations", "best", "metrics")))


def test_without_evaluations_the_last_iterations_that_ended_episodes_count(tmp_path: Path) -> None:
    watching = watch(tmp_path, stop_at=10.0)

    def see(*returns: float) -> float | None:
        watching.after([{"episode_return": x} for x in returns], pytest.fail)
        return watching.reached

    assert see(*[20.0] * (RECENT - 1)) is None, "fewer than ten iterations"
    assert see(math.nan) is None, "an iteration in which no episode ended"
    assert see(0.0) == (RECENT - 1) * 20 / RECENT
    watching = watch(tmp_path, stop_at=10.0)
    assert see(*[0.0] * 50, *[20.0] * 4) is None, "a mean of 8"
    assert see(20.0) == 10.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"evaluate_every": 0}, "evaluate_every=0 must be at least 1"),
        ({"evaluate_episodes": 0}, "evaluate_episodes=0 must be at least 1"),
        ({"stop_at": math.nan}, "stop_at=nan must be a finite return"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Monitor(**wrong)


# Numbers that are lost


def test_training_stops_where_it_diverges_and_keeps_the_last_finite_checkpoint(tmp_path: Path) -> None:
    seen: list[int] = []
    config = replace(RUN.config, learning_rate=HOPELESS)
    with pytest.raises(Diverged, match=r"is not finite in iteration \d.*learning_rate below 1e\+30") as lost:
        train_run(
            replace(RUN, config=config),
            out=tmp_path / "run",
            checkpoint_every=1,
            on_rows=lambda rows: seen.extend(row["iteration"] for row in rows),
        )
    assert 1 <= lost.value.iteration <= 3
    assert seen == list(range(1, lost.value.iteration + 1))
    kept = tmp_path / "run" / "checkpoint.safetensors"
    assert kept.exists() == bool(lost.value.saved)
    if kept.exists():
        found = checkpoint.read(kept)
        assert found.iteration == lost.value.saved == lost.value.iteration - 1
        assert all(np.isfinite(x).all() for x in found.weights.values())


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training whose metrics are fine and whose weights are lost in the last iteration."""

    def train(run: Run, at: Any = None) -> Iterator[Progress]:
        for i in range(1, 7):
            weights = {"actor/0/kernel": np.full(2, np.inf if i == 6 else 1.0)}
            yield Progress(i, [{"loss": 1.0, "episode_return": math.nan}], 0, lambda weights=weights: weights)

    monkeypatch.setattr(run_dir, "train", train)


@pytest.mark.usefixtures("losing")
def test_weights_that_are_lost_in_the_last_iteration_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"actor/0/kernel is not finite in iteration 6.*checkpoint of iteration 5 is in"):
        train_run(RUN, out=tmp_path / "run", checkpoint_every=1)
    assert checkpoint.read(tmp_path / "run" / "checkpoint.safetensors").iteration == 5


@pytest.mark.usefixtures("losing")
def test_default_folders_are_numbered_and_a_given_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "ppo-purejax-gymnax-CartPole-v1-jit-iteration-seed0"
    for _ in range(3):
        train_run(RUN, asked_to_stop=lambda: True)
    assert {path.name for path in Path("runs").iterdir()} == {name, f"{name}-2", f"{name}-3"}
    with pytest.raises(InputError, match="exists; choose another --out"):
        train_run(RUN, out=Path("runs") / f"{name}-2")


@pytest.mark.parametrize(
    ("iteration", "row", "found"),
    [
        (1, {"critic_loss": math.nan, "episode_return": math.nan}, None),
        (5, {"critic_loss": 1.0, "actor_loss": math.nan, "episode_return": math.nan}, None),
        (5, {"critic_loss": math.nan, "actor_loss": 1.0, "episode_return": 1.0}, (5, "critic_loss")),
        (5, {"critic_loss": math.inf, "actor_loss": 1.0, "episode_return": 1.0}, (5, "critic_loss")),
    ],
)
def test_what_is_not_learnt_yet_is_not_lost(iteration: int, row: dict[str, float], found: Any) -> None:
    """TD3 does not learn at first, and not its actor in every iteration."""
    config = TD3(num_envs=1, num_steps=1, num_updates=1, policy_delay=2, start_steps=4, update_after=2)
    run = Run(config, env="gymnax/Pendulum-v1")
    assert first_not_finite(run, [{"iteration": iteration} | row]) == found


def test_a_member_that_diverges_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    asked = Population({"learning_rate": [1e-3, HOPELESS, 3e-3]}, group=3)
    trained = train_population(RUN, asked, out=tmp_path / "pop")
    assert list(trained.diverged) == [1]
    assert 1 <= trained.diverged[1] <= 3
    assert (trained.iteration, trained.interrupted) == (6, False)
    for index in (0, 2):
        weights = open_any(f"{trained.folder.path}#{index}")[2].weights
        assert all(np.isfinite(x).all() for x in weights.values())


def test_a_population_ends_when_its_mean_return_is_reached(tmp_path: Path) -> None:
    run = replace(RUN, config=replace(RUN.config, num_iterations=40))
    trained = train_population(run, Population(seeds=3, group=3), out=tmp_path / "pop", monitor=Monitor(stop_at=1.0))
    assert trained.iteration < 40
    assert trained.reached is not None
    assert not trained.interrupted
    assert trained.folder.member(trained.best).checkpoint.exists()
    with pytest.raises(InputError, match="evaluate_every=50 is about a single agent"):
        train_population(run, Population(seeds=3), monitor=MONITOR)


# The command line


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path) -> Iterator[Callable]:
    """Runs the command line in this process, in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    fields = RUN.to_dict() | {"num_iterations": 6}
    Path("run.yaml").write_text(yaml.safe_dump(fields))

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


TRAIN = ("train", "ppo", "--config", "run.yaml")


def test_the_command_line_evaluates_says_steps_a_second_and_stops(command: Callable) -> None:
    goal = ("--evaluate-every", "32", "--evaluate-episodes", "2", "--stop-at", "1")
    code, out, error = command(*TRAIN, *goal, "--out", "a")
    assert code == 0
    assert "evaluated after 32 steps" in error
    assert "reached a return of" in out
    assert "in iteration 1; files in a" in out
    code, out, error = command("train", "--resume", "a", "--stop-at", "1e9", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["iteration", "evaluation"] * 5 + ["done"], "as it was begun"
    code, out, error = command("eval", "a", "--best", "--episodes", "2", "--json")
    means = [float(row["return_mean"]) for row in read_rows(RunDir(Path("a")).evaluations)]
    assert (code, json.loads(out)["iteration"]) == (0, 1 + int(np.argmax(means)))
    assert json.loads(out)["mean"] == max(means)
    code, _, error = command("train", "--resume", "a/best.safetensors")
    assert (code, "resume its run folder" in error) == (2, True)
    assert "steps/s" in command(*TRAIN, "--out", "b")[2].splitlines()[-1]


def test_the_command_line_says_in_one_line_where_it_diverged(command: Callable) -> None:
    code, out, error = command(*TRAIN, "--learning-rate", str(HOPELESS), "--out", "a", "--json")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["event"] == "diverged"
    (line,) = [line for line in error.splitlines() if "error" in line]
    assert "is not finite in iteration" in line
    assert "learning_rate below 1e+30" in line


def test_evaluation_episodes_alone_are_refused(command: Callable) -> None:
    code, _, error = command(*TRAIN, "--evaluate-episodes", "4")
    assert (code, "give --evaluate-every STEPS too" in error) == (2, True)
