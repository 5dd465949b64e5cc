"""Populations trained on a real Ray cluster of two nodes on this machine, disturbed for real: as on one machine.

The command line is what users start; weights are compared to the last bit.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchback.errors import InputError
from benchback.measure.driver import Gone, Joined
from benchback.measure.nodes import Held
from benchback.measure.training_nodes import FINISH_S, Answer, Setting, TrainingNodes
from benchback.population.parts import Ask, Lost
from benchback.training import checkpoint

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
PATIENCE_S = 400.0
SETTING = Setting("purejax", "gymnax/CartPole-v1")


# Without Ray.


class Scripted(TrainingNodes):
    """Nodes that report what they are told to; calls are not made."""

    def __init__(self, *reports: Any, stop: Callable[[], bool] = lambda: False) -> None:
        super().__init__(SETTING, stop)
        self.reports, self.called, self.silence_s = iter(reports), [], {}
        for name in ("a", "b"):
            self.actors[name], self.nodes[f"node {name}"] = None, name
            self.holds[name] = Held("host", 2, 0)

    def call(self, name: str, what: str, number: int, *given: Any) -> None:
        self.called.append((name, what, number))

    def poll(self, limit_s: float) -> list[Any]:
        return [next(self.reports)]

    def silent_s(self, name: str) -> float:
        return self.silence_s.get(name, 0.0)

    def bury(self, name: str, why: str, begun: bool = True) -> Gone | None:
        del self.actors[name]
        return Gone(name, why)


def test_all_nodes_that_are_about_to_join_are_waited_for() -> None:
    assert Scripted(Joined("a", {}), Joined("b", {})).widths() == {"a": 2, "b": 2}


def test_a_node_that_ends_is_the_answer_to_what_it_was_asked() -> None:
    nodes = Scripted(Joined("a", {}), Joined("b", {}), Answer(1, "done"), Gone("a", "killed"))
    nodes.widths()
    asks = {0: Ask("a", "train", (0, 1)), 1: Ask("b", "train", (1, 1)), 2: Ask("c", "train", (2, 1))}
    assert nodes.each(asks) == {0: Lost("a has ended (killed)"), 1: "done", 2: Lost("c has ended")}
    assert nodes.called == [("a", "train", 0), ("b", "train", 1)]
    assert nodes.ready == {"b": 2}


def test_a_silent_node_is_lost_after_a_lease_in_which_the_driver_listened(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    nodes = Scripted(Joined("a", {}), Joined("b", {}), Answer(0, "late"), *[None] * 100)
    nodes.widths()
    nodes.silence_s["a"] = 1000.0  # the driver was busy for so long
    assert nodes.each({0: Ask("a", "train", (0, 1))}) == {0: "late"}
    assert nodes.each({0: Ask("a", "train", (0, 2))}) == {0: Lost("a has ended (it gave no sign of life for 60 s)")}
    assert nodes.ready == {"b": 2}


def test_what_does_not_end_after_a_request_to_stop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    asked: list[bool] = []
    nodes = Scripted(Joined("a", {}), Joined("b", {}), *[None] * 100, stop=lambda: bool(asked))
    nodes.joined = 2
    nodes.widths()
    asked.append(True)
    before = next(clock)
    with pytest.raises(KeyboardInterrupt, match="go on from the last checkpoint"):
        nodes.each({0: Ask("a", "train", (0, 1))})
    assert next(clock) - before < 3 * FINISH_S + 9


def test_an_error_of_the_user_on_a_node_is_an_error_here() -> None:
    class Failed(Exception):
        cause = InputError("not enough memory; choose fewer members")

    with pytest.raises(InputError, match="a: not enough memory"):
        Scripted().failed("a", "train", Failed())


# With Ray.


FLAGS = {
    "--num-iterations": "600",
    "--num-envs": "8",
    "--num-steps": "16",
    "--backend": "purejax",
    "--unit": "iteration",
    "--group": "2",
}
TRAIN = ["ppo", "--seeds", "8", "--hidden-sizes", "8", "8", *[x for pair in FLAGS.items() for x in pair]]
OFTEN = ["--checkpoint-every", "50"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


class Driver:
    """`benchback` on the cluster, in a folder of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.said = folder, address, folder / "said"
        self.process: subprocess.Popen | None = None

    def start(self, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "benchback.cli", *arguments]
        environment = os.environ | {"RAY_ADDRESS": self.address, "BENCHBACK_CACHE": str(self.folder / "cache")}
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
            )
        return self.process

    def train(self, *more: str) -> subprocess.Popen:
        return self.start("train", *TRAIN, *OFTEN, "--on", "ray:auto", "--out", "run", *more)

    def ended(self, code: int) -> str:
        assert self.process is not None
        found = self.process.wait(PATIENCE_S)
        assert found == code, self.said.read_text()
        return self.said.read_text()

    def wait(self, iteration: int) -> None:
        """Until so many iterations are done."""
        rows = self.folder / "run" / "metrics.csv"
        wait_for(lambda: rows.exists() and len(rows.read_text().splitlines()) > iteration)

    def weights(self) -> dict[str, np.ndarray]:
        return checkpoint.read(self.folder / "run" / "checkpoint.safetensors").weights

    def check(self, alone: dict[str, np.ndarray]) -> None:
        """The folder is that of a training on one machine."""
        found = self.weights()
        assert found.keys() == alone.keys()
        assert [name for name, x in alone.items() if not np.array_equal(found[name], x)] == []
        rows = (self.folder / "run" / "metrics.csv").read_text().splitlines()[1:]
        assert [int(row.split(",")[0]) for row in rows] == list(range(1, 601))
        wait_for(lambda: not actors())


