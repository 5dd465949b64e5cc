"""The driver of many machines: gives blocks to stations and stores what they return. It alone writes to the store.

A station holds one machine and runs one block at a time. What it is, and how it is reached, is up to `Stations`; time
comes from the hooks, so that the same driver runs a cluster, a test and a plan.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchback.measure import gate, machine, plan
from benchback.measure.block import BlockJob, Measured, attempts_of
from benchback.measure.coordinator import LEASE_S, RENEW_S, Hooks, expected_seconds, job_of, owner, owner_is_gone
from benchback.measure.dispatch import Block, Dispatcher, blocks_of
from benchback.measure.record import Cell
from benchback.measure.stopping import extend_groups, lengthen
from benchback.measure.store import Fenced, Lease, Store
from benchback.measure.study import Study

MOST_LOST = 3
"""Stations that a block may take with it before it is put aside."""
SAME_MEMORY = 0.02
"""Relative difference of memory up to which machines are of one kind."""
ABSENCE_S = 60.0
"""How long to wait for a machine of a stratum that has none."""


@dataclass(frozen=True)
class Joined:
    """A station that can be given work, with the fingerprint of its machine."""

    station: str
    fingerprint: Mapping[str, Any]


@dataclass(frozen=True)
class Proved:
    """The parity verdicts of the programs on a station's machine."""

    station: str
    verdicts: Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """A block that a station has run; `token` is that of its beginning."""

    station: str
    token: int
    measured: Measured


@dataclass(frozen=True)
class Gone:
    """A station that has ended."""

    station: str
    why: str


Report = Joined | Proved | Done | Gone


class Stations(Protocol):
    """The machines as the driver sees them."""

    def begin(self, station: str, token: int, job: BlockJob) -> None:
        """Let a station run a block; it will be reported as Done or Gone."""
        ...

    def prove(self, station: str, proofs: Sequence[str]) -> None:
        """Let a station prove that the programs compute the same; it will be reported as Proved or Gone."""
        ...

    def poll(self, limit_s: float) -> Sequence[Report]:
        """What has happened, as soon as something has or so many seconds have passed."""
        ...

    def silent_s(self, station: str, /) -> float:
        """Seconds since a station gave a sign of life."""
        ...

    def stop(self) -> None:
        """End every station and all that it has started."""
        ...


