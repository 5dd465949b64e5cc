"""A Ray cluster as nodes that train: an actor per node with the parts of a population that are trained there.

The folder of the training stays with the driver; actors write nothing.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchback import envs, registry
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.coordinator import LEASE_S
from benchback.measure.driver import ABSENCE_S, Gone, Joined
from benchback.measure.nodes import NODES_S, Held, Place, RayNodes, connected

if TYPE_CHECKING:
    from benchback.population.parts import Ask, Trainee

GRACE_S = 60.0
"""Seconds that the first node waits for the others."""
FINISH_S = 4.0
"""Seconds that a program call and a checkpoint may take after a request to stop."""


@dataclass(frozen=True)
class Setting:
    """What all trainings of a driver have in common."""

    backend: str
    env: str
    threads: int = 1
    float64: bool = False
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a node has answered about a part."""

    part: int
    value: Any


@contextmanager
def training_nodes(
    place: Place, setting: Setting, asked_to_stop: Callable[[], bool], *, ship: bool = False
) -> Iterator["TrainingNodes"]:
    """The nodes of a cluster; their processes end with the context, as do nodes that were started for it."""
    with connected(place, ship=ship) as shares:
        nodes = TrainingNodes(setting, asked_to_stop, ship=ship, shares=shares)
        try:
            yield nodes
        finally:
            nodes.stop()


@dataclass
class TrainingNodes(RayNodes[Answer]):
    """Nodes of a Ray cluster that train parts of populations: `Nodes` of `population/parts.py`."""

    setting: Setting = field(kw_only=False)
    asked_to_stop: Callable[[], bool] = field(default=lambda: False, kw_only=False)
    ready: dict[str, int] = field(default_factory=dict)
    """Actor that has joined -> its devices."""
    asked_s: float | None = None
    """When a request to stop was noticed."""
    listening_s: float = 0.0
    """Since when answers are waited for: signs of life are not heard while the driver does something else."""

    def make(self, processors: tuple[int, ...]) -> tuple[type, tuple[Any, ...]]:
        """An actor that trains."""
        return TrainingActor, (self.setting, processors)

    def needs(self) -> tuple[Any, ...]:
        """Nothing but what the setting says."""
        return ()

    def gpus(self, held: Held) -> int:
        """All of them: members are divided over the devices of a node."""
        return held.gpus

    def answer(self, name: str, what: str, number: int, value: Any) -> Answer:
        """The answer about a part."""
        return Answer(number, value)

    def failed(self, name: str, what: str, error: Exception) -> Gone | None:
        """Errors of the user's are raised here; after others the node's process is replaced."""
        cause = getattr(error, "cause", None)
        if what != "fingerprint" and isinstance(cause, InputError):
            raise InputError(f"{name}: {cause}")
        return super().failed(name, what, error)

    def widths(self) -> Mapping[str, int]:
        """The nodes that are there and their devices; the first one waits a while for those that are about to join."""
        self.listening_s = began_s = time.monotonic()
        while not self.ready or (self.actors.keys() - self.ready.keys() and time.monotonic() - began_s < GRACE_S):
            self.turn({}, {})
            if self.joined and not self.ready and time.monotonic() - began_s > ABSENCE_S:
                raise InputError(
                    f"no node is left for {ABSENCE_S:.0f} s; start some, and go on from the last checkpoint with "
                    "--resume, or for a search with the same command"
                )
        return dict(self.ready)

    def each(self, asks: "Mapping[int, Ask]") -> Mapping[int, Any]:
        """The answers to all, asked at the same time."""
        from benchback.population.parts import Lost

        found: dict[int, Any] = {}
        self.listening_s = time.monotonic()
        for part, ask in asks.items():
            if ask.node in self.ready:
                self.call(ask.node, ask.what, part, *ask.given)
            else:
                found[part] = Lost(f"{ask.node} has ended")
        while len(found) < len(asks):
            self.turn(asks, found)
        return found

    def turn(self, asks: "Mapping[int, Ask]", found: dict[int, Any]) -> None:
        """Wait for something to happen, and note it in `found` if it answers what was asked."""
        self.check_stop()
        listened_s = time.monotonic() - self.listening_s
        silent = [name for name in self.ready if min(listened_s, self.silent_s(name)) > LEASE_S]
        lost = [self.bury(name, f"it gave no sign of life for {LEASE_S:.0f} s") for name in silent]
        for report in [*self.poll(NODES_S), *lost]:
            match report:
                case Joined(name):
                    held = self.holds[name]
                    self.ready[name] = held.gpus or held.processors
                case Gone(name, why):
                    self.forget(name, why, asks, found)
                case Answer(part, value):
                    found[part] = value

    def forget(self, name: str, why: str, asks: "Mapping[int, Ask]", found: dict[int, Any]) -> None:
        """Note that a node has ended, and what it was asked for."""
        from benchback.population.parts import Lost

        self.ready.pop(name, None)
        for part, ask in asks.items():
            if ask.node == name and part not in found:
                found[part] = Lost(f"{name} has ended ({why})")

    def stop(self) -> None:
        """Kill all actors: they have nothing to put in order."""
        for name in list(self.actors):
            self.bury(name, "it was stopped")

    def check_stop(self) -> None:
        """Raise KeyboardInterrupt if what is running has not ended some seconds after a request to stop."""
        if not self.asked_to_stop():
            return
        self.asked_s = time.monotonic() if self.asked_s is None else self.asked_s
        if time.monotonic() - self.asked_s > FINISH_S or not self.joined:
            raise KeyboardInterrupt("stopped before the iteration was done; go on from the last checkpoint, if any")