@pytest.fixture
def driver(cluster: Any, tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path, cluster.address)
    yield made
    if made.process and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The weights of the same members on one machine."""
    local = Driver(tmp_path_factory.mktemp("alone"), "")
    local.start("train", *TRAIN, "--devices", "1", "--out", "run")
    local.ended(0)
    return local.weights()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def actors() -> list[psutil.Process]:
    """Processes that train, on the nodes that these tests have started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::TrainingActor"):
                found.append(process)
    return found


@pytest.mark.slow
def test_members_on_two_nodes_are_those_of_one_machine(driver: Driver, alone: dict[str, np.ndarray]) -> None:
    driver.train()
    assert "2 nodes" in driver.ended(0)
    driver.check(alone)


@pytest.mark.slow
def test_a_killed_process_of_a_node_changes_nothing(driver: Driver, alone: dict[str, np.ndarray]) -> None:
    driver.train()
    driver.wait(120)
    actors()[0].kill()
    assert "go on elsewhere from iteration" in driver.ended(0)
    driver.check(alone)


@pytest.mark.slow
def test_a_killed_node_changes_nothing(cluster: Any, driver: Driver, alone: dict[str, np.ndarray]) -> None:
    driver.train()
    driver.wait(120)
    (lost,) = cluster.worker_nodes
    cluster.remove_node(lost, allow_graceful=False)
    cluster.add_node(**NODE)
    assert "go on elsewhere from iteration" in driver.ended(0)
    driver.check(alone)


@pytest.mark.slow
def test_a_node_that_hangs_for_a_lease_is_done_without(driver: Driver, alone: dict[str, np.ndarray]) -> None:
    driver.train()
    driver.wait(120)
    hung = actors()[0]
    hung.suspend()
    try:
        assert "no sign of life" in driver.ended(0)
    finally:
        with suppress(psutil.NoSuchProcess):
            hung.resume()
    driver.check(alone)


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_running_and_goes_on(driver: Driver, alone: dict[str, np.ndarray]) -> None:
    process = driver.train()
    driver.wait(120)
    process.kill()
    process.wait()
    wait_for(lambda: not actors())
    driver.start("train", "--resume", "run", "--on", "ray:auto")
    driver.ended(0)
    driver.check(alone)


@pytest.mark.slow
def test_asked_to_stop_ends_every_process_within_ten_seconds(driver: Driver, alone: dict[str, np.ndarray]) -> None:
    process = driver.train()
    driver.wait(120)
    began_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    driver.ended(130)
    wait_for(lambda: not actors())
    assert time.monotonic() - began_s < 10
    # On this machine alone: who trains makes no difference.
    driver.start("train", "--resume", "run")
    driver.ended(0)
    driver.check(alone)


@pytest.mark.slow
def test_a_search_on_two_nodes_finds_what_one_machine_finds(driver: Driver) -> None:
    asked = ["ppo", "--vary", "learning_rate=1e-4,1e-3", "--seeds", "4", "--hidden-sizes", "8", "8", "--json"]
    asked += [x for name, value in FLAGS.items() for x in (name, "40" if name == "--num-iterations" else value)]
    driver.start("tune", *asked, "--out", "here")
    driver.ended(0)
    driver.start("tune", *asked, "--out", "there", "--on", "ray:auto")
    assert "2 nodes" in driver.ended(0)
    here, there = (json.loads((driver.folder / x / "programs/000/scores.json").read_text()) for x in ("here", "there"))
    assert here == there
