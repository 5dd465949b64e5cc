"""The nodes of a Ray cluster, with an actor on each that holds all its processors. Imports Ray when it is used.

Ray places the actors, carries calls and answers, and notices when one dies. A node that joins later gets an actor; one
whose actor died gets a new one. What actors do is said elsewhere: `cluster.py` measures, `training_nodes.py` trains.
"""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchback.errors import InputError, install
from benchback.measure import machine
from benchback.measure.driver import Gone, Joined
from benchback.measure.process import Interrupted

BEAT_S = 5.0
"""Seconds between signs of life."""
NODES_S = 1.0
"""Seconds between looks for nodes that have joined."""
STOP_S = 5.0
"""Seconds that actors have to end what they run."""
PATIENCE_S = 180.0
"""Seconds within which the first node must offer its processors."""
MOST_TROUBLES = 2
"""Actors of a node that may end before they join; then the node is not used."""
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
"""A node on this machine: results are small."""
LOCAL = "ray:local="
AUTH = "RAY_AUTH_MODE"
Answer = TypeVar("Answer")
"""What actors report beside that they have joined or gone."""


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
def connected(place: Place, *, ship: bool = False) -> Iterator[list[tuple[int, ...]]]:
    """A connection to the cluster; yields the processors of each node if they are on this machine, and ends those."""
    try:
        import ray
        from ray.exceptions import AuthenticationError
    except ModuleNotFoundError:
        raise InputError(f"--on needs Ray, which is not installed: {install('ray')}") from None
    environment = {"py_modules": [str(Path(machine.PACKAGE))]} if ship else {}
    options = {"runtime_env": environment, "log_to_driver": False, "logging_level": "error", "configure_logging": True}
    # Ray installs handlers of its own, which would end us before the actors are stopped.
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
        try:
            yield _shares(place)
        finally:
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


@dataclass(frozen=True)
class Held:
    """What an actor has of its node."""

    host: str
    processors: int
    gpus: int
    """Of the node; how many the actor holds is up to `RayNodes.gpus`."""


