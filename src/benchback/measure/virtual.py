"""A campaign on many machines in virtual time: the real driver and the real store, and machines that only take time."""

import heapq
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchback.measure.block import BlockJob, Measured
from benchback.measure.coordinator import Hooks
from benchback.measure.cost import relay_seconds
from benchback.measure.driver import Done, Driver, Joined, Report
from benchback.measure.plan import CANARY_S, schedule
from benchback.measure.process import Ended
from benchback.measure.record import Cell
from benchback.measure.store import Store, create
from benchback.measure.study import Study

MACHINE = {"cpu": "virtual"}
Seconds = Callable[[Cell, int, bool], float]
"""(cell, variants of its block, whether the machine has run it before) -> seconds that it adds to the block."""


@dataclass(frozen=True)
class Outlook:
    """What a campaign would take on so many machines."""

    machines: int
    blocks: int
    makespan_s: float
    idle: float
    """Share of the machines' time in which they have no block."""
    writes_per_s: float
    """Transactions of the store per second of the campaign."""
    planned_s: float
    """Seconds that driver and store really took for it: what is left to them of the campaign's time."""


@dataclass
class VirtualStations:
    """Machines that take as long as they are told, on a clock that jumps from one event to the next."""

    count: int
    seconds: Seconds
    now_s: float = 0.0
    busy_s: float = 0.0
    blocks: int = 0

    def __post_init__(self) -> None:
        self.reports: list[tuple[float, int, Report]] = []
        self.seen: dict[str, set[str]] = {}
        for number in range(self.count):
            self.at(0.0, Joined(f"machine {number:04}", MACHINE))

    def at(self, time_s: float, report: Report) -> None:
        """Report something when the clock gets there."""
        heapq.heappush(self.reports, (time_s, self.blocks + len(self.reports), report))

    def begin(self, station: str, token: int, job: BlockJob) -> None:
        """Be done after the seconds of all its cells and the canaries."""
        seen = self.seen.setdefault(station, set())
        took = {cell.id: self.seconds(cell, len(job.cells), cell.group in seen) for cell in job.cells}
        seen.add(job.cells[0].group)
        total_s = CANARY_S + sum(took.values())
        self.busy_s, self.blocks = self.busy_s + total_s, self.blocks + 1
        ended = {id: Ended("ok", duration_s=seconds) for id, seconds in took.items()}
        self.at(self.now_s + total_s, Done(station, token, Measured(ended, {}, "")))

    def prove(self, station: str, proofs: Sequence[str]) -> None:
        """Not asked for."""
        raise NotImplementedError("nothing is proven in a plan")

    def poll(self, limit_s: float) -> list[Report]:
        """Everything that happens at the next moment; the clock goes there, or so many seconds further."""
        limit_s += self.now_s
        if not self.reports or self.reports[0][0] > limit_s:
            self.now_s = limit_s
            return []
        self.now_s = self.reports[0][0]
        found = []
        while self.reports and self.reports[0][0] <= self.now_s:
            found.append(heapq.heappop(self.reports)[2])
        return found

    def silent_s(self, station: str) -> float:
        """Never silent."""
        return 0.0

    def stop(self) -> None:
        """Nothing to end."""


def foresee(study: Study, machines: int, seconds: Seconds, seed: int = 0) -> Outlook:
    """A campaign with the fewest blocks of each group, on equal machines; nothing fails."""
    began_s = time.perf_counter()
    study = replace(study, max_blocks=study.min_blocks)
    stations = VirtualStations(machines, seconds)
    writes = 0

    def clock() -> float:
        return stations.now_s

    def count(statement: str) -> None:
        nonlocal writes
        writes += statement == "COMMIT"

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchback-plan-")))
        store = stack.enter_context(_scratch(folder / "plan.sqlite", study, seed, clock))
        store.connection.set_trace_callback(count)
        Driver(store, study, Hooks(prove=None, clock=clock), stations).work()
    end_s = stations.now_s or 1.0
    spent_s = time.perf_counter() - began_s
    return Outlook(machines, stations.blocks, end_s, 1 - stations.busy_s / (end_s * machines), writes / end_s, spent_s)


def _scratch(path: Path, study: Study, seed: int, clock: Callable[[], float]) -> Store:
    """A store of the study that need not survive a power loss."""
    cells, slots = schedule(study, seed)
    campaign = {"study": {"name": study.name}, "seed": seed, "fingerprint": MACHINE}
    store = create(path, campaign, cells, slots, clock)
    store.connection.execute("PRAGMA synchronous = OFF")
    return store


def expected(study: Study, measured: Mapping[str, Sequence[float]] | None = None) -> Seconds:
    """Seconds as earlier runs of a cell took, by its id, in the median; by a rough model where there are none."""
    known: dict[tuple[str, int, bool], float] = {}

    def seconds(cell: Cell, variants: int, again: bool) -> float:
        earlier = (measured or {}).get(cell.id)
        if earlier:
            return median(earlier)
        place = cell.id, variants, again
        if place not in known:
            known[place] = relay_seconds(cell, study, variants, int(again))
        return known[place]

    return seconds