def alike(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two machines are of one kind: equal machines report slightly different amounts of memory."""
    memory = [float(x.get("memory_bytes", 0)) for x in (a, b)]
    close = abs(memory[0] - memory[1]) <= SAME_MEMORY * max(memory)
    kept = {"memory_bytes": a["memory_bytes"]} if close and "memory_bytes" in a else {}
    return not machine.difference(a, {**b, **kept})


@dataclass
class Driver:
    """Runs a campaign on stations until nothing is open."""

    store: Store
    study: Study
    hooks: Hooks
    stations: Stations
    first: Sequence[Report] = ()
    """What stations have reported already."""
    lease_s: float = LEASE_S
    renew_s: float = RENEW_S
    absence_s: float = ABSENCE_S
    cells: Mapping[str, Cell] = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    strata: dict[str, int] = field(default_factory=dict)
    """Station -> the stratum of its machine."""
    leases: dict[int, list[Lease]] = field(default_factory=dict)
    """Token of a block that was begun -> its leases, those of hung stations included."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Station -> token of its block."""
    proving: dict[int, str] = field(default_factory=dict)
    """Stratum -> the station that proves its programs."""
    unproven: dict[int, list[str]] = field(default_factory=dict)
    """Stratum -> stations that wait for the proof."""
    lost: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """Block -> stations that ended while they ran it."""
    entered: set[int] = field(default_factory=set)
    """Strata whose blocks the dispatcher has."""

    def __post_init__(self) -> None:
        self.cells = self.store.cells()
        self.dispatcher = Dispatcher(self.store.campaign()["seed"])
        self.deadline = self.hooks.clock() + (self.study.budget_s or math.inf)
        self.renewed_s = self.hooks.clock()
        self.absent_s: float | None = None
        self.incomplete = self.out_of_time = False
        # Leases under our name belong to a dead process whose pid we reuse.
        self.store.forget(lambda name: name == owner() or owner_is_gone(name))

    def work(self) -> bool:
        """Run what is open until nothing is; False if asked to stop before, or if a machine is missing."""
        try:
            for report in self.first:
                self.take(report)
            while not self.hooks.asked_to_stop():
                for report in self.stations.poll(min(self.renew_s, self.absence_s) / 4):
                    self.take(report)
                self.renew()
                self.begin_blocks()
                if not self.dispatcher.running and not self.proving and self.is_over():
                    return not self.incomplete
            return False
        finally:
            self.stations.stop()
            self.store.release(*(lease for leases in self.leases.values() for lease in leases))

    def take(self, report: Report) -> None:
        """Act on what a station reports."""
        match report:
            case Joined(station, fingerprint):
                self.welcome(station, self.stratum_of(fingerprint))
            case Proved(station, verdicts):
                self.note_proof(station, verdicts)
            case Done(station, token, measured):
                self.store_block(station, token, measured)
            case Gone(station, why):
                self.lose(station, why)

    def stratum_of(self, fingerprint: Mapping[str, Any]) -> int:
        """The stratum of a machine with this fingerprint, opened with a whole schedule if there is none."""
        strata = self.store.strata()
        for number, known in enumerate(strata):
            if alike(known, fingerprint):
                return number
        seed = self.store.campaign()["seed"]
        number = self.store.add_stratum(fingerprint, plan.again(self.study, self.store.slots(), seed, len(strata)))
        self.store.add_event("stratum", {"number": number, "changed": machine.difference(strata[0], fingerprint)})
        return number

    def welcome(self, station: str, stratum: int) -> None:
        """A station is idle once the programs are proven on a machine like its own."""
        self.strata[station] = stratum
        if stratum not in self.entered:
            self.entered.add(stratum)
            lengthen(self.store, self.study, stratum)
            self.dispatcher.add(blocks_of(self.store.open_slots(stratum), self.cells))
        wanted = self.proofs_of(stratum)
        if not wanted:
            self.dispatcher.join(station, stratum)
        elif stratum in self.proving:
            self.unproven.setdefault(stratum, []).append(station)
        else:
            self.proving[stratum] = station
            self.hooks.log(f"{station} proves that the programs compute the same")
            self.stations.prove(station, wanted)

    def proofs_of(self, stratum: int) -> list[str]:
        """Programs that are not proven on the machines of a stratum yet; none where nothing is checked."""
        if self.hooks.prove is None:
            return []
        proofs = {cell.proof for cell in self.cells.values() if cell.kind == "training"}
        known = [event.detail for event in self.store.events() if event.kind == "parity"]
        known = [detail for detail in known if detail.get("stratum", stratum) == stratum]
        same = bool(known) and known[-1]["code"] == self.store.strata()[stratum].get("code")
        if same and all(known[-1]["verdicts"].get(proof) == "pass" for proof in proofs):
            return []
        return sorted(proofs)

    def note_proof(self, station: str, verdicts: Mapping[str, str]) -> None:
        """Store the verdicts; the machines of the stratum can be given blocks, of what failed too, as locally."""
        stratum = self.strata[station]
        detail = {"code": self.store.strata()[stratum].get("code"), "levels": gate.LEVELS, "verdicts": dict(verdicts)}
        self.store.add_event("parity", detail | {"stratum": stratum})
        del self.proving[stratum]
        for each in (station, *self.unproven.pop(stratum, ())):
            self.dispatcher.join(each, stratum)

    def begin_blocks(self) -> None:
        """Give blocks to idle stations, as long as there is time for them."""
        while (drawn := self.dispatcher.draw()) is not None:
            block, station = drawn
            left_s = self.deadline - self.hooks.clock()
            late = not math.isinf(self.deadline) and (
                left_s <= 0 or expected_seconds(self.store, self.study, self.cells, block.slots) > left_s
            )
            if late:
                self.hooks.log("the time is used up")
                self.dispatcher.put_back(station)
                self.dispatcher.waiting.clear()
                self.out_of_time = True
                return
            leases = self.store.lease_slots(owner(), self.lease_s, block.slots)
            if leases:
                self.begin(block, station, leases)
            else:
                # Another program holds it, or has closed it meanwhile.
                self.dispatcher.finish(station)

    def begin(self, block: Block, station: str, leases: list[Lease]) -> None:
        """Let a station run a block; where it runs is stored before."""
        token, self.absent_s = leases[0].fence, None
        self.leases[token], self.tokens[station] = leases, token
        place = {"group": block.group, "block": block.number, "stratum": block.stratum, "station": station}
        self.store.add_event("placed", place)
        for lease in leases:
            self.hooks.started(lease.slot, self.cells[lease.slot.cell])
        self.stations.begin(station, token, job_of(self.study, self.cells, [lease.slot for lease in leases]))

    def store_block(self, station: str, token: int, measured: Measured) -> None:
        """Store the attempts at a block; nothing of it if its lease was lost."""
        leases = self.leases.pop(token)
        finished = attempts_of(leases, measured, noisy_again=False)
        done = {lease.fence for lease, _ in finished}
        try:
            self.store.finish_together(finished, [lease for lease in leases if lease.fence not in done])
        except Fenced as error:
            self.store.add_event("fenced", f"{station}: {error}")
            self.hooks.log(f"{station} came back too late: its block is run by another")
        else:
            self.store_canaries(station, leases, measured)
            for lease, attempt in finished:
                self.hooks.finished(lease.slot, self.cells[lease.slot.cell], attempt)
        if self.tokens.get(station) == token:
            del self.tokens[station]
            slots = [lease.slot for lease in leases]
            whole = len(done) == len(leases) and all(attempt.outcome == "ok" for _, attempt in finished)
            self.dispatcher.finish(station, () if whole else slots)
        else:
            self.dispatcher.join(station, self.strata[station])

    def store_canaries(self, station: str, leases: Sequence[Lease], measured: Measured) -> None:
        """Store the canaries that the station ran around a block, and the seconds that it took for all of it."""
        slot = leases[0].slot
        place = {"group": self.cells[slot.cell].group, "block": slot.block, "stratum": slot.stratum}
        self.store.add_event("returned", place | {"station": station, "busy_s": round(measured.busy_s, 4)})
        for times in measured.canaries:
            self.store.add_canary(place | {"station": station} | dict(times))

    def lose(self, station: str, why: str) -> None:
        """Take the block of a station that ended or is silent back; one that takes too many with it is put aside."""
        token = self.tokens.pop(station, None)
        if token is not None:
            self.store.release(*self.leases[token])
        block = self.dispatcher.leave(station)
        self.store.add_event("lost", {"station": station, "why": why})
        self.hooks.log(f"{station} is lost: {why}")
        stratum = self.strata.get(station)
        if stratum is not None and self.proving.get(stratum) == station:
            del self.proving[stratum]
            for each in self.unproven.pop(stratum, []):
                self.welcome(each, stratum)
        if block is not None:
            place = block.group, block.number, block.stratum
            self.lost[place] += 1
            if self.lost[place] >= MOST_LOST:
                self.dispatcher.waiting[block.stratum].popleft()
                self.incomplete = True
                self.hooks.log(f"block {block.number} of {block.group} is put aside: {MOST_LOST} stations were lost")

    def renew(self) -> None:
        """Extend the leases of stations that live; a station that is silent for the length of a lease is lost."""
        now = self.hooks.clock()
        if now - self.renewed_s < self.renew_s:
            return
        self.renewed_s = now
        alive = []
        for station, token in list(self.tokens.items()):
            if self.stations.silent_s(station) > self.lease_s:
                self.lose(station, f"no sign of life for {self.lease_s:.0f} s")
            else:
                alive += self.leases[token]
        self.store.renew_together(alive, self.lease_s)

    def is_over(self) -> bool:
        """Whether there is nothing to run, or nobody to run it for a while."""
        if not self.strata:
            return False
        if self.out_of_time:
            return True
        if self.dispatcher.strata:
            now = self.hooks.clock()
            self.absent_s = now if self.absent_s is None else self.absent_s
            if now - self.absent_s < self.absence_s:
                return False
            self.hooks.log(
                "blocks are open and the machines that could run them are gone; run again when they are back"
            )
            self.incomplete = True
            return True
        if self.incomplete:
            return True
        left_s = self.deadline - self.hooks.clock() if self.study.budget_s else None
        for stratum in sorted(self.entered):
            if extend_groups(self.store, self.study, stratum, self.hooks.log, left_s):
                self.dispatcher.add(blocks_of(self.store.open_slots(stratum), self.cells))
        return not self.dispatcher.strata
