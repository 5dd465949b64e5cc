"""Evolution over trainings: strategies improve, a search survives being killed, what it finds can be trained with."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import TINY
from representatives import slow

from benchback import cli
from benchback.errors import InputError
from benchback.population.spec import Members
from benchback.population.training import built, train_members
from benchback.tools.discover import evaluation, figures, page, search, strategies
from benchback.tools.discover.evaluation import Contest
from benchback.tools.discover.fitness import Trainings, at_the_end, fitness, whole
from benchback.tools.discover.genomes import Drift, Floats, floats_of, members_of, no_drift
from benchback.tools.discover.search import Asked, evolve, open_folder
from benchback.tools.discover.strategies import Settings
from benchback.training import objectives
from benchback.training.run import Run

RUN = Run(replace(TINY, num_iterations=2), backend="purejax")
TARGET = 0.7
DQN_FIELDS = {"num_envs": 4, "num_steps": 2, "num_iterations": 4, "learning_starts": 8, "replay_capacity": 40}
DQN_FIELDS |= {"minibatch_size": 8}


class Hill(Trainings):
    """Returns that are the higher the nearer a vector is to a point, and differ by seed alike for all vectors."""

    def scores(self, run: Run, vectors: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
        luck = np.array([np.random.default_rng(seed).normal() for seed in seeds])
        return -10 * ((vectors - TARGET) ** 2).mean(axis=1)[:, None] + luck


def asked(strategy: str = "openes", generations: int = 40, **given: Any) -> Asked:
    settings = Settings(agents=16, sigma=0.1, rate=0.1, seed=3)
    genome = Drift((0.0,) * 9)
    return replace(Asked(RUN, genome, (RUN.env,), strategy, settings, generations, 2), **given)


def run_hill(path: Path, wanted: Asked, **hooks: Any) -> search.Found:
    return evolve(wanted, path, Hill(wanted.genome), **hooks)


@pytest.mark.parametrize("strategy", ["openes", "random", *map(slow, ("snes", "cma_es", "sep_cma_es"))])
def test_a_strategy_climbs_towards_higher_returns(strategy: str, tmp_path: Path) -> None:
    found = run_hill(tmp_path / "search.safetensors", asked(strategy))
    assert np.abs(found.vector - TARGET).mean() < (0.5 if strategy == "random" else 0.2)
    last = found.history[-1][RUN.env]
    assert last["result"] > last["start"] + 2


def test_vectors_are_tried_in_antithetic_pairs_around_the_mean() -> None:
    strategy = strategies.make("openes", Drift((1.0,) * 9), Settings(8, 0.1, 0.1, 0))
    tried, _ = strategy.ask(0, strategy.init())
    np.testing.assert_allclose(tried[:4] + tried[4:], 2.0, atol=1e-6)
    assert np.std(tried) == pytest.approx(0.1, rel=0.4)


def test_all_vectors_of_a_generation_share_its_seeds_and_generations_have_their_own() -> None:
    seeds = [asked().seeds_of(generation) for generation in range(5)]
    assert len({tuple(x) for x in seeds}) == 5
    members, values = members_of(Drift((0.0,) * 9), np.zeros((3, 9)), seeds[0])
    assert members == tuple(seeds[0]) * 3
    assert len(values["objective"]) == 6


@pytest.mark.parametrize("strategy", ["openes", "random", slow("cma_es")])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(strategy: str, tmp_path: Path) -> None:
    """Stopped after the third generation, as killed: nothing but the checkpoint is left."""
    whole = run_hill(tmp_path / "whole.safetensors", asked(strategy, 6))
    path = tmp_path / "part.safetensors"
    done: list[int] = []
    part = run_hill(
        path,
        asked(strategy, 6),
        on_generation=lambda history, vector: done.append(len(history)),
        asked_to_stop=lambda: len(done) == 3,
    )
    assert part.interrupted
    rest = run_hill(path, asked(strategy, 6))
    np.testing.assert_array_equal(rest.vector, whole.vector)
    assert [row[RUN.env] for row in rest.history] == [row[RUN.env] for row in whole.history]


def test_a_generation_counts_when_it_is_written_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "search.safetensors"

    class Killed(Exception):
        pass

    class Mortal(Hill):
        def scores(self, run: Run, vectors: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
            if seeds == asked().seeds_of(2):
                raise Killed
            return super().scores(run, vectors, seeds)

    with pytest.raises(Killed):
        evolve(asked(generations=5), path, Mortal(asked().genome))
    _, history = search.load(path, strategies.make("openes", asked().genome, asked().settings))
    assert len(history) == 2
    assert not [x for x in tmp_path.iterdir() if x != path]


def test_a_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "found"
    open_folder(out, asked())
    open_folder(out, asked(generations=80))
    with pytest.raises(InputError, match=r"is of another search, see discovery\.yaml"):
        open_folder(out, asked(seeds=3))
    (out / "search.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="damaged"):
        run_hill(out / "search.safetensors", asked())


# Fitness.


def test_the_return_at_the_end_is_that_of_the_last_tenth_carried_on_where_no_episode_ended() -> None:
    returns = np.full((20, 3), 1.0)
    returns[18:, 0] = 5.0, 7.0
    returns[17:, 1] = 9.0, np.nan, np.nan
    returns[:, 2] = np.nan
    np.testing.assert_array_equal(at_the_end(returns), [6.0, 9.0, np.nan])


def test_environments_count_alike_and_no_return_is_the_worst() -> None:
    scores = np.array([[[1.0], [100.0]], [[2.0], [300.0]], [[3.0], [200.0]], [[np.nan], [0.0]]])
    found = fitness(scores)
    assert found.argmax() in (1, 2)
    assert found.argmin() == 3
    np.testing.assert_allclose(fitness(scores * [[[1000.0], [1.0]]]), found)


# What evolves.


def test_a_search_begins_without_any_drift() -> None:
    genome = no_drift(8, seed=0)
    config = replace(RUN.config, surrogate="learned", objective=genome.begin)
    ratio, advantage = np.linspace(-2, 2, 41), np.linspace(-3, 3, 41)
    gain, _ = figures.oracle.learned_gain(ratio, advantage, config)
    np.testing.assert_allclose(gain, np.exp(ratio) * advantage)
    assert np.abs(genome.start).max() > 0.1


def test_floats_stay_within_their_ranges_and_begin_where_the_run_is() -> None:
    run, genome = floats_of(RUN, {"learning_rate": "log:1e-5..1e-1", "gamma": "0.9..1"})
    assert run == RUN
    assert genome.fields(genome.start) == pytest.approx({"learning_rate": 2.5e-4, "gamma": 0.99}, rel=1e-3)
    wild = genome.values(np.array([[-1e3, 1e3], [0.0, 0.0]]))
    assert wild["learning_rate"] == (1e-5, pytest.approx(1e-3))
    assert wild["gamma"] == (1.0, pytest.approx(0.95))
    random = np.random.default_rng(0)
    drawn = genome.values(np.stack([genome.draw(random) for _ in range(200)]))
    assert np.median(np.log10(drawn["learning_rate"])) == pytest.approx(-3, abs=0.4)


DQN = Run.from_dict({"algorithm": "dqn", "backend": "purejax", "env": RUN.env, "hidden_sizes": [8]} | DQN_FIELDS)


def test_a_schedule_begins_as_the_run_has_it_and_evolves_beside_floats() -> None:
    run, genome = floats_of(DQN, {"gamma": "0.9..1", "epsilons": "0..1:5", "tau": "0.5..1"})
    assert run.config.exploration == "knots"
    assert run.config.epsilons == pytest.approx((1.0, 0.525, 0.05, 0.05, 0.05))
    assert len(genome.start) == 7
    began = genome.fields(genome.start)
    assert began["epsilons"] == pytest.approx([0.98, 0.525, 0.05, 0.05, 0.05], abs=1e-3)  # not quite at an end
    assert began["gamma"] == pytest.approx(0.99, abs=1e-3)
    vectors = np.zeros((2, 7))
    vectors[1, 1:6] = -1e3, 1e3, 0.0, 0.0, 1e3
    values = genome.values(vectors)
    np.testing.assert_allclose(values["epsilons"], [[0.5] * 5, [0.0, 1.0, 0.5, 0.5, 1.0]], atol=1e-9)
    assert values["tau"] == (0.75, 0.75)
    assert genome.draw(np.random.default_rng(0)).shape == (7,)


def test_members_of_a_generation_explore_by_their_own_schedules() -> None:
    """Epsilon is a metric: each member's is its own at every moment, in one program."""
    run, genome = floats_of(DQN, {"epsilons": "0..1:3"})
    vectors = np.array([[50.0, -50.0, 0.0], [-50.0, 50.0, 50.0]])
    seeds, values = members_of(genome, vectors, [4])
    (progress,) = train_members(whole(run), Members(seeds, values), group=2, build=built, devices=1)
    before = np.arange(4) / 4
    knots = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 1.0]])
    expected = np.stack([np.interp(before, [0, 0.5, 1], each) for each in knots], axis=1)
    np.testing.assert_allclose(progress.metrics["epsilon"], expected, atol=1e-6)


