"""Several processes that train together, and one agent on several devices: the same numbers as on one device."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchback.algorithms.dqn.config import Config as Dqn
from benchback.algorithms.ppo.config import Config as Ppo
from benchback.algorithms.vpg.config import Config as Vpg
from benchback.cli.training import train
from benchback.errors import InputError
from benchback.population import data_parallel
from benchback.population.processes import Processes
from benchback.population.spec import Members
from benchback.population.training import plain, train_members
from benchback.registry import BACKENDS
from benchback.training import checkpoint
from benchback.training.run import Run
from benchback.training.run_dir import RunDir

JAX_BACKENDS = [name for name, backend in BACKENDS.items() if backend.family == "jax"]
SMALL: dict[str, Any] = {"num_envs": 8, "num_steps": 4, "hidden_sizes": (4,), "num_iterations": 3}
RUNS = {
    "ppo": Run(Ppo(**SMALL, num_epochs=1, num_minibatches=2, normalise_obs=True), unit="iteration"),
    "vpg": Run(Vpg(**SMALL, num_value_steps=2), unit="iteration"),
}

SETTING = """
import json, re, sys
import jax, numpy as np
from benchback.agent import start
from benchback.population import data_parallel
from benchback.population.processes import Processes, join
from benchback.population.spec import Members
from benchback.population.training import train_members
from benchback.training import train
from benchback.training.run import Run, build

if sys.argv[1:]:
    join(Processes(sys.argv[1], 2, int(sys.argv[2])))
RUNS = [Run.from_dict(run) for run in json.loads({runs!r})]

def furthest(ours, theirs):
    assert ours.keys() == theirs.keys()
    apart = (np.abs(np.asarray(ours[k], float) - x) / np.maximum(1, np.abs(x)) for k, x in theirs.items())
    return max(float(np.nanmax(x)) for x in apart)

def last(calls):
    *_, progress = calls
    return progress.export()
"""
MEMBERS = """
members = Members(*json.loads(sys.argv[3]))
np.savez(sys.argv[4] + sys.argv[2], **last(train_members(RUNS[0], members, group=1, devices=8)))
print("found", jax.local_device_count())
"""
AGENTS = """
COLLECTIVES = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
found = []
for run in RUNS:
    here, there = last(train(run)), last(data_parallel.train(run, devices=8))
    found.append({"deviation": furthest(there, here), "arrays": len(there)})
    if len(RUNS) == 1:  # its program is read as well
        agent, _ = data_parallel.built(run, 8)
        state = start(agent, run.seed)
        text = agent.iterate.lower(state).compile().as_text()
        sent = [re.findall(rf" = (.*?) ({COLLECTIVES})\\(", line) for line in text.splitlines()]
        found[-1]["sent"] = [pair for pairs in sent for pair in pairs]
        found[-1]["parameters"] = sum(x.size for x in jax.tree.leaves(state.params)) if hasattr(state, "params") else 0
        found[-1]["shards"] = [s.data.shape[0] for s in jax.tree.leaves(state.env)[0].addressable_shards]
