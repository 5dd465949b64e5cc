"""Environments of a user's own: every kind, every way to name one, and every law that a broken one fails."""

import json
import os
import re
import subprocess
import sys
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY
from safetensors.numpy import load_file

from benchback import cli, envs
from benchback.envs.conformance import LAWS, Examination, Subject, examine, judge
from benchback.envs.wrappers import KINDS as WRAPPERS
from benchback.errors import InputError
from benchback.measure.process import run_cell
from benchback.measure.record import Cell
from benchback.plugins import imports
from benchback.training.run import Run

EXAMPLE = Path(__file__).parents[1] / "examples" / "my_environment"
sys.path.append(str(EXAMPLE / "src"))
SEEKER = "python:my_environment.light_seeker.LightSeeker"
THERMOSTAT = "gymnasium/my_environment:Thermostat-v0"
SMALL = ["--num-envs", "4", "--num-steps", "8", "--num-minibatches", "2", "--num-epochs", "1", "--hidden-sizes", "8"]


def of(name: str) -> str:
    return f"python:own_worlds.{name}"


@pytest.mark.parametrize(
    ("id", "where", "kind"),
    [
        (SEEKER, "jax", "discrete"),
        (of("jax_env"), "jax", "discrete"),
        (of("Push"), "jax", "box"),
        (of("copies"), "python", "discrete"),
        (THERMOSTAT, "python", "discrete"),
        (of("torch_env"), "torch", "discrete"),
    ],
)
def test_every_kind_is_recognised_and_keeps_the_laws(id: str, where: str, kind: str) -> None:
    assert envs.about(id)[:2] == (kind, where)
    found = {finding.law: finding for finding in examine(Subject(id))}
    assert not [finding for finding in found.values() if finding.outcome == "fail"]
    applicable = LAWS.keys() - WRAPPERS.keys() - ({"bounds"} if kind == "discrete" else set())
    assert {law for law, finding in found.items() if finding.outcome == "pass"} >= applicable - {"torch", "state"}


@cache
def examined(name: str) -> Examination:
    return Examination(Subject(of(name)))


def knowing(name: str, **known: Any) -> Examination:
    """The same examination, programs and all, of a subject of which more is known."""
    again = copy(examined(name))
    again.subject = replace(again.subject, **known)
    return again


@pytest.mark.parametrize(
    ("name", "law", "words"),
    [
        ("TerminatedByTime", "truncation", "terminated after exactly 12 steps"),
        ("BeginsAlike", "starts", "episodes begin alike"),
        ("BeginsAlike", "seeds", "begin alike"),
        ("changing_state", "state", "episode_length is .* int32 after a reset and .* float32 after a step"),
        ("final_after_reset", "final_obs", "after the reset"),
        ("column_of_rewards", "shapes", r"reward has the shape \(4, 1\)"),
        ("SometimesNaN", "finite", "NaN or infinite, first in step 7"),
        ("Unseeded", "seeds", "not seeded"),
        ("IgnoresActions", "effect", "neither observations nor rewards"),
        ("shared_reward", "independence", "reward of the first environment changed"),
        ("shared_reward", "statistics", "episode_return is"),
        ("unbounded", "bounds", "beyond its bounds"),
    ],
)
def test_a_broken_environment_fails_the_law_it_breaks(name: str, law: str, words: str) -> None:
    found = judge(examined(name), law)
    assert found.outcome == "fail", found
    assert re.search(words, found.reason), found.reason


def test_what_is_known_makes_laws_stricter_or_gives_leave() -> None:
    assert judge(knowing("TerminatedByTime", limit=12), "truncation").outcome == "fail"
    assert judge(knowing("TerminatedByTime", limit=0), "truncation").outcome == "pass"
    assert judge(knowing("Walk", limit=0), "truncation").outcome == "fail"
    assert judge(knowing("Walk", limit=9), "truncation").outcome == "fail"
    alike = knowing("BeginsAlike", starts=1)
    assert [judge(alike, law).outcome for law in ("starts", "seeds")] == ["pass", "pass"]
    assert judge(knowing("Walk", starts=1), "starts").outcome == "fail"