# Files and figures.


def test_a_drift_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "objective.json"
    genome = Drift(tuple(np.random.default_rng(0).normal(size=18)))
    fields = genome.fields(genome.start)
    objectives.write(path, fields["objective"], {"seed": 1})
    assert objectives.read(path) == tuple(fields["objective"])
    assert objectives.read(path) == genome.values(genome.start[None])["objective"][0]


@pytest.mark.parametrize(
    "content", ["", "[1, 2]", '{"format": "other"}', '{"format": "benchback drift 1", "weights": 3}']
)
def test_a_file_that_is_none_of_a_drift_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(InputError, match="does not exist; benchback discover writes"):
        objectives.read(path)
    path.write_text(content)
    with pytest.raises(InputError, match="is not the file of a drift"):
        objectives.read(path)


def test_gradients_of_all_objectives_are_drawn_and_equal_the_advantage_at_ratio_one() -> None:
    drawn = figures.gradients(RUN.config, no_drift(2, 0).begin)
    rows = drawn["data"]["values"]
    assert {row["objective"] for row in rows} == {"PPO's clip", "DPO", "discovered"}
    at_one = [row for row in rows if row["ratio"] == 1.0]
    assert at_one
    assert all(row["slope"] == pytest.approx(row["advantage"], abs=1e-3) for row in at_one)


