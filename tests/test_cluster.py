"""A real Ray cluster of two nodes on this machine, disturbed for real; stations relay processes without a framework.

All but the first tests are slow: they start Ray. `BENCHBACK_KILLS` says how many random kills there are, and
`BENCHBACK_KILLS_SEED` when they come, so that many can be made in several goes.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import relay_double
from campaign_double import HOOKS
from cluster_double import STUDY
from relay_campaign import relayed
from test_campaign import table

from benchback.cli import running
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.cluster import RayStations
from benchback.measure.coordinator import open_campaign, work
from benchback.measure.driver import Gone, Joined
from benchback.measure.nodes import Place, place_of
from benchback.measure.station import Station, needs_of
from benchback.measure.store import Event, open_store

DOUBLE = Path(__file__).parent / "cluster_double.py"
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
PATIENCE_S = 400.0


# Without Ray.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ray:auto", Place("auto")),
        ("ray://head:10001", Place("ray://head:10001")),
        ("ray:local=2", Place("", 2)),
    ],
)
def test_a_cluster_is_named_on_the_command_line(given: str, expected: Place) -> None:
    assert place_of(given) == expected


@pytest.mark.parametrize("given", ["ray", "ray:local", "ray:local=0", "ray:local=two", "ray://head", "slurm:auto"])
def test_another_place_names_the_remedy(given: str) -> None:
    with pytest.raises(InputError, match="must be ray://HOST:PORT, ray:auto or ray:local=N"):
        place_of(given)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--on", "ray:auto", "--protocol", "runs"], "--on runs relays"),
        (["--on", "ray:auto", "--in-process"], "--in-process is for one machine"),
        (["--ship"], "--ship sends code to a cluster; add --on"),
    ],
)
def test_flags_that_do_not_go_with_a_cluster_are_refused(flags: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        running.run(["smoke", "--store", str(tmp_path / "s.sqlite"), *flags])


class Silent(RayStations):
    """Stations without Ray: calls are not made."""

    def call(self, station: str, what: str, token: int, *given: Any) -> None:
        pass


def test_other_versions_or_code_are_refused_with_the_difference() -> None:
    stations = Silent(STUDY)
    stations.actors, stations.nodes = {"a": None, "b": None}, {"node a": "a", "node b": "b"}
    same = machine.fingerprint() | {"cpu": "another", "memory_bytes": 1}
    assert isinstance(stations.admit("a", same), Joined)
    found = stations.admit("b", same | {"code": "other", "version jax": "0.0.1"})
    assert isinstance(found, Gone)
    assert "code: " in found.why
    assert "version jax: " in found.why
    assert "-> 0.0.1" in found.why
    assert "--ship" in found.why
    assert list(stations.refused) == ["node b"]


def test_a_cluster_of_nodes_that_cannot_be_used_says_why() -> None:
    stations = Silent(STUDY)
    stations.refused["node b"] = "other software"
    with pytest.raises(InputError, match="no node of the cluster can be used; node b: other software"):
        stations.check_any()


def test_an_actor_for_a_node_that_has_just_died_is_lost_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray import exceptions

    def get(reference: str) -> None:
        raise exceptions.ActorUnschedulableError("the node does not exist any more")

    monkeypatch.setattr(ray, "get", get)
    stations = Silent(STUDY)
    stations.actors, stations.nodes = {"a": None}, {"node a": "a"}
    stations.calls["reference"] = ("a", "fingerprint", 0)
    found = stations.report("reference")
    assert isinstance(found, Gone)
    assert "does not exist any more" in found.why


def on_gpus(monkeypatch: pytest.MonkeyPatch, *counts: int) -> dict[str, Any]:
    """What actors of a study of GPUs are started with on nodes with so many of them; InputError if none can be used."""
    import ray

    started: dict[str, Any] = {}

    class Remote:
        def __init__(self, kind: type) -> None:
            pass

        def options(self, **options: Any) -> "Remote":
            started[options["scheduling_strategy"].node_id] = options
            return self

        def remote(self, *given: Any) -> None:
            return None

    nodes = [
        {
            "NodeID": f"{i:056x}",
            "Alive": True,
            "NodeManagerHostname": f"host{i}",
            "Resources": {"CPU": 4.0, "GPU": count},
        }
        for i, count in enumerate(counts)
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray, "remote", Remote)
    stations = Silent(replace(STUDY, device="gpu"))
    stations.look_for_nodes()
    stations.check_any()
    return started


def test_a_station_of_a_study_of_gpus_holds_one_gpu_and_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    started = on_gpus(monkeypatch, 0, 1, 4)
    assert [(x["num_cpus"], x["num_gpus"]) for x in started.values()] == [(4, 1), (4, 1)]
    assert f"{0:056x}" not in started


def test_a_cluster_without_a_gpu_refuses_a_study_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no node.*host0: study .* has device=gpu, and Ray knows of no GPU here"):
        on_gpus(monkeypatch, 0)


def test_a_station_without_a_gpu_that_answers_refuses_a_study_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "fingerprint", lambda: {"cpu": "some"})
    station, needs = Station(), needs_of(replace(STUDY, device="gpu"))
    try:
        with pytest.raises(InputError, match="no NVIDIA GPU answers on this machine"):
            station.fingerprint(needs)
    finally:
        station.close()


def test_a_head_that_does_not_answer_any_more_ends_the_driver_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.exceptions import RpcError

    def nodes() -> list[Any]:
        raise RpcError("Timed out while waiting for GCS to become available.")

    monkeypatch.setattr(ray, "nodes", nodes)
    with pytest.raises(InputError, match=r"Ray's head does not answer any more .Timed out.*then the same command"):
        Silent(STUDY).poll(0.0)


# With Ray.


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_one_machine(tmp_path_factory.mktemp("alone"))


def on_one_machine(folder: Path) -> list[Any]:
    """The table of the same campaign on one machine."""
    command = relay_double.give(folder / "runners")
    with open_campaign(folder / "alone.sqlite", STUDY) as store:
        assert work(store, STUDY, replace(HOOKS, launch=None, relay=relayed(command)))
    return table(folder / "alone.sqlite")


class Campaign:
    """A campaign whose driver is a process."""

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir(exist_ok=True)
        self.path, self.runners, self.address = folder / "many.sqlite", folder / "runners", address
        relay_double.give(self.runners)
        self.driver: subprocess.Popen | None = None

    def start(self, *options: float | str) -> subprocess.Popen:
        command = [sys.executable, str(DOUBLE), str(self.path), str(self.runners), self.address, *map(str, options)]
        self.driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        return self.driver

    def events(self, kind: str) -> list[Event]:
        if not self.path.exists():
            return []
        with open_store(self.path, readonly=True) as store:
            return [event for event in store.events() if event.kind == kind]

    def wait(self, kind: str, count: int) -> None:
        """Until so many events have been stored."""
        wait_for(lambda: len(self.events(kind)) >= count)

    def stations(self) -> set[str]:
        return {event.detail["station"] for event in self.events("placed")}

    def leftovers(self) -> list[psutil.Process]:
        """Processes of relays that are still there."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if str(self.runners) in process.cmdline():
                    found.append(process)
        return found


