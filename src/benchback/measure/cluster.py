"""A Ray cluster as stations: one actor per node, which holds all its processors. Imports Ray when it is used.

Ray places the actors, carries jobs and results, and notices when one dies. A node that joins later gets a station; one
whose actor died gets a new one.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchback.errors import InputError, install
from benchback.measure import machine
from benchback.measure.block import BlockJob
from benchback.measure.driver import Done, Gone, Joined, Proved, Report
from benchback.measure.process import Interrupted
from benchback.measure.station import Needs, Station, Tools, needs_of
from benchback.measure.study import Study

BEAT_S = 5.0
"""Seconds between signs of life."""
NODES_S = 1.0
"""Seconds between looks for nodes that have joined."""
STOP_S = 5.0
"""Seconds that stations have to end what they run."""
PATIENCE_S = 180.0
"""Seconds within which the first node must offer its processors."""
MOST_TROUBLES = 2
"""Stations of a node that may end before they join; then the node is not used."""
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
"""A node on this machine: results are small."""
LOCAL = "ray:local="
AUTH = "RAY_AUTH_MODE"


def software(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a fingerprint that must be the same on all machines of a cluster."""
    return {name: x for name, x in fingerprint.items() if name in ("code", "python") or name.startswith("version ")}


@dataclass(frozen=True)
class Place:
    """Where the cluster is, as `--on` says."""

    address: str
    """For `ray.init`: `auto` or `ray://HOST:PORT`; empty for nodes on this machine."""
    nodes: int = 0
    """Nodes that are started on this machine."""


def place_of(given: str) -> Place:
    """`ray://HOST:PORT`, `ray:auto` or `ray:local=2`."""
    if given == "ray:auto":
        return Place("auto")
    if given.startswith("ray://") and given.removeprefix("ray://").rpartition(":")[2].isdecimal():
        return Place(given)
    count = given.removeprefix(LOCAL)
    if given.startswith(LOCAL) and count.isdecimal() and 0 < int(count) <= 16:
        return Place("", int(count))
    raise InputError(f"--on {given[:80]} must be ray://HOST:PORT, ray:auto or ray:local=N with N from 1 to 16")


@contextmanager
def stations_of(
    place: Place, study: Study, *, ship: bool = False, tools: Tools | None = None
) -> Iterator["RayStations"]:
    """The stations of a cluster for a study; they end with the context, as do nodes that were started for it."""
    try:
        import ray
        from ray.exceptions import AuthenticationError
    except ModuleNotFoundError:
        raise InputError(f"--on needs Ray, which is not installed: {install('ray')}") from None
    environment = {"py_modules": [str(Path(machine.PACKAGE))]} if ship else {}
    options = {"runtime_env": environment, "log_to_driver": False, "logging_level": "error", "configure_logging": True}
    # Ray installs handlers of its own, which would end us before the stations are stopped.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with _nodes(place) as address:
        try:
            ray.init(address=address, namespace="benchback", **options)
        except (ConnectionError, TimeoutError, AuthenticationError) as error:
            # Ray's client says nothing but "timeout" where the cluster asks for a token and it has sent none.
            token = "" if os.environ.get(AUTH) else f", or set {AUTH}=token where it asks for a token"
            told = str(error).strip().split("\n")[0]
            raise InputError(
                f"no Ray cluster answers at {address}: {told}; start one{token}, see docs/cluster.md"
            ) from None
        for number, handler in handlers.items():
            signal.signal(number, handler)
        stations = RayStations(study, ship, _shares(place), tools)
        try:
            yield stations
        finally:
            stations.stop()
            ray.shutdown()