class TrainingActor:
    """Trains parts of populations on its node; its methods run in threads, so that it can be asked while it trains."""

    def __init__(self, setting: Setting, processors: tuple[int, ...]) -> None:
        from benchback.plugins.imports import import_all

        os.environ.update(dict.fromkeys(machine.THREADS, str(setting.threads)))
        import_all(setting.imports)
        self.setting, self.processors, self.trainee = setting, processors, None

    def fingerprint(self) -> dict[str, Any]:
        """Facts about the machine; InputError if it lacks the backend or the environment."""
        self.stay()
        registry.check_installed(self.setting.backend)
        envs.check_installed(self.setting.env)
        return machine.fingerprint()

    def stay(self) -> None:
        """Keep this thread, and what it starts, on the node's processors."""
        if self.processors and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.processors)

    def train(self, part: int, until: int, *job: Any) -> Any:
        """Train a part until so many iterations are done."""
        self.stay()
        self.trainee = self.trainee or self.begin()
        return self.trainee.train(part, until, *job)

    def begin(self) -> "Trainee":
        """A trainee with a device for each processor of the node, or its GPUs."""
        import ray

        held = ray.get_runtime_context().get_assigned_resources()
        count = max(1, int(held.get("CPU", 1)))
        if registry.BACKENDS[self.setting.backend].populations:
            os.environ["NPROC"] = str(max(count, self.setting.threads))
            import jax

            jax.config.update("jax_num_cpu_devices", count)
            jax.config.update("jax_enable_x64", self.setting.float64)
            count = jax.local_device_count()
        from benchback.population.parts import Trainee

        return Trainee(count)

    def export(self, part: int) -> Any:
        """The states of a part's members."""
        return self.known().export(part)

    def export_member(self, part: int, index: int) -> Any:
        """The state of one of a part's members."""
        return self.known().export_member(part, index)

    def known(self) -> "Trainee":
        assert self.trainee is not None, "a part is trained before it is exported"
        return self.trainee

    def beat(self, after_s: float) -> int:
        """A sign of life after so many seconds."""
        time.sleep(after_s)
        return os.getpid()