def contest(**scores: Sequence[float]) -> Contest:
    return Contest("gymnax/X", True, {name: np.array(x) for name, x in scores.items()})


def test_no_better_is_said_where_the_interval_includes_no_difference() -> None:
    found = contest(discovered=[1.0, 2.0, 3.0], clip=[1.1, 1.9, 3.05], drift=[0.0, 1.1, 1.9], start=[5.0, 6.1, 7.0])
    assert "no better than clip" in evaluation.sentence(found, "clip")
    assert "better than drift by 1" in evaluation.sentence(found, "drift")
    assert "worse than start: -4" in evaluation.sentence(found, "start")


def test_the_page_has_figures_and_the_table(tmp_path: Path) -> None:
    wanted = replace(asked(generations=2), run=replace(RUN, config=replace(RUN.config)))
    found = run_hill(tmp_path / "search.safetensors", wanted)
    page.write_fitness(tmp_path, wanted, found.history)
    live = (tmp_path / "report.html").read_text()
    assert live.count("<svg") == 1
    assert 'http-equiv="refresh"' in live
    contests = [contest(discovered=[1.0, 2.0], clip=[1.0, 3.0])]
    paths = page.write_page(tmp_path, wanted, found.vector, found.history, contests)
    assert page.write_result(tmp_path, wanted, found.vector, found.history).name == "objective.json"
    text = paths[-1].read_text()
    assert text.count("<svg") == 2
    assert "refresh" not in text
    assert "no better than clip" in text
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 3


# The command line.


def run_command(*arguments: str) -> int:
    """The exit code of our command line, in this process."""
    before, sys.argv = sys.argv, ["benchback", *arguments]
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = before
    return 0