@contextmanager
def _nodes(place: Place) -> Iterator[str]:
    """The address of the cluster; where it is to be on this machine, its nodes are started and ended here."""
    if not place.nodes:
        yield place.address
        return
    from ray.cluster_utils import Cluster

    # Ray would report its use to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        for _ in range(place.nodes - 1):
            cluster.add_node(**NODE)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def _shares(place: Place) -> list[tuple[int, ...]]:
    """The processors of each node on this machine: separate ones where there are enough."""
    allowed = machine.allowed_processors()
    if not place.nodes:
        return []
    each = max(1, len(allowed) // place.nodes)
    return [tuple(allowed[(i * each) % len(allowed) :][:each]) for i in range(place.nodes)]


@dataclass
class RayStations:
    """Actors of a Ray cluster, one per node."""

    study: Study
    ship: bool = False
    shares: list[tuple[int, ...]] = field(default_factory=list)
    """Processors of the nodes on this machine; empty where each node is a machine."""
    tools: Tools | None = None
    actors: dict[str, Any] = field(default_factory=dict)
    """Station -> its actor."""
    calls: dict[Any, tuple[str, str, int]] = field(default_factory=dict)
    """Pending call -> its station, what was asked, and the token of a block."""
    nodes: dict[str, str] = field(default_factory=dict)
    """Node -> its station."""
    seen_s: dict[str, float] = field(default_factory=dict)
    """Station -> when it last gave a sign of life."""
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Node on this machine -> its processors."""
    refused: dict[str, str] = field(default_factory=dict)
    """Node that is not used -> why."""
    troubles: Counter[str] = field(default_factory=Counter)
    """Node -> stations of it that ended before they joined."""
    looked_s: float = -1e9
    started: int = 0
    joined: int = 0

    def __post_init__(self) -> None:
        self.began_s, self.own = time.monotonic(), software(machine.fingerprint())
        self.needs = needs_of(self.study)

    def begin(self, station: str, token: int, job: BlockJob) -> None:
        """Let the station run a block."""
        self.call(station, "run", token, job)

    def prove(self, station: str, proofs: Sequence[str]) -> None:
        """Let the station prove programs."""
        self.call(station, "prove", 0, list(proofs))

    def call(self, station: str, what: str, token: int, *given: Any) -> None:
        """Ask the actor for something; `poll` has the answer."""
        self.calls[getattr(self.actors[station], what).remote(*given)] = station, what, token

    def silent_s(self, station: str) -> float:
        """Seconds since the station answered anything."""
        return time.monotonic() - self.seen_s.get(station, self.began_s)

    def poll(self, limit_s: float) -> list[Report]:
        """Answers of stations, and those that ended."""
        from ray import exceptions

        try:
            self.look_for_nodes()
            ready = self.answered(min(limit_s, NODES_S))
        except exceptions.RpcError as error:
            raise InputError(
                f"Ray's head does not answer any more ({error}); start it and the nodes again, then the same command: "
                "blocks that have not been stored are run again"
            ) from None
        reports = [self.report(reference) for reference in ready]
        self.check_any()
        return [report for report in reports if report is not None]

    def answered(self, limit_s: float) -> list[Any]:
        """Calls that have an answer, as soon as one has or so many seconds have passed."""
        import ray

        if self.calls:
            return ray.wait(list(self.calls), num_returns=1, timeout=limit_s)[0]
        time.sleep(limit_s)
        return []

    def first(self, asked_to_stop: Callable[[], bool]) -> Joined:
        """The first station that joins; Interrupted if asked to stop before."""
        while not asked_to_stop():
            for report in self.poll(NODES_S):
                if isinstance(report, Joined):
                    return report
        raise Interrupted

    def check_any(self) -> None:
        """Raise an InputError if no node can be used."""
        if self.joined:
            return
        why = "; ".join(f"{node}: {reason}" for node, reason in self.refused.items())
        if self.refused and not self.actors:
            raise InputError(f"no node of the cluster can be used; {why}")
        if time.monotonic() - self.began_s > PATIENCE_S:
            held = "others may hold their processors, see `ray status`"
            raise InputError(f"no node joined within {PATIENCE_S:.0f} s; {why or held}")

    def report(self, reference: Any) -> Report | None:
        """What an answered call says."""
        import ray
        from ray import exceptions

        station, what, token = self.calls.pop(reference)
        try:
            answer: Any = ray.get(reference)
        except (exceptions.RayActorError, exceptions.RayTaskError) as error:
            return self.bury(station, _cause(error), begun=what != "fingerprint")
        self.seen_s[station] = time.monotonic()
        match what:
            case "beat":
                self.beat(station)
            case "fingerprint":
                return self.admit(station, answer)
            case "prove":
                return Proved(station, answer)
            case "run":
                return Done(station, token, answer)
        return None

    def beat(self, station: str) -> None:
        """Ask for the next sign of life, which the actor gives after a while."""
        self.call(station, "beat", 0, BEAT_S)

    def admit(self, station: str, fingerprint: Mapping[str, Any]) -> Report | None:
        """A station with our versions and code joins; others are refused with the difference."""
        changed = machine.difference(self.own, software(fingerprint))
        if changed:
            remedy = "install the same" + ("" if self.ship else ", or send the code with --ship")
            self.refused[self.node_of(station)] = f"other software than the driver's: {'; '.join(changed)}; {remedy}"
            return self.bury(station, f"refused, {self.refused[self.node_of(station)]}")
        self.joined += 1
        self.beat(station)
        return Joined(station, fingerprint)

    def node_of(self, station: str) -> str:
        """The node on which a station is."""
        return next(node for node, name in self.nodes.items() if name == station)

    def bury(self, station: str, why: str, begun: bool = True) -> Report | None:
        """Forget a station that has ended; its node gets another if it lives. None where that is known already."""
        if station not in self.actors:
            return None
        import ray

        node = self.node_of(station)
        if not begun:
            self.troubles[node] += 1
            if self.troubles[node] >= MOST_TROUBLES:
                self.refused[node] = why
        if ray.is_initialized():  # it would start a cluster otherwise
            with suppress(Exception):
                ray.kill(self.actors[station])
        del self.actors[station], self.nodes[node]
        self.calls = {reference: x for reference, x in self.calls.items() if x[0] != station}
        return Gone(station, why)

    def look_for_nodes(self) -> None:
        """Give a station to every node that lives, has processors and has none."""
        import ray

        if time.monotonic() - self.looked_s < NODES_S:
            return
        self.looked_s = time.monotonic()
        for node in ray.nodes():
            processors = node["Resources"].get("CPU", 0.0)
            known = {*self.nodes, *self.refused}
            if node["Alive"] and processors and node["NodeID"] not in known:
                self.start(node["NodeID"], node["NodeManagerHostname"], processors)

    def start(self, node: str, host: str, processors: float) -> None:
        """Start a station that holds all processors of a node."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self.shares and node not in self.held:
            self.held[node] = self.shares[len(self.held) % len(self.shares)]
        self.started += 1
        name = f"{host}/{node[:8]}#{self.started}"
        actor = ray.remote(Actor).options(
            num_cpus=processors,
            max_concurrency=3,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        self.actors[name] = actor.remote(self.study.keep_caches, self.held.get(node, ()), self.tools, self.ship)
        self.nodes[node] = name
        self.call(name, "fingerprint", 0, self.needs)

    def stop(self) -> None:
        """Stop all stations, and kill those that do not end in time."""
        import ray

        actors, self.actors, self.calls = self.actors, {}, {}
        if not actors or not ray.is_initialized():
            return
        with suppress(Exception):
            ray.wait([x.stop.remote() for x in actors.values()], num_returns=len(actors), timeout=STOP_S)
        for actor in actors.values():
            with suppress(Exception):
                ray.kill(actor)


class Actor:
    """A station as an actor of Ray; its methods run in threads, so that it can be asked while it measures."""

    def __init__(self, keep_caches: bool, processors: Sequence[int], tools: Tools | None, shipped: bool) -> None:
        if shipped:
            os.environ[machine.SHIPPED] = str(machine.PACKAGE.parent)
        self.station, self.busy = Station(keep_caches, processors, tools), 0

    def fingerprint(self, needs: Needs) -> dict[str, Any]:
        """Facts about the machine."""
        return self.station.fingerprint(needs)

    def prove(self, proofs: Sequence[str]) -> dict[str, str]:
        """Parity verdicts."""
        return self.station.prove(proofs)

    def run(self, job: BlockJob) -> Any:
        """A block."""
        self.busy += 1
        try:
            return self.station.run(job)
        finally:
            self.busy -= 1

    def beat(self, after_s: float) -> int:
        """A sign of life after so many seconds."""
        time.sleep(after_s)
        return os.getpid()

    def stop(self) -> None:
        """Return when nothing is running any more."""
        self.station.stop()
        deadline = time.monotonic() + STOP_S
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.05)
        self.station.close()


def _cause(error: BaseException) -> str:
    """The last line of what Ray says about an actor that died, or of an error in it."""
    if isinstance(getattr(error, "cause", None), Interrupted):
        return "it was stopped"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
