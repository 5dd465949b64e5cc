"""Which block goes to which machine: decisions without a clock, a store or a process, for clusters and for plans.

A block is run on one machine as a whole. Machines with the same fingerprint share the blocks of a stratum, which are
begun in the order of the schedule; which of the machines that are free gets a block is drawn by the seed.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from benchback.measure.record import Cell, Slot


@dataclass(frozen=True)
class Block:
    """Slots that are run together."""

    group: str
    number: int
    stratum: int
    slots: tuple[Slot, ...]
    """Those that are open, in the order of the schedule."""


def blocks_of(slots: Iterable[Slot], cells: Mapping[str, Cell]) -> Iterator[Block]:
    """Open slots, in the order of the schedule, as blocks: the slots of a block are neighbours."""
    for place, members in groupby(slots, key=lambda slot: (cells[slot.cell].group, slot.block, slot.stratum)):
        yield Block(*place, tuple(members))


@dataclass
class Dispatcher:
    """Blocks that wait, stations that are idle, and who runs what. A station holds one machine."""

    seed: int
    waiting: dict[int, deque[Block]] = field(default_factory=lambda: defaultdict(deque))
    """Stratum -> blocks that nobody runs, the next first."""
    idle: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Stratum -> stations without a block."""
    running: dict[str, Block] = field(default_factory=dict)
    """Station -> its block."""

    def add(self, blocks: Iterable[Block]) -> None:
        """Blocks to be run after those that wait."""
        for block in blocks:
            self.waiting[block.stratum].append(block)

    def join(self, station: str, stratum: int) -> None:
        """A station that has nothing to do."""
        self.idle[stratum].append(station)
        # The draw must not depend on the order in which stations become free.
        self.idle[stratum].sort()

    def leave(self, station: str) -> Block | None:
        """Forget a station; the block that it ran, which is the next to be run."""
        for stations in self.idle.values():
            if station in stations:
                stations.remove(station)
        block = self.running.pop(station, None)
        if block is not None:
            self.waiting[block.stratum].appendleft(block)
        return block

    def finish(self, station: str, open_slots: Iterable[Slot] = ()) -> None:
        """The station is idle again; what of its block is still open is the next to be run."""
        block = self.running.pop(station)
        rest = tuple(open_slots)
        if rest:
            self.waiting[block.stratum].appendleft(replace(block, slots=rest))
        self.join(station, block.stratum)

    def draw(self) -> tuple[Block, str] | None:
        """The next block and the station that gets it, which is running it from now on; None if nothing can begin."""
        for stratum, blocks in self.waiting.items():
            free = self.idle[stratum]
            if blocks and free:
                block = blocks.popleft()
                place = np.random.default_rng([self.seed, 2, block.slots[0].order]).integers(len(free))
                station = free.pop(int(place))
                self.running[station] = block
                return block, station
        return None

    def put_back(self, station: str) -> None:
        """Undo a draw: the block waits as before."""
        block = self.running.pop(station)
        self.waiting[block.stratum].appendleft(block)
        self.join(station, block.stratum)

    @property
    def strata(self) -> set[int]:
        """Strata of which blocks wait."""
        return {stratum for stratum, blocks in self.waiting.items() if blocks}