SMALL = ("--num-envs", "4", "--num-steps", "8", "--num-minibatches", "2", "--num-epochs", "4", "--num-iterations", "2")
SMALL += ("--hidden-sizes", "8", "--learning-rate", "0.05", "--backend", "purejax")
EVOLVE = ("--agents", "4", "--generations", "2", "--seeds", "1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--agents", "5"), "--agents 5 must be an even number from 4 on"),
        (("--generations", "0"), "--generations 0 must be at least 1"),
        (("--sigma", "0"), "--sigma 0 must be greater than 0"),
        (("--width", "0"), "--width 0 must lie between 1 and 1024"),
        (("--test-seeds", "1"), "--test-seeds 1 must be at least 2"),
        (("--evolve", "num_envs=1..4"), "--evolve num_envs: it is part of the program"),
        (("--evolve", "gamma=0.9,0.99"), "--evolve gamma=0.9,0.99 must be a range, e.g."),
        (("--evolve", "gamma=0.9..2"), "gamma=2.0 must lie between 0 and 1"),
        (("dqn", "--evolve", "epsilons=0..1"), "epsilons=0..1 must have its number of knots behind a range"),
        (("dqn", "--evolve", "epsilons=0..1:1"), "must have at least 2 values"),
        (("dqn", "--evolve", "epsilons=0..2:3"), "epsilons: 2.0 must lie between 0 and 1"),
        (("--transfer", "gymnax/CartPole-v1"), "is evolved on; name an environment that is not"),
        (("--backend", "pytorch"), "has no program of several agents"),
        (("--objective", "missing.json"), "missing.json does not exist; benchback discover writes such a file"),
        (("--strategy", "luck"), "luck"),
    ],
)
def test_wrong_input_is_one_line_with_the_remedy(
    arguments: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command("discover", *arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_algorithm_without_a_drift_evolves_floats_only(capsys: pytest.CaptureFixture) -> None:
    assert run_command("discover", "dqn") == 2
    assert "dqn has no drift; evolve its floats, e.g. --evolve gamma" in capsys.readouterr().err


def test_a_schedule_is_given_as_numbers(capsys: pytest.CaptureFixture) -> None:
    assert run_command("train", "dqn", "--exploration", "knots", "--epsilons", "1", "2", "0") == 2
    assert "epsilons: 2.0 must lie between 0 and 1" in capsys.readouterr().err


def test_what_is_discovered_is_trained_with(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two generations; the file that they leave determines a run of another framework, which holds its numbers."""
    monkeypatch.chdir(tmp_path)
    search_it = ("discover", *SMALL, *EVOLVE, "--test-seeds", "0", "--width", "2", "--out", "found", "--json")
    assert run_command(*search_it) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["generation", "generation", "found"]
    assert events[0]["left_s"] > 0
    assert events[1]["left_s"] == 0
    # With one seed for all, only their drifts make members differ.
    assert events[-2]["gymnax/CartPole-v1"]["tried_std"] > 0
    assert {x.name for x in Path("found").iterdir()} >= {"fitness.png", "gradients.png", "report.html", "history.csv"}
    trained = ("train", *SMALL[:-2], "--backend", "pytorch", "--mode", "none", "--surrogate", "learned")
    assert run_command(*trained, "--objective", "found/objective.json", "--out", "run", "--json") == 0
    stored = yaml.safe_load(Path("run/config.yaml").read_text())
    assert stored["objective"] == json.loads(Path("found/objective.json").read_text())["weights"]
    assert stored["objective"] == events[-1]["fields"]["objective"]


@pytest.mark.slow
def test_hyper_parameters_evolve_and_are_compared_on_fresh_seeds(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "found"
    evolved = ("--evolve", "learning_rate=log:1e-4..1e-2", "--evolve", "entropy_coefficient=0..0.1")
    rest = ("--test-seeds", "2", "--transfer", "gymnax/Acrobot-v1", "--out", str(out))
    assert run_command("discover", *SMALL, *EVOLVE, *evolved, *rest) == 0
    text = capsys.readouterr().out
    assert "not evolved on" in text
    assert f"train with it: benchback train --config {out / 'best.yaml'}" in text.replace("\n", "")
    best = yaml.safe_load((out / "best.yaml").read_text())
    assert Run.from_dict(best).config.surrogate == "clip"
    assert 1e-4 <= best["learning_rate"] <= 1e-2


@pytest.mark.slow
def test_a_schedule_evolves_goes_on_and_is_trained_with_in_another_backend(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, long = tmp_path / "found", DQN_FIELDS | {"num_iterations": 40}
    fields = [f"--{name.replace('_', '-')}={x}" for name, x in long.items()]
    evolved = ("--evolve", "epsilons=0..1:3", "--agents", "4", "--seeds", "1", "--backend", "purejax")
    command = ("discover", "dqn", *fields, *evolved, "--out", str(out))
    assert run_command(*command, "--generations", "1", "--test-seeds", "0") == 0
    assert run_command(*command, "--generations", "2", "--test-seeds", "2") == 0
    assert "no better than start" in capsys.readouterr().out
    assert (out / "epsilons.png").exists()
    trained = ("--backend", "pytorch", "--mode", "none", "--out", str(tmp_path / "run"))
    assert run_command("train", "--config", str(out / "best.yaml"), *trained) == 0
    best = yaml.safe_load((out / "best.yaml").read_text())
    assert best["exploration"] == "knots"
    assert len(best["epsilons"]) == 3


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchback.cli", "discover", *SMALL, "--agents", "4", "--generations", "4"]
    command += ["--seeds", "1", "--test-seeds", "0", "--width", "2", "--json", "--out"]
    with subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["generation"] == 1
        process.kill()
    for name in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True)
    killed, whole = (objectives.read(tmp_path / name / "objective.json") for name in ("killed", "whole"))
    assert killed == whole


def test_the_published_scale_is_a_run_of_fifty_million_steps() -> None:
    text = (Path(__file__).parent.parent / "docs" / "discovery" / "published.yaml").read_text()
    run = Run.from_dict(yaml.safe_load(text))
    assert run.env == "brax/hopper"
    assert run.config.batch_size * run.config.num_iterations == pytest.approx(5e7, rel=1e-3)
    assert "Predicted: " in text


def test_an_empty_genome_trains_the_run_as_it_is() -> None:
    assert Floats({}, {}).values(np.zeros((2, 0))) == {}