@dataclass(kw_only=True)
class RayNodes(ABC, Generic[Answer]):
    """Actors of a Ray cluster, one per node."""

    ship: bool = False
    shares: list[tuple[int, ...]] = field(default_factory=list)
    """Processors of the nodes on this machine; empty where each node is a machine."""
    actors: dict[str, Any] = field(default_factory=dict)
    """Name -> actor."""
    calls: dict[Any, tuple[str, str, int]] = field(default_factory=dict)
    """Pending call -> its actor, what was asked, and a number of the caller's."""
    nodes: dict[str, str] = field(default_factory=dict)
    """Node -> its actor."""
    holds: dict[str, Held] = field(default_factory=dict)
    """Actor -> what it has of its node."""
    seen_s: dict[str, float] = field(default_factory=dict)
    """Actor -> when it last gave a sign of life."""
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Node on this machine -> its processors."""
    refused: dict[str, str] = field(default_factory=dict)
    """Node that is not used -> why."""
    troubles: Counter[str] = field(default_factory=Counter)
    """Node -> actors of it that ended before they joined."""
    looked_s: float = -1e9
    started: int = 0
    joined: int = 0

    def __post_init__(self) -> None:
        self.began_s, self.own = time.monotonic(), software(machine.fingerprint())

    @abstractmethod
    def make(self, processors: tuple[int, ...]) -> tuple[type, tuple[Any, ...]]:
        """The class of an actor and its arguments; it stays on these processors if there are any."""

    @abstractmethod
    def needs(self) -> tuple[Any, ...]:
        """Arguments of an actor's `fingerprint`, which raises an error if its machine lacks something."""

    @abstractmethod
    def answer(self, name: str, what: str, number: int, value: Any) -> Answer:
        """What an actor has answered."""

    def gpus(self, held: Held) -> int:
        """GPUs of its node that an actor holds; InputError if it has too few."""
        return 0

    def call(self, name: str, what: str, number: int, *given: Any) -> None:
        """Ask the actor for something; `poll` has the answer."""
        self.calls[getattr(self.actors[name], what).remote(*given)] = name, what, number

    def silent_s(self, name: str) -> float:
        """Seconds since the actor answered anything."""
        return time.monotonic() - self.seen_s.get(name, self.began_s)

    def poll(self, limit_s: float) -> list[Joined | Gone | Answer]:
        """Answers of actors, and those that ended."""
        from ray import exceptions

        try:
            self.look_for_nodes()
            ready = self.answered(min(limit_s, NODES_S))
        except exceptions.RpcError as error:
            raise InputError(
                f"Ray's head does not answer any more ({error}); start it and the nodes again, then the same command: "
                "what has not been stored is done again"
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
        """The first actor that joins; Interrupted if asked to stop before."""
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

    def report(self, reference: Any) -> Joined | Gone | Answer | None:
        """What an answered call says."""
        import ray
        from ray import exceptions

        name, what, number = self.calls.pop(reference)
        try:
            value: Any = ray.get(reference)
        except (exceptions.RayActorError, exceptions.ActorUnschedulableError, exceptions.RayTaskError) as error:
            # Ray lists a node for some seconds after its death: an actor for it can be placed nowhere.
            return self.failed(name, what, error)
        self.seen_s[name] = time.monotonic()
        match what:
            case "beat":
                self.beat(name)
                return None
            case "fingerprint":
                return self.admit(name, value)
        return self.answer(name, what, number, value)

    def failed(self, name: str, what: str, error: Exception) -> Gone | None:
        """What follows from a call that an actor has not survived, or answered by an error."""
        return self.bury(name, _cause(error), begun=what != "fingerprint")

    def beat(self, name: str) -> None:
        """Ask for the next sign of life, which the actor gives after a while."""
        self.call(name, "beat", 0, BEAT_S)

    def admit(self, name: str, fingerprint: Mapping[str, Any]) -> Joined | Gone | None:
        """An actor with our versions and code joins; others are refused with the difference."""
        changed = machine.difference(self.own, software(fingerprint))
        if changed:
            remedy = "install the same" + ("" if self.ship else ", or send the code with --ship")
            self.refused[self.node_of(name)] = f"other software than the driver's: {'; '.join(changed)}; {remedy}"
            return self.bury(name, f"refused, {self.refused[self.node_of(name)]}")
        self.joined += 1
        self.beat(name)
        return Joined(name, fingerprint)

    def node_of(self, name: str) -> str:
        """The node on which an actor is."""
        return next(node for node, other in self.nodes.items() if other == name)

    def bury(self, name: str, why: str, begun: bool = True) -> Gone | None:
        """Forget an actor that has ended; its node gets another if it lives. None where that is known already."""
        if name not in self.actors:
            return None
        import ray

        node = self.node_of(name)
        if not begun:
            self.troubles[node] += 1
            if self.troubles[node] >= MOST_TROUBLES:
                self.refused[node] = why
        if ray.is_initialized():  # it would start a cluster otherwise
            with suppress(Exception):
                ray.kill(self.actors[name])
        del self.actors[name], self.nodes[node]
        self.calls = {reference: x for reference, x in self.calls.items() if x[0] != name}
        return Gone(name, why)

    def look_for_nodes(self) -> None:
        """Give an actor to every node that lives, has processors and has none."""
        import ray

        if time.monotonic() - self.looked_s < NODES_S:
            return
        self.looked_s = time.monotonic()
        for node in ray.nodes():
            resources = node["Resources"]
            known = {*self.nodes, *self.refused}
            if node["Alive"] and resources.get("CPU") and node["NodeID"] not in known:
                held = Held(node["NodeManagerHostname"], int(resources["CPU"]), int(resources.get("GPU", 0)))
                self.start(node["NodeID"], held)

    def start(self, node: str, held: Held) -> None:
        """Start an actor that holds all processors of a node."""
        try:
            gpus = self.gpus(held)
        except InputError as error:
            self.refused[node] = f"{held.host}: {error}"
            return
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self.shares and node not in self.held:
            self.held[node] = self.shares[len(self.held) % len(self.shares)]
        self.started += 1
        name = f"{held.host}/{node[:8]}#{self.started}"
        kind, given = self.make(self.held.get(node, ()))
        actor = ray.remote(kind).options(
            num_cpus=held.processors,
            num_gpus=gpus,
            max_concurrency=3,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        self.actors[name], self.nodes[node], self.holds[name] = actor.remote(*given), name, held
        self.call(name, "fingerprint", 0, *self.needs())

    def stop(self) -> None:
        """Stop all actors, and kill those that do not end in time."""
        import ray

        actors, self.actors, self.calls = self.actors, {}, {}
        if not actors or not ray.is_initialized():
            return
        with suppress(Exception):
            ray.wait([x.stop.remote() for x in actors.values()], num_returns=len(actors), timeout=STOP_S)
        for actor in actors.values():
            with suppress(Exception):
                ray.kill(actor)


def _cause(error: BaseException) -> str:
    """The last line of what Ray says about an actor that died, or of an error in it."""
    if isinstance(getattr(error, "cause", None), Interrupted):
        return "it was stopped"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