@pytest.fixture
def campaign(nodes: Any, tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(tmp_path, nodes.address)
    yield made
    if made.driver and made.driver.poll() is None:
        made.driver.kill()
        made.driver.wait()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def actors() -> list[psutil.Process]:
    """Processes of stations, of the nodes that these tests have started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::Actor"):
                found.append(process)
    return found


@pytest.mark.slow
def test_a_campaign_on_two_nodes_ends_as_on_one_machine(campaign: Campaign, alone: list[Any]) -> None:
    assert campaign.start().wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone
    assert len(campaign.stations()) == 2
    blocks = Counter((event.detail["group"], event.detail["block"]) for event in campaign.events("placed"))
    assert set(blocks.values()) == {1}
    with open_store(campaign.path, readonly=True) as store:
        assert len(store.strata()) == 1
        assert len(store.canaries()) == 2 * 8


@pytest.mark.slow
def test_shipped_code_is_what_runs(campaign: Campaign, alone: list[Any]) -> None:
    assert campaign.start("ship").wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone
    # What was sent lies in Ray's own folder, and is equal to the driver's.
    paths = [event["benchback"] for event in relay_double.log(campaign.runners)]
    assert paths
    assert all("py_modules" in path for path in paths)


@pytest.mark.slow
def test_a_killed_station_is_replaced(campaign: Campaign, alone: list[Any]) -> None:
    driver = campaign.start()
    campaign.wait("placed", 3)
    actors()[0].kill()
    assert driver.wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone
    assert len(campaign.events("lost")) == 1
    assert len(campaign.stations()) == 3


@pytest.mark.slow
def test_a_killed_node_is_done_without_and_one_that_joins_late_is_used(
    nodes: Any, campaign: Campaign, alone: list[Any]
) -> None:
    driver = campaign.start()
    campaign.wait("placed", 2)
    (lost,) = nodes.worker_nodes
    nodes.remove_node(lost, allow_graceful=False)
    nodes.add_node(**NODE)
    assert driver.wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone
    assert campaign.events("lost")
    wait_for(lambda: not campaign.leftovers())


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_running_and_goes_on_where_it_was(campaign: Campaign, alone: list[Any]) -> None:
    driver = campaign.start()
    campaign.wait("placed", 3)
    driver.kill()
    driver.wait()
    wait_for(lambda: not campaign.leftovers())
    assert campaign.start().wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone


@pytest.mark.slow
def test_a_station_that_hangs_for_a_lease_is_fenced_when_it_comes_back(campaign: Campaign, alone: list[Any]) -> None:
    driver = campaign.start(4.0)
    campaign.wait("placed", 2)
    station = actors()[0]
    hung = [station, *station.children(recursive=True)]
    for process in hung:
        process.suspend()
    campaign.wait("lost", 1)
    for process in hung:
        with suppress(psutil.NoSuchProcess):
            process.resume()
    assert driver.wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone
    assert len(campaign.events("fenced")) == 1


@pytest.mark.slow
def test_asked_to_stop_ends_every_process_within_ten_seconds(campaign: Campaign, alone: list[Any]) -> None:
    driver = campaign.start()
    campaign.wait("placed", 2)
    began_s = time.monotonic()
    driver.send_signal(signal.SIGINT)
    assert driver.wait(PATIENCE_S) == 130
    wait_for(lambda: not campaign.leftovers())
    assert time.monotonic() - began_s < 10
    with open_store(campaign.path, readonly=True) as store:
        assert store.progress().running == 0
    assert campaign.start().wait(PATIENCE_S) == 0
    assert table(campaign.path) == alone


@pytest.mark.slow
def test_random_kills_lose_nothing_and_count_nothing_twice(nodes: Any, tmp_path: Path, alone: list[Any]) -> None:
    """Small campaigns, one after another, until so many processes were killed while one of them was running."""
    moments = random.Random(int(os.environ.get("BENCHBACK_KILLS_SEED", "0")))
    left, number = int(os.environ.get("BENCHBACK_KILLS", "8")), 0
    while left > 0:
        number += 1
        campaign = Campaign(tmp_path / str(number), nodes.address)
        left -= disturbed(campaign, moments, left)
        print(f"campaign {number} is complete, {left} kills are left", flush=True)
        assert table(campaign.path) == alone


def begins_or_ends(campaign: Campaign, driver: subprocess.Popen, begun: int) -> bool:
    """Whether the driver has begun another block, or has ended."""
    return driver.poll() is not None or len(campaign.events("placed")) > begun


def disturbed(campaign: Campaign, moments: random.Random, most: int) -> int:
    """Run a campaign to its end with at most so many random kill -9 of its driver and stations; how many there were.

    A quarter of them come at any moment, the start of a driver included; the others when a block has been begun since
    the last one.
    """
    kills, driver = 0, campaign.start()
    try:
        while driver.poll() != 0:
            if driver.poll() is not None:
                # Killed itself, or ended because a block took too many stations with it: its user starts it again.
                driver = campaign.start()
            if kills == most:
                driver.wait(PATIENCE_S)
                continue
            if moments.random() < 0.75:
                wait_for(partial(begins_or_ends, campaign, driver, len(campaign.events("placed"))))
            with suppress(subprocess.TimeoutExpired):
                driver.wait(moments.uniform(0.0, 3.0))
            if driver.poll() is None:
                with suppress(psutil.NoSuchProcess):
                    moments.choice([psutil.Process(driver.pid), *actors()]).kill()
                    kills += 1
            with suppress(subprocess.TimeoutExpired):
                driver.wait(0.5)
        return kills
    finally:
        driver.kill()
        driver.wait()
