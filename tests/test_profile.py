"""Profiles: rows that are there and finite, files that their viewers can read, and clocks that wait."""

import gzip
import html
import json
import pstats
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY

from benchback import registry
from benchback.backends import xla
from benchback.errors import InputError
from benchback.tools import profile
from benchback.tools.profile import ProfilePlan, parts, plan, timing
from benchback.training.run import Run, environment

PARTS = ["environment", "forward", "loss and gradient", "optimiser", "dispatch", "transfer", "remainder"]
CONFIG = replace(TINY, num_iterations=2, hidden_sizes=(8,))
RUNS = {
    "purejax": Run(CONFIG, backend="purejax"),
    "pytorch": Run(CONFIG, backend="pytorch", env="torch/CartPole-v1", mode="none"),
}


@cache
def profiled(backend: str, folder: Path) -> dict[str, Any]:
    """Two steady iterations of a tiny run, whose updates are compared where both backends can play."""
    wanted = ProfilePlan(RUNS[backend], warmup=1, iterations=2, compare="haiku" if backend == "purejax" else None)
    with xla.optimising(False):
        return profile.profile(wanted, folder / backend)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.mark.parametrize("backend", RUNS)
def test_every_part_has_a_finite_time_and_they_make_up_the_whole(backend: str, folder: Path) -> None:
    rows = profiled(backend, folder)["parts"]
    assert [row["part"] for row in rows] == [*PARTS, "whole iteration"]
    assert all(np.isfinite(row["seconds"]) and np.isfinite(row["share"]) for row in rows)
    assert all(row["seconds"] >= 0 for row in rows if row["part"] != "remainder")
    assert sum(row["seconds"] for row in rows[:-1]) == pytest.approx(rows[-1]["seconds"])
    assert rows[-1]["share"] == 1


@pytest.mark.parametrize("backend", RUNS)
def test_the_files_can_be_read_by_what_they_are_for(backend: str, folder: Path) -> None:
    found = profiled(backend, folder)
    files = {name: Path(path) for name, path in found["files"].items()}
    assert {path.name for path in files.values()} == {"profile.pstats", "trace.json.gz", "summary.html", "profile.json"}
    assert json.loads(files["json"].read_text())["parts"] == found["parts"]
    with gzip.open(files["trace"]) as file:
        events = json.load(file)["traceEvents"]
    assert any(event.get("ph") == "X" and event["dur"] > 0 for event in events)
    counted = {name: calls for (_, _, name), (calls, *_) in vars(pstats.Stats(str(files["cprofile"])))["stats"].items()}
    assert counted["advance"] == 2  # the steady iterations, not those that compile


@pytest.mark.parametrize("backend", RUNS)
def test_the_page_shows_every_row_and_loads_nothing(backend: str, folder: Path) -> None:
    found = profiled(backend, folder)
    text = Path(found["files"]["page"]).read_text()
    loaded: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            loaded.extend(x for name, x in attributes if name in ("src", "href") and x)

    Parser().feed(text)
    assert not loaded
    assert "script" not in text
    assert all(f"<td>{name}</td>" in text for name in PARTS)
    assert html.escape(found["functions"][0]["function"]) in text


def test_updates_are_timed_until_they_return_and_until_they_are_done(folder: Path) -> None:
    found = profiled("purejax", folder)["updates"]
    assert found["between"] == ["purejax/jit", "haiku/jit"]
    returned, done = found["rows"]
    assert (returned["clock"], done["clock"]) == ("returned", "done")
    for early, late in zip(returned["seconds"], done["seconds"], strict=True):
        assert 0 < early <= late
    assert done["low"] < done["ratio"] < done["high"]


def torch_workload() -> parts.Workload:
    run = RUNS["pytorch"]
    make, backend = registry.load("ppo", "pytorch")
    agent = make(run.config, environment(run, run.config.num_envs))
    return parts.workload(run, agent, backend.modes["none"](agent), backend, warmup=1)


def test_an_iteration_is_as_many_steps_and_gradient_steps_as_its_config_says() -> None:
    work = torch_workload()
    assert (work.steps, work.learnings) == (CONFIG.num_steps, CONFIG.updates_per_iteration)
    ((count, arrays),) = work.optimisers.values()
    assert count == CONFIG.updates_per_iteration
    assert arrays["actor/0/kernel"].shape == (4, 8)


def test_what_settles_is_not_timed() -> None:
    _, backend = registry.load("ppo", "pytorch")
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        time.sleep(0.2 if len(calls) <= timing.CALLS_TO_SETTLE else 0.001)

    assert timing.seconds(call, backend, 3) < 0.1
    assert len(calls) == timing.CALLS_TO_SETTLE + 3


def test_a_profile_of_a_short_run_does_not_outlast_its_annealing() -> None:
    wanted = ProfilePlan(Run(CONFIG, backend="purejax", unit="chunk", chunk=2), warmup=1, iterations=2)
    assert plan.lasting(wanted).config.num_iterations == 2 * (1 + 4 * 2)
    assert str(profile.default_out(wanted.run)) == "runs/profile-ppo-purejax-gymnax-CartPole-v1-jit-chunk"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warmup": 0}, "warmup=0 must be at least 1"),
        ({"iterations": 0}, "iterations=0"),
        ({"compare": "purejax"}, "is the backend of the run itself"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ProfilePlan(RUNS["purejax"], **changes)


def test_wrong_input_is_one_line(benchback: Callable[..., subprocess.CompletedProcess], tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for arguments, message in (
        (["pp"], "did you mean ppo"),
        (["ppo", "--compare", "flax"], "backend=flax is unknown"),
        (["ppo", "--out", "there"], "there exists; choose another --out"),
    ):
        done = benchback("profile", *arguments)
        assert (done.returncode, done.stderr.splitlines()[-1].startswith("benchback: error")) == (2, True)
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