@pytest.mark.parametrize(
    ("id", "words"),
    [
        (of("nothing"), "module own_worlds has no nothing"),
        (of("jax_emv"), "did you mean own_worlds.jax_env"),
        (of("number"), "gives an object of type builtins.int; it must give a JAX environment .* Env, Copies"),
        (of("NOT_CALLABLE"), "gives an object of type builtins.int"),
        (of("failing"), r"cannot be made: KeyError: 'no lamp here' \(own_worlds.py, line \d+\)"),
        (of("same"), "the same gymnasium environment every time"),
        ("python:make", "must be python:MODULE.NAME"),
        ("python:no_such_module.make", "there is no module no_such_module; run benchback in the folder"),
        ("plugin/Nowhere", "no installed package has it"),
        ("gymnasium/no_such_module:My-v0", "there is no module no_such_module"),
        ("gymnasium/own_worlds:Part-v0", "importing own_worlds does not register it; did you mean gymnasium/Parts-v0"),
        ("own_worlds:Parts-v0", "did you mean gymnasium/own_worlds:Parts-v0"),
        (of("Sentences"), "has observations of Text"),
        (of("ManyActions"), "10000 combinations; at most 4096"),
        (of("torch_env") + "+time_limit=5", "limit it inside"),
        (SEEKER + "+frame_stak=4", r"wrapper frame_stak is unknown; did you mean frame_stack\?"),
        (SEEKER + "+frame_stack", "must be a whole number from 2 to 64"),
        (SEEKER + "+frame_stack=1", "must be a whole number from 2 to 64"),
        (SEEKER + "+frame_stack=2.5", "must be a whole number"),
        (SEEKER + "+sticky_actions=1.5", "must be a probability"),
        (SEEKER + "+clip_reward=-1", "must be a positive number"),
        (SEEKER + "+clip_reward=nan", "must be a positive number"),
        (SEEKER + "+time_limit=0", "must be a whole number of steps"),
        (SEEKER + "+time_limit=5+time_limit=6", "has time_limit twice"),
        (
            of("torch_env_of_objects"),
            "type types.SimpleNamespace in its state; .* tuples and dictionaries of",
        ),
        (SEEKER + "+", "wrapper without a name is unknown"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(id: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        envs.make(id, 2, "torch" if "torch" in id else "jax")


def test_a_torch_environment_is_for_torch() -> None:
    with pytest.raises(InputError, match="native to PyTorch"):
        Run(TINY, env=of("torch_env"))
    assert Run(TINY, env=of("torch_env"), backend="pytorch").framework == "torch"


def test_spaces_of_several_parts_are_flattened_with_a_note() -> None:
    id = "gymnasium/own_worlds:Parts-v0"
    external = envs.make_external(id, 1)
    index, obs = external.reset(0)
    # In the order of the dictionary: a, the one-hot of b's first part and its bits, the one-hots of c.
    assert obs[0].tolist() == [*(1, 1, 1, 1), *(0, 1, 0), *(0, 1), *(0, 1), *(0, 0, 1)]
    assert external.copies.actions.size == 12
    rewards = []
    for action in range(12):
        index, step = external.step(index, np.array([action]))
        rewards.append(int(step.reward[0]))
    assert rewards == [10 * heat + window for heat in (1, 2, 3) for window in (0, 1, 2, 3)]
    notes = envs.about(id).notes
    assert "Dict observations are flattened to 14 numbers" in notes[0]
    assert "MultiDiscrete actions are flattened to the 12 combinations of [3, 4]" in notes[1]


def test_wrappers_are_those_of_gymnasium() -> None:
    """Against gymnasium's own wrappers, one environment at a time, with the same seeds."""
    import gymnasium
    from gymnasium.wrappers import ClipReward, FrameStackObservation, TimeLimit

    external = envs.make_external("gymnasium/Pendulum-v1+frame_stack=3+clip_reward=0.2+time_limit=7", 2)
    action = np.random.default_rng(0).uniform(-2, 2, (20, 2, 1)).astype(np.float32)
    index, first = external.reset(3)
    steps = []
    for chosen in action:
        index, step = external.step(index, chosen)
        steps.append(step)
    for e, seed in enumerate(np.random.SeedSequence(3).generate_state(2).tolist()):
        raw = TimeLimit(gymnasium.make("Pendulum-v1").unwrapped, 7)
        env = ClipReward(FrameStackObservation(raw, 3), -0.2, 0.2)
        np.testing.assert_array_equal(first[e], np.moveaxis(env.reset(seed=seed)[0], 0, -1))
        for t, step in enumerate(steps):
            obs, reward, terminated, truncated, _ = env.step(action[t, e])
            np.testing.assert_allclose(step.final_obs[e], np.moveaxis(obs, 0, -1))
            np.testing.assert_allclose(step.reward[e], float(reward), rtol=1e-6)
            assert (step.terminated[e], step.truncated[e]) == (terminated, truncated)
            if truncated:
                obs, _ = env.reset()
            np.testing.assert_allclose(step.obs[e], np.moveaxis(obs, 0, -1))
    assert steps[6].episode_return.min() < -0.2 * 7  # rewards are clipped, the return is not


@pytest.mark.parametrize("name", ["Echo", "ExternalEcho"])
def test_a_sticky_action_is_the_one_before_it_as_often_as_it_should_be(name: str) -> None:
    """An environment that shows the action it was given, of a thousand."""
    share, num_steps = 0.3, 300
    generator = np.random.default_rng(0)
    history = examined(f"{name}+sticky_actions={share}").play(
        num_steps, lambda obs: generator.integers(1000, size=4).astype(np.int32)
    )
    taken = history.step.final_obs[..., 0]
    begins = history.step.episode_length == 1
    assert (taken == history.action)[begins].all()
    repeated = (taken != history.action)[~begins]
    assert abs(repeated.mean() - share) < 4 * np.sqrt(share * (1 - share) / repeated.size)
    where = np.argwhere(taken != history.action)
    assert all(taken[t, e] == taken[t - 1, e] for t, e in where)


def test_a_run_carries_its_imports_and_others_stay_as_they_were() -> None:
    plain = Run(TINY).to_dict()
    assert "imports" not in plain
    run = Run(TINY, env=THERMOSTAT, mode="jit", imports=("own_worlds",))
    assert run.to_dict()["imports"] == ["own_worlds"]
    assert Run.from_dict(run.to_dict()) == run
    cells = [Cell(x) for x in (plain, plain | {"imports": ["own_worlds"]})]
    assert cells[0].group == cells[1].group
    for wrong in ("own_worlds", [3], ["no_such_module"]):
        with pytest.raises(InputError, match=r"imports|import 3|no module no_such_module"):
            Run.from_dict(plain | {"imports": wrong})


def test_modules_that_cannot_be_imported_are_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "faulty_world.py").write_text("x = 1 / 0\n")
    (tmp_path / "needy_world.py").write_text("import no_such_library\n")
    for name, words in (
        ("faulty_world", r"importing it fails: ZeroDivisionError: .* \(faulty_world.py, line 1\)"),
        ("needy_world", "it needs no_such_library, which is not installed"),
        ("needy_world.py", "needy_world, without folder and suffix"),
        ("no world", "not the name of a module"),
    ):
        with pytest.raises(InputError, match=words):
            imports.import_named(name)


def run_main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["benchback", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


WORLD = """
import gymnasium
from own_worlds import Walk

class Garden(Walk):
    pass

def make():
    return Garden()
"""


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that only it has, as the current one."""
    (tmp_path / "garden_world.py").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(imports, "_imported", [])
    monkeypatch.delitem(sys.modules, "garden_world", raising=False)
    return tmp_path


def test_an_own_environment_is_trained_resumed_evaluated_and_played(
    garden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    id = "python:garden_world.make+frame_stack=2+sticky_actions=0.1+clip_reward+time_limit=9"
    train = ["train", "ppo", "--backend", "purejax", "--env", id, "--import", "garden_world", *SMALL]
    assert run_main([*train, "--num-iterations", "3", "--out", "run"], monkeypatch) == 0
    assert "imports:\n- garden_world" in (garden / "run" / "config.yaml").read_text()
    rows = (garden / "run" / "metrics.csv").read_text().splitlines()
    assert max(float(row.split(",")[rows[0].split(",").index("episode_length")]) for row in rows[2:]) <= 9
    assert run_main(["train", "--resume", "run"], monkeypatch) == 0
    capsys.readouterr()
    assert run_main(["eval", "run", "--episodes", "4", "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 4
    assert run_main(["play", "run", "--max-steps", "6", "--out", "x.gif", "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["episodes"][0]["steps"] == 6
    assert (garden / "x.gif").stat().st_size > 0


def test_the_state_of_a_torch_environment_may_be_of_tuples_and_dictionaries(
    garden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ["train", "ppo", "--backend", "pytorch", "--mode", "env_jit", *SMALL, "--num-iterations", "2"]
    assert run_main([*train, "--env", of("torch_env_of_tuples"), "--out", "run"], monkeypatch) == 0
    assert "env/inner/all/0" in load_file(garden / "run" / "checkpoint.safetensors")
    assert run_main(["train", "--resume", "run", "--num-iterations", "3", "--out", "longer"], monkeypatch) == 0


@pytest.mark.slow
def test_a_fresh_process_finds_what_the_user_has_imported(garden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker runs in another folder, and gets no PYTHONPATH."""
    run = Run(TINY, env="python:garden_world.make+time_limit=5", backend="purejax", imports=("garden_world",))
    monkeypatch.chdir("/")
    fields = {name: x for name, x in run.to_dict().items() if name != "seed"}
    ended = run_cell(Cell(fields), 0, 300.0)
    assert ended.outcome == "ok", ended.log
    assert max(ended.messages[0]["record"]["samples"]["episode_length"]) <= 5


def test_notes_are_told_on_stderr(garden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    assert run_main(["plan", str(study(garden, THERMOSTAT)), "--import", "garden_world", "--json"], monkeypatch) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["entries"][0]["cell"]["run"]["imports"] == ["garden_world"]
    assert said.err.count("note: ") == 2
    assert "Dict observations are flattened to 4 numbers" in said.err


def study(folder: Path, env: str) -> Path:
    """A study of two backends on the environment."""
    fields = {"env": env, "algorithm": "ppo", "num_envs": 4, "num_steps": 8, "num_minibatches": 2, "num_epochs": 1}
    product = {"axes": {"backend": ["linen", "purejax"]}, "fixed": fields | {"num_iterations": 4, "hidden_sizes": [8]}}
    content = {"name": "mine", "products": [product], "min_blocks": 1, "max_blocks": 1, "aa": False, "protocol": "runs"}
    (folder / "mine.yaml").write_text(json.dumps(content))
    return folder / "mine.yaml"


@pytest.mark.parametrize(("name", "code"), [("Walk", 0), ("BeginsAlike", 1)])
def test_conform_prints_a_line_for_each_law_and_exits_by_them(
    name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert run_main(["conform", of(name)], monkeypatch) == code
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == list(LAWS)
    assert ("none broken" in last) == (code == 0)
    if code:
        assert any(line.startswith("fail     starts") and "reset of its own" in line for line in lines)


def test_conform_takes_gymnasiums_own_spelling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    assert run_main(["conform", "my_environment:Thermostat-v0", "--json"], monkeypatch) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["env"], found["ok"]) == (THERMOSTAT, True)
    assert run_main(["conform", of("Walk"), "--num-envs", "1"], monkeypatch) == 2


def test_list_shows_own_environments_and_wrappers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert run_main(["list"], monkeypatch) == 0
    said = capsys.readouterr().out
    assert "python:" in said
    assert "plugin/" in said
    assert all(name in said for name in WRAPPERS)


def benchback(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "benchback.cli", *arguments]
    given = os.environ | variables
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=1800)


@pytest.mark.slow
def test_a_population_trains_in_a_wrapped_environment_of_ones_own(garden: Path) -> None:
    id = "python:garden_world.make+frame_stack=2+sticky_actions=0.1+clip_reward+time_limit=9"
    shared = ["train", "ppo", "--backend", "purejax", "--env", id, *SMALL, "--num-iterations", "2"]
    variables = {"PYTHONPATH": str(Path(__file__).parent)}
    many = benchback(garden, *shared, "--seeds", "2", "--keep", "all", "--out", "many", **variables)
    assert many.returncode == 0, many.stderr
    one = benchback(garden, *shared, "--seed", "1", "--out", "one", **variables)
    assert one.returncode == 0, one.stderr
    returns = [json.loads(benchback(garden, "eval", run, "--json", **variables).stdout) for run in ("many#1", "one")]
    assert returns[0]["mean"] == pytest.approx(returns[1]["mean"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "tune", "advise", "profile"])
def test_fresh_processes_of_every_verb_know_it(verb: str, garden: Path) -> None:
    """From another folder's modules, by PYTHONPATH, which workers do not get."""
    env = "python:garden_world.make+time_limit=9"
    small = [*SMALL, "--num-iterations", "3"]
    advised = ["--backends", "purejax", "linen", "--steps", "4096", "--num-envs", "4", "--num-steps", "32"]
    advised += ["--hidden", "8", "--budget", "40s", "--json"]
    arguments = {
        "run": [str(study(garden, env)), "--store", "s.sqlite"],
        "tune": ["ppo", "--env", env, "--backend", "purejax", "--grid", "gamma=0.9,0.99", "--seeds", "1", *small],
        "advise": [*advised, "--env", env],
        "profile": ["ppo", "--env", env, "--backend", "purejax", "--iterations", "3", *small, "--json"],
    }[verb]
    elsewhere = garden / "elsewhere"
    elsewhere.mkdir()
    path = os.pathsep.join((str(garden), str(Path(__file__).parent)))
    done = benchback(elsewhere, verb, *arguments, "--import", "garden_world", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_example_package_is_found_once_it_is_installed(tmp_path: Path) -> None:
    """Installed into a folder of its own, by its entry points alone, in fresh processes."""
    target = tmp_path / "packages"
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(target)]
    pip = [os.environ.get("PIP_PYTHON", sys.executable), "-m", "pip", "install", *flags, str(EXAMPLE)]
    installed = subprocess.run(pip, capture_output=True, text=True)
    if "No module named pip" in installed.stderr:
        pytest.skip("needs pip: set PIP_PYTHON to a Python that has it")
    assert installed.returncode == 0, installed.stderr
    listed = benchback(tmp_path, "list", PYTHONPATH=str(target))
    assert "LightSeeker (my_environment.light_seeker:LightSeeker)" in listed.stdout
    for id in ("plugin/LightSeeker", "plugin/Thermostat+time_limit=50", "gymnasium/my_environment/Thermostat-v0"):
        done = benchback(tmp_path, "conform", id, PYTHONPATH=str(target))
        assert done.returncode == 0, done.stdout + done.stderr
    ran = benchback(tmp_path, "run", str(study(tmp_path, "plugin/LightSeeker")), PYTHONPATH=str(target))
    assert ran.returncode == 0, ran.stderr
