"""Finds slow-downs: the working tree and a commit take turns in relays, backend by backend, until each is decided."""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchback import stats
from benchback.errors import InputError
from benchback.measure.metrics import run_turns
from benchback.measure.process import Ended, Interrupted
from benchback.measure.record import Cell, Record

MARGIN = 0.01
"""A program counts as slower if it is shown to be slower by more than this: less than this is not worth an alarm."""
LIMIT = 0.03
"""A program counts as sound if it is shown not to be slower by this much."""
ALPHA = 0.05
FEWEST_RELAYS = 4

RunPair = Callable[[Sequence[Cell], int], dict[str, Ended]]
"""(cells in the order of their starts, seed) -> how each ended, by id; the copy (`twin`) is of the commit."""


@dataclass(frozen=True)
class Found:
    """The ratios of one program, now over before, one of each relay, and what follows from them."""

    cell: Cell
    ratios: tuple[float, ...] = ()
    relay_s: float = 0.0
    """Seconds of the last relay."""
    failed: str = ""
    """Why there is no ratio."""
    p: float = 1.0
    """Of no slow-down beyond MARGIN, adjusted by Holm for the number of programs."""

    @property
    def estimate(self) -> stats.Estimate | None:
        """The mean log ratio with its error, once there are two relays."""
        return stats.estimate([math.log(x) for x in self.ratios]) if len(self.ratios) > 1 else None

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the ratio; infinite before there are two relays."""
        return stats.interval(self.estimate) if self.estimate else (0.0, math.inf)

    @property
    def slower(self) -> bool:
        """Whether it is shown to be slower."""
        return self.p < ALPHA

    @property
    def sound(self) -> bool:
        """Whether a slow-down of LIMIT is excluded."""
        return self.interval[1] < 1 + LIMIT

    @property
    def decided(self) -> bool:
        """Whether further relays would tell nothing that matters; a suspect needs more of them to be shown."""
        enough = len(self.ratios) >= FEWEST_RELAYS
        return bool(self.failed) or (enough and (self.slower or self.sound))


@dataclass(frozen=True)
class Hooks:
    """What the measurement needs of its surroundings."""

    run_pair: RunPair
    asked_to_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    progress: Callable[[str, float, float], None] = lambda what, spent_s, budget_s: None
    """(what is done, seconds spent, budget)."""


@dataclass
class Search:
    """Runs relays where they tell most, until everything is decided or the time is used up."""

    cells: Sequence[Cell]
    budget_s: float
    hooks: Hooks
    seed: int = 0
    found: dict[str, Found] = field(default_factory=dict)

    def run(self) -> list[Found]:
        """What is known in the end, in the order of the cells."""
        self.found = {cell.id: Found(cell) for cell in self.cells}
        began = self.hooks.clock()
        while not self.hooks.asked_to_stop():
            spent_s = self.hooks.clock() - began
            following = self.following(self.budget_s - spent_s)
            if following is None:
                break
            relays = len(following.ratios) + 1
            self.hooks.progress(f"{following.cell.variant}, relay {relays}", spent_s, self.budget_s)
            try:
                self.measure(following)
            except Interrupted:
                break
        return list(self.found.values())

    def following(self, left_s: float) -> Found | None:
        """The program to measure next: the one with fewest relays, then the least certain one."""
        able = [x for x in self.found.values() if not x.decided and x.relay_s <= left_s]
        few = [x for x in able if len(x.ratios) < FEWEST_RELAYS]
        if few:
            return min(few, key=lambda x: len(x.ratios))
        return max(able, key=lambda x: x.interval[1] / x.interval[0], default=None)

    def measure(self, known: Found) -> None:
        """Add the ratio of one relay, both sides started in drawn order."""
        now, before = known.cell, replace(known.cell, twin=True)
        self.seed += 1
        order = random.Random(self.seed).sample([now, before], 2)
        began = self.hooks.clock()
        ended = self.hooks.run_pair(order, self.seed)
        known = replace(known, relay_s=self.hooks.clock() - began)
        failures = {id: x for id, x in ended.items() if x.outcome != "ok"}
        if failures:
            side = "now" if now.id in failures else "before"
            (failure,) = failures.values()
            self.found[now.id] = replace(known, failed=f"{side}: {failure.outcome}, {failure.detail}")
            return
        self.add(known, ratio_of(ended, now, before))

    def add(self, known: Found, ratio: float | stats.Missing) -> None:
        """Keep a ratio, if the relay gave one, and adjust all p-values."""
        if isinstance(ratio, float):
            known = replace(known, ratios=(*known.ratios, ratio))
        self.found[known.cell.id] = known
        able = [x for x in self.found.values() if x.estimate]
        p = stats.holm([stats.p_beyond(x.estimate, MARGIN) for x in able if x.estimate]) if able else []
        for each, adjusted in zip(able, p, strict=True):
            self.found[each.cell.id] = replace(each, p=float(adjusted))


def ratio_of(ended: Mapping[str, Ended], now: Cell, before: Cell) -> float | stats.Missing:
    """How many times as long a turn takes now, from the records of one relay."""
    sides = [run_turns(Record.from_dict(ended[cell.id].messages[0]["record"]))["steady"] for cell in (now, before)]
    return stats.relay_ratio(*sides)


def cells_of(backends: Sequence[str]) -> list[Cell]:
    """The programs of the demo in these backends, all by default."""
    from benchback.measure.studies.smoke import STUDY

    found = {str(cell.run["backend"]): cell for cell in STUDY.cells}
    unknown = [name for name in backends if name not in found]
    if unknown:
        raise InputError(f"backend={unknown[0]} has no program here; choose among {', '.join(found)}")
    return [found[name] for name in dict.fromkeys(backends)] or list(found.values())