print("found", json.dumps(found))
"""


def code_of(code: str, *runs: Run) -> str:
    return SETTING.format(runs=json.dumps([run.to_dict() for run in runs])) + code


def with_devices(count: int) -> dict[str, str]:
    """Environment variables of a process with so many CPU devices."""
    return os.environ | {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"}


def address() -> str:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def found_by(process: subprocess.Popen) -> Any:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(next(line for line in out.splitlines() if line.startswith("found ")).removeprefix("found "))


STARTED: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    while STARTED:
        STARTED.pop().kill()


def started(command: list[str], devices: int) -> subprocess.Popen:
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    STARTED.append(subprocess.Popen([sys.executable, *command], env=with_devices(devices), **options))
    return STARTED[-1]


def in_two_processes(code: str, *arguments: str) -> list[Any]:
    """What two processes with four devices each find."""
    there = address()
    both = [started(["-c", code, there, str(i), *arguments], 4) for i in range(2)]
    return [found_by(process) for process in both]


def furthest(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """The largest difference between two states."""
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(ours[name] - np.asarray(x, float)).max()) for name, x in theirs.items())


@pytest.mark.slow
def test_members_in_two_processes_with_four_devices_each_are_those_on_one_device(tmp_path: Path) -> None:
    run, seeds = replace(RUNS["ppo"], backend="purejax"), tuple(range(8))
    values = {"learning_rate": tuple(np.geomspace(1e-4, 1e-1, 8))}
    code = code_of(MEMBERS, run)
    assert in_two_processes(code, json.dumps([seeds, values]), str(tmp_path / "state")) == [4, 4]
    *_, last = train_members(run, Members(seeds, values), group=1)
    for i in range(2):
        with np.load(tmp_path / f"state{i}.npz") as there:
            assert furthest(there, last.export()) < 1e-6


def check_agents(found: list[dict[str, Any]]) -> None:
    for x in found:
        assert x["deviation"] < 1e-6, x
        assert x["arrays"] > 10


def test_an_agent_on_eight_devices_is_the_one_on_one_and_gradients_are_averaged() -> None:
    (found,) = found_by(started(["-c", code_of(AGENTS, replace(RUNS["ppo"], backend="purejax"))], 8))
    check_agents([found])
    assert found["shards"] == [1] * 8
    # A gradient step sends as many numbers as there are parameters, in one all-reduce; nothing else is as large.
    reduced = [numbers(shape) for shape, kind in found["sent"] if kind == "all-reduce"]
    assert sum(x >= found["parameters"] for x in reduced) == 1
    assert max(reduced) < found["parameters"] + 20
    # A rollout is collected once: 8 environments x 4 steps of at most 4 numbers.
    collected = [numbers(shape) for shape, kind in found["sent"] if kind == "all-gather"]
    assert max(collected) == 8 * 4 * 4
    assert {kind for _, kind in found["sent"]} == {"all-reduce", "all-gather"}


def numbers(shape: str) -> int:
    """How many numbers a shape of XLA has, `f32[8,4]{1,0}` or a tuple of them."""
    sizes = [part.split("]")[0] for part in shape.split("[")[1:]]
    return sum(int(np.prod([int(x) for x in size.split(",") if x])) for size in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("backend", JAX_BACKENDS)
def test_agents_on_eight_devices_are_those_on_one(backend: str) -> None:
    runs = [replace(run, backend=backend) for run in RUNS.values()]
    more = [
        replace(runs[0], unit="phase", env="gymnax/Pendulum-v1"),
        replace(runs[0], unit="chunk", chunk=3, gradients="reordered"),
    ]
    check_agents(found_by(started(["-c", code_of(AGENTS, *runs, *more)], 8)))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["linen", "nnx"])
def test_agents_in_two_processes_with_four_devices_each_are_those_on_one_device(backend: str) -> None:
    for found in in_two_processes(code_of(AGENTS, *(replace(run, backend=backend) for run in RUNS.values()))):
        check_agents(found)


@pytest.mark.parametrize(
    ("run", "devices", "words"),
    [
        (RUNS["ppo"], 3, "--devices 3 do not divide num_envs=8 evenly.*e.g. 6 of them"),
        (replace(RUNS["ppo"], config=replace(RUNS["ppo"].config, num_minibatches=8)), 8, "rows of a minibatch=4"),
        (replace(RUNS["ppo"], mode="none"), 2, "mode=none.*leave out --mode"),
        (Run(Dqn(num_envs=8)), 2, "algorithm=dqn.*--seeds N"),
        (Run(Ppo(num_envs=8, num_minibatches=2, network="gru")), 2, "network=gru.*--seeds N"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_remedy(run: Run, devices: int, words: str) -> None:
    run = replace(run, backend="purejax")
    with pytest.raises(InputError, match=words):
        data_parallel.check(run, plain(run)[0], devices)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("head",), "must be HOST:PORT of process 0, or auto"),
        (("head:1234",), "needs --num-processes too"),
        (("head:1234", 2), "needs --process-id too"),
        (("head:1234", 2, 2), "--process-id 2 of --num-processes 2: count from 0"),
        (("auto", 2), "--num-processes is found by --coordinator auto"),
    ],
)
def test_processes_that_cannot_find_each_other_are_refused_with_the_remedy(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Processes(*given)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--process-id", "0"], "--process-id needs --coordinator HOST:PORT"),
        (["--coordinator", "a:1", "--backend", "pytorch"], "joins processes of JAX"),
        (["--devices", "2", "--backend", "pytorch"], "divides programs of JAX, which pytorch has not"),
        (["--devices", "0"], "--devices 0 must be at least 1"),
        (["--devices", "8"], "there are 1.*device_count=8"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        train(["ppo", "--out", str(tmp_path / "run"), *flags])


# The command line.

SHAPE = {"num-envs": 8, "num-steps": 4, "num-minibatches": 2, "num-epochs": 1, "hidden-sizes": 4, "unit": "iteration"}
SIZES = ["ppo", "--backend=purejax", *(word for name, x in SHAPE.items() for word in (f"--{name}", str(x)))]


def trainings(*arguments: str, there: str) -> list[subprocess.Popen]:
    """Two processes with the same command but for their numbers."""
    common = ["-m", "benchback.cli", "train", *arguments, "--coordinator", there, "--num-processes", "2"]
    return [started([*common, "--process-id", str(i)], 4) for i in range(2)]


def ended(both: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    told = [process.communicate(timeout=600) for process in both]
    return [(process.returncode, *texts) for process, texts in zip(both, told, strict=True)]


def state_in(folder: Path) -> Mapping[str, np.ndarray]:
    return checkpoint.read(folder / "checkpoint.safetensors").weights


POPULATION_OR_AGENT = pytest.mark.parametrize("seeds", [["--seeds", "8", "--group", "1"], []], ids=["members", "agent"])


@pytest.mark.slow
@POPULATION_OR_AGENT
def test_process_0_writes_what_one_process_would(seeds: list[str], tmp_path: Path) -> None:
    command = [*SIZES, "--num-iterations", "3", "--json", *seeds]
    (code, out, err), (other_code, other_out, _) = ended(
        trainings(*command, "--out", str(tmp_path / "two"), there=address())
    )
    assert (code, other_code) == (0, 0), err
    events = [json.loads(line)["event"] for line in out.splitlines()]  # nothing else is on the standard output
    assert events[-1] == "done"
    assert other_out == ""
    one = ["--devices", "1"] if seeds else []
    alone = started(["-m", "benchback.cli", "train", *command, *one, "--out", str(tmp_path / "one")], 1)
    assert ended([alone])[0][0] == 0
    assert furthest(state_in(tmp_path / "two"), state_in(tmp_path / "one")) < 1e-6
    # Into how many parts curves are divided depends on the time that they took.
    files = [{path.name for path in folder.iterdir()} for folder in (tmp_path / "one", tmp_path / "two")]
    assert files[0] == files[1]
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


@pytest.mark.slow
@POPULATION_OR_AGENT
def test_an_interrupted_training_goes_on_in_two_processes(seeds: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "two"
    command = [*SIZES, "--num-iterations", "100000", *seeds, "--out", str(folder)]
    before = 0
    for options in (command, ["--resume", str(folder)]):
        both = trainings(*options, there=address())
        wait_for_rows(folder / "metrics.csv", before + 3, both)
        for process in both:
            process.send_signal(signal.SIGINT)
        (code, out, err), (other_code, _, _) = ended(both)
        assert (code, other_code) == (130, 0), err
        assert "interrupted; continue with" in out
        iterations = [int(row["iteration"]) for row in RunDir(folder).rows()]
        assert iterations == list(range(1, len(iterations) + 1))
        assert checkpoint.read(folder / "checkpoint.safetensors").iteration == len(iterations) > before
        before = len(iterations)


def wait_for_rows(path: Path, count: int, processes: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + 600
    while not path.exists() or len(path.read_text().splitlines()) <= count:
        assert time.monotonic() < deadline, "waited too long"
        if any(process.poll() is not None for process in processes):
            pytest.fail("\n\n".join(process.communicate()[1] for process in processes))
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others(victim: int, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    command = [*SIZES, "--num-iterations", "100000", "--seeds", "8", "--out", str(folder)]
    both = trainings(*command, there=address())
    wait_for_rows(folder / "metrics.csv", 3, both)
    both[victim].kill()
    code, _, err = ended(both)[1 - victim]
    assert code != 0
    assert "another" in err, err
