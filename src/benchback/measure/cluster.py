"""A Ray cluster as stations: an actor per node that measures blocks there."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.block import BlockJob
from benchback.measure.driver import Done, Proved
from benchback.measure.nodes import STOP_S, Held, Place, RayNodes, connected
from benchback.measure.station import Needs, Station, Tools, needs_of
from benchback.measure.study import Study


@contextmanager
def stations_of(
    place: Place, study: Study, *, ship: bool = False, tools: Tools | None = None
) -> Iterator["RayStations"]:
    """The stations of a cluster for a study; they end with the context, as do nodes that were started for it."""
    with connected(place, ship=ship) as shares:
        stations = RayStations(study, tools, ship=ship, shares=shares)
        try:
            yield stations
        finally:
            stations.stop()


@dataclass
class RayStations(RayNodes[Done | Proved]):
    """Stations of a Ray cluster, one per node, as the driver sees them."""

    study: Study = field(kw_only=False)
    tools: Tools | None = field(default=None, kw_only=False)

    def begin(self, station: str, token: int, job: BlockJob) -> None:
        """Let the station run a block."""
        self.call(station, "run", token, job)

    def prove(self, station: str, proofs: Sequence[str]) -> None:
        """Let the station prove programs."""
        self.call(station, "prove", 0, list(proofs))

    def make(self, processors: tuple[int, ...]) -> tuple[type, tuple[Any, ...]]:
        """A station."""
        return Actor, (self.study.keep_caches, processors, self.tools, self.ship)

    def needs(self) -> tuple[Any, ...]:
        """What the study needs on every machine."""
        return (needs_of(self.study),)

    def gpus(self, held: Held) -> int:
        """One for a study of GPUs, none otherwise: a station runs one block at a time, on one device."""
        wanted = int(needs_of(self.study).gpu)
        if held.gpus < wanted:
            raise InputError(f"study {self.study.name} has device=gpu, and Ray knows of no GPU here; use device=cpu")
        return wanted

    def answer(self, name: str, what: str, number: int, value: Any) -> Done | Proved:
        """A block, or the verdicts of programs."""
        return Proved(name, value) if what == "prove" else Done(name, number, value)


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
