"""Many agents in one program: what they cost together, each, and against as many trainings of one agent.

The time of N agents is that of one iteration of all of them; a whole training is predicted from it and from the start.
Sizes are not measured in the same rounds, so they are compared by Welch's t of their blocks, adjusted for their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from benchback import stats
from benchback.analysis.claims import unproven
from benchback.analysis.source import SlotRun, Source
from benchback.analysis.summary import compile_s, median
from benchback.analysis.table import by_cell, frame, keys
from benchback.analysis.wording import backend_name, comparison_text, even_text
from benchback.measure.record import Cell
from benchback.stats import Comparison, Measured, Together

TOGETHER, AFTER, BESIDE = "in one program", "one after another", "side by side on all cores (ideal)"
"""How N agents can be trained; the second and third are computed from one agent alone."""


@dataclass(frozen=True)
class Size:
    """A variant with so many agents: medians over blocks."""

    cell: Cell
    blocks: tuple[float, ...]
    """Seconds of an iteration of all agents."""
    start_s: float | None
    """Until the end of the first call; None where no block compiled its programs."""
    compile_s: float | None
    peak_bytes: float
    """Of processes that compiled their programs, if there is one."""

    @property
    def agents(self) -> int:
        """In one program."""
        return self.cell.members

    @property
    def steady_s(self) -> float:
        """Of an iteration of all agents."""
        return float(np.median(self.blocks))

    @property
    def each_s(self) -> float:
        """Of an iteration, per agent."""
        return self.steady_s / self.agents

    @property
    def steps_per_s(self) -> float:
        """Environment steps of all agents."""
        return steps_of(self.cell) / self.each_s

    @property
    def total_s(self) -> float | None:
        """Of the whole training of all agents, from the start of the process."""
        iterations, first = self.cell.run["num_iterations"], _length(self.cell)
        return None if self.start_s is None else self.start_s + (iterations - first) * self.steady_s


@dataclass(frozen=True)
class Curve:
    """A variant by its number of agents."""

    sizes: Mapping[int, Size]
    """In ascending order."""

    @property
    def cell(self) -> Cell:
        """Its cell with the fewest agents."""
        return next(iter(self.sizes.values())).cell

    @property
    def alone(self) -> Size | None:
        """One agent."""
        return self.sizes.get(1)

    @property
    def several(self) -> list[Size]:
        """More than one agent."""
        return [size for agents, size in self.sizes.items() if agents > 1]

    @property
    def best(self) -> Size:
        """The number of agents at which each costs least."""
        return min(self.sizes.values(), key=lambda size: size.each_s)

    @property
    def totals(self) -> dict[int, float]:
        """Agents -> seconds of the whole training, where they are known."""
        return {agents: size.total_s for agents, size in self.sizes.items() if size.total_s is not None}


@dataclass(frozen=True)
class SizeClaim:
    """N agents in one program against N trainings of the same variant, one agent each, one after another."""

    size: Size
    overall: Comparison
    """How many times as long an iteration takes, start and compilation left out; or why it is not known."""


@dataclass(frozen=True)
class EvenClaim:
    """From how many agents on one program is done before as many trainings of another variant, start included."""

    subject: Cell
    rival: Cell
    after: Together
    """Against one training after another."""
    beside: Together
    """Against as many at once as there are processors, if these do not slow each other."""


@dataclass(frozen=True)
class Work:
    """Everything about one work with several numbers of agents."""

    curves: tuple[Curve, ...]
    processors: int
    """Trainings that can run at the same time."""
    parity: Mapping[str, str]

    @cached_property
    def claims(self) -> tuple[SizeClaim, ...]:
        """Every size beyond one agent against the same variant alone; all are one family of comparisons."""
        pairs = [(curve.alone, size) for curve in self.curves if curve.alone for size in curve.several]
        rows = stats.adjust([self._compared(alone, size) for alone, size in pairs])
        return tuple(SizeClaim(size, row) for (_, size), row in zip(pairs, rows, strict=True))

    def _compared(self, alone: Size, size: Size) -> Comparison:
        refused = unproven(size.cell, self.parity) or unproven(alone.cell, self.parity)
        ours: list[Measured] = [refused or seconds / size.agents for seconds in size.blocks]
        return stats.compare_unpaired(size.cell.name, ours, list(alone.blocks))

    @cached_property
    def even(self) -> tuple[EvenClaim, ...]:
        """Every variant with several agents against every variant alone."""
        found = []
        for curve in (curve for curve in self.curves if curve.several and curve.totals):
            for rival in self.alone:
                seconds = rival.total_s
                assert seconds is not None
                # One agent of its own variant is the same program.
                least = 2 if rival.cell.variant == curve.cell.variant else 1
                after, beside = (
                    stats.together_break_even(curve.totals, seconds, at_once, least) for at_once in (1, self.processors)
                )
                found.append(EvenClaim(curve.cell, rival.cell, after, beside))
        return tuple(found)

    @cached_property
    def alone(self) -> list[Size]:
        """One agent in every variant whose whole training is known."""
        return [curve.alone for curve in self.curves if curve.alone and curve.alone.total_s is not None]

    @property
    def best(self) -> Curve:
        """The variant whose agents cost least, at the best number of them."""
        return min((curve for curve in self.curves if curve.several), key=lambda curve: curve.best.each_s)

    @property
    def fastest_alone(self) -> Size | None:
        """The shortest whole training of one agent."""
        return min(self.alone, key=lambda size: size.total_s or np.inf, default=None)


def works(source: Source) -> list[Work]:
    """Every work that was measured with several agents, in order of mention; none where there is none."""
    found: dict[str, dict[str, dict[int, Size]]] = {}
    for cell, runs in by_cell(source):
        if (size := _size(cell, runs)) is not None:
            place = found.setdefault(replace(cell, members=1, vary={}).group, {})
            place.setdefault(cell.variant, {})[cell.members] = size
    made = []
    for variants in found.values():
        if any(agents > 1 for sizes in variants.values() for agents in sizes):
            curves = tuple(Curve(dict(sorted(sizes.items()))) for sizes in variants.values())
            made.append(Work(curves, _processors(source, curves[0].cell), source.parity))
    return made


def _processors(source: Source, cell: Cell) -> int:
    machine = source.strata[-1] if source.strata else {}
    known = machine.get("cpus_allowed", machine.get("cpus")) or 1
    return max(1, int(known) // cell.threads)


def _size(cell: Cell, runs: Sequence[SlotRun]) -> Size | None:
    """What is known of a cell; None where no block has a steady time."""
    outcomes = [run.outcome for run in runs]
    blocks = tuple(x for outcome in outcomes if isinstance(x := outcome.metrics["steady"], float))
    if not blocks:
        return None
    start_s = median(outcome.metrics["cold_start"] for outcome in outcomes)
    sampled = [run.sampled for run in runs if run.sampled]
    # Compiling takes more memory than loading: sizes are compared as far as possible where both compiled.
    compiled = [each for each in sampled if not each.ledger.get("cached_files_before")] or sampled
    peak_bytes = float(np.median([each.peaks["peak_rss_bytes"] for each in compiled]))
    return Size(cell, blocks, start_s, compile_s(cell, outcomes, float(np.median(blocks))), peak_bytes)


def steps_of(cell: Cell) -> int:
    """Environment steps of an agent in an iteration."""
    return cell.run["num_envs"] * cell.run["num_steps"]


def _length(cell: Cell) -> int:
    return cell.run["chunk"] if cell.run["unit"] == "chunk" else 1


def many_table(source: Source) -> pl.DataFrame:
    """Seconds and steps by the number of agents: as measured, and as of one agent alone, repeated."""
    rows = []
    for work in works(source):
        counts = sorted({agents for curve in work.curves for agents in curve.sizes})
        for curve in work.curves:
            if curve.several:
                rows += [_measured(size) for size in curve.sizes.values()]
            elif curve.alone:
                rows += [_repeated(curve.alone, AFTER, count, 1) for count in counts]
        if fastest := work.fastest_alone:
            for kind, at_once in ((AFTER, 1), (BESIDE, work.processors)):
                rows += [_repeated(fastest, kind, count, at_once) for count in counts]
    return frame(rows)


def _keys(cell: Cell) -> dict[str, Any]:
    """The columns of every table but the number of agents, which is an axis here and must not be filtered by."""
    return {name: x for name, x in keys(cell).items() if name != "agents"}


def _measured(size: Size) -> dict[str, Any]:
    row = _keys(size.cell) | {"kind": TOGETHER, "count": size.agents, "total_s": size.total_s}
    row |= {"steady_s": size.steady_s, "low_s": min(size.blocks), "high_s": max(size.blocks)}
    return row | {"steps_per_s": size.steps_per_s, "blocks": len(size.blocks)}


def _repeated(alone: Size, kind: str, count: int, at_once: int) -> dict[str, Any]:
    """So many trainings of one agent, of which some run at once and do not slow each other."""
    times = -(-count // at_once)
    steady_s = times * alone.steady_s
    row = _keys(alone.cell) | {"kind": kind, "count": count}
    row |= {"total_s": None if alone.total_s is None else times * alone.total_s, "steady_s": steady_s}
    row |= {"low_s": None, "high_s": None, "steps_per_s": count * steps_of(alone.cell) / steady_s}
    return row | {"blocks": len(alone.blocks)}


def agents_table(source: Source) -> pl.DataFrame:
    """What an agent costs, a row per variant and number of agents."""
    rows = []
    for work in works(source):
        said = {claim.size.cell.id: claim.overall for claim in work.claims}
        for curve in work.curves:
            rows += [_cost_row(curve.alone, size, said.get(size.cell.id)) for size in curve.sizes.values()]
    return frame(sorted(rows, key=lambda row: row["count"]))


def _cost_row(alone: Size | None, size: Size, against: Comparison | None) -> dict[str, Any]:
    row = _keys(size.cell) | {"count": size.agents, "each_ms": 1e3 * size.each_s, "steps_per_s": size.steps_per_s}
    row |= {"ratio": against.ratio if against else None, "said": comparison_text(against) if against else ""}
    added = stats.per_added_agent(alone.peak_bytes, size.peak_bytes, size.agents) if alone else np.nan
    # What is not more than with one agent vanishes beside the rest of the process, and says nothing.
    row |= {"peak_mb": size.peak_bytes / 1e6, "added_kb": added / 1e3 if added > 0 else None}
    row |= {"compile_s": size.compile_s, "start_s": size.start_s, "total_s": size.total_s}
    return row | {"blocks": len(size.blocks)}


def even_table(source: Source) -> pl.DataFrame:
    """From how many agents on one program is done first, a row per pair of variants."""
    return frame([_even_row(claim) for work in works(source) for claim in work.even])


def _even_row(claim: EvenClaim) -> dict[str, Any]:
    row = _keys(claim.subject) | {"other": claim.rival.variant, "rival": backend_name(claim.rival.run["backend"])}
    row |= {"after": claim.after.agents, "beside": claim.beside.agents, "most": claim.after.most}
    return row | {"after_text": even_text(claim.after), "beside_text": even_text(claim.beside)}
