"""Clusters that are left with no head, or with no node: in a file of their own, each test starts Ray anew."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_campaign import table
from test_cluster import NODE, PATIENCE_S, Campaign, on_one_machine, wait_for

RECONNECT_S = 10
"""Seconds after which Ray gives up a head that does not answer; 60 unless told otherwise."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a cluster of a head with so many processors and a node; all of them end with the test."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S))
    clusters = []

    def start(of_head: int) -> Any:
        head = NODE | {"num_cpus": of_head, "include_dashboard": False}
        clusters.append(Cluster(initialize_head=True, head_node_args=head))
        clusters[-1].add_node(**NODE)
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.shutdown()


@pytest.mark.slow
def test_a_killed_head_ends_the_driver_and_a_new_one_goes_on(started: Callable[..., Any], tmp_path: Path) -> None:
    cluster = started(1)
    campaign = Campaign(tmp_path, cluster.address)
    driver = campaign.start()
    try:
        campaign.wait("placed", 3)
        (gcs,) = [x for x in psutil.Process().children(recursive=True) if x.name() == "gcs_server"]
        gcs.kill()
        assert driver.wait(PATIENCE_S) != 0
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not campaign.leftovers())
    cluster.shutdown()
    campaign.address = started(1).address
    assert campaign.start().wait(PATIENCE_S) == 0
    assert table(campaign.path) == on_one_machine(tmp_path)


@pytest.mark.slow
def test_a_node_that_joins_when_none_is_left_does_the_rest(started: Callable[..., Any], tmp_path: Path) -> None:
    """The head measures nothing, as with `--num-cpus 0`."""
    cluster = started(0)
    campaign = Campaign(tmp_path, cluster.address)
    driver = campaign.start()
    try:
        campaign.wait("returned", 2)
        (lost,) = cluster.worker_nodes
        cluster.remove_node(lost, allow_graceful=False)
        cluster.add_node(**NODE)
        assert driver.wait(PATIENCE_S) == 0
    finally:
        driver.kill()
        driver.wait()
    assert table(campaign.path) == on_one_machine(tmp_path)
    first, second = dict.fromkeys(event.detail["station"] for event in campaign.events("placed"))
    by = [event.detail["station"] for event in campaign.events("returned")]
    assert by.count(first) >= 2
    assert by.count(second) >= 1
    assert by.count(first) + by.count(second) == 8
