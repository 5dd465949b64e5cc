"""From a study to a schedule: which run comes when, how long it will take, and when there are enough.

The schedule is a function of study and seed, so that it can be stored before the first run and continued by anyone.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchback import stats
from benchback.errors import InputError
from benchback.measure.cost import relay_seconds, seconds_per_run
from benchback.measure.record import Cell, Slot
from benchback.measure.study import Study

SEED_STEP = 0x9E3779B1
"""Step between seeds: odd, so multiples are distinct modulo 2**32; near 2**32 / golden ratio, so they are far apart."""


def schedule(study: Study, seed: int) -> tuple[list[Cell], list[Slot]]:
    """The cells of a campaign and its runs in order.

    protocol: a block is one run of every variant of a group, back to back, in a random order that the next block
    reverses; blocks of different groups are shuffled, those of one group keep their order, and groups that the study
    wants last come after all others. One group also has the
    A/A twin of its cheapest cell. original: the published list from first to last, `repeats` times, without a twin;
    entry i of the list has the slots whose order is i modulo its length.
    """
    if seed < 0:
        raise InputError(f"seed={seed} must not be negative")
    if study.order == "original":
        return list(study.cells), list(_original(study, seed))
    cells = [*study.cells]
    if study.aa:
        cells.append(replace(min(cells, key=seconds_per_run), twin=True))
    groups = list(dict.fromkeys(cell.group for cell in cells))
    turns = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(groups)), study.min_blocks))
    members: dict[str, list[Cell]] = {group: [] for group in groups}
    for cell in cells:
        members[cell.group].append(cell)
    slots: list[Slot] = []
    done: Counter[str] = Counter()
    for group in sorted((groups[turn] for turn in turns), key=study.last.__contains__):
        slots += _block(members[group], group, done[group], seed, len(slots))
        done[group] += 1
    return cells, slots


def extend(
    cells: Sequence[Cell], slots: Sequence[Slot], group: str, blocks: int, seed: int, stratum: int = 0
) -> list[Slot]:
    """`blocks` more blocks of one group, to be run after all of `slots`; equal to those of a longer schedule.

    A stratum in which the group has no blocks yet starts from block 0.
    """
    members = {cell.id for cell in cells if cell.group == group}
    if not members:
        raise ValueError(f"no cell belongs to group {group}")
    first = 1 + max((s.block for s in slots if s.cell in members and s.stratum == stratum), default=-1)
    order = 1 + max((s.order for s in slots), default=-1)
    more: list[Slot] = []
    for block in range(first, first + blocks):
        more += _block(cells, group, block, seed, order + len(more), stratum)
    return more


def again(study: Study, slots: Sequence[Slot], seed: int, stratum: int) -> list[Slot]:
    """The whole schedule again for a new stratum, in the study's own order, to be run after all of `slots`."""
    order = 1 + max((s.order for s in slots), default=-1)
    return [replace(slot, order=order + slot.order, stratum=stratum) for slot in schedule(study, seed)[1]]


def block_seed(seed: int, block: int) -> int:
    """The seed that all variants of a block share: distinct for every block number of a campaign."""
    start = int(np.random.default_rng([seed, 1]).integers(2**32))
    return (start + block * SEED_STEP) % 2**32


def _block(cells: Sequence[Cell], group: str, block: int, seed: int, order: int, stratum: int = 0) -> list[Slot]:
    """One block; its order depends only on the arguments, and an odd block reverses the even one before it."""
    members = [cell.id for cell in cells if cell.group == group]
    turn = [members[i] for i in np.random.default_rng([seed, int(group, 16), block // 2]).permutation(len(members))]
    if block % 2:
        turn.reverse()
    shared = block_seed(seed, block)
    return [Slot(cell, block, shared, order + i, stratum) for i, cell in enumerate(turn)]


def _original(study: Study, seed: int) -> Iterator[Slot]:
    """The list as published. A cell that it holds twice has two blocks in each pass."""
    done: Counter[str] = Counter()
    for order, entry in enumerate(study.entries * study.repeats):
        block = done[entry.cell.id]
        done[entry.cell.id] += 1
        yield Slot(entry.cell.id, block, block_seed(seed, block), order)


def minimum_detectable_effect(n: int, cv: float) -> float:
    """The smallest relative difference that n blocks find 8 times in 10, where runs vary by `cv` (0.01 for 1 %).

    The log ratio of two independent runs varies by sqrt(2) cv. NaN for one block.
    """
    return stats.minimum_detectable_effect(math.sqrt(2) * cv, n)


TYPICAL_CV = 0.01
"""Spread between runs assumed before any is measured; earlier work on a quiet machine saw 0.0022 (median) to 0.012
(90th percentile)."""


CANARY_S = 1.0
"""Seconds of the two canaries of a block."""
MODEL_ERROR = 2.0
"""Factor by which the cost model may be off, either way."""
RUN_BYTES = 6_000
"""Bytes of a stored run without its samples."""
CALL_BYTES = 350
"""Bytes of the samples of one call of the program."""
LOG_BYTES = 64 * 1024


@dataclass(frozen=True)
class Cost:
    """Cost of a campaign: with the fewest blocks, and if every group needs the most."""

    runs: int
    seconds: float
    low_s: float
    high_s: float
    bytes: int
    most_runs: int
    most_seconds: float
    most_bytes: int
    """Bytes with a full log for every run."""
    measured: int
    """Cells whose time was measured before; those of the others come from a model good to a factor of two."""


def estimate(study: Study, measured: Mapping[str, Sequence[float]] | None = None) -> Cost:
    """Time and disk of a campaign; `measured` has the seconds that earlier runs of a cell took, by cell id.

    Groups that the study wants last are counted only if the budget, where there is one, has room for them.
    """
    cells, slots = schedule(study, 0)
    found = _estimate(study, cells, slots, measured or {})
    if not study.last or found.seconds <= (study.budget_s or math.inf):
        return found
    cells = [cell for cell in cells if cell.group not in study.last]
    kept = {cell.id for cell in cells}
    return _estimate(study, cells, [slot for slot in slots if slot.cell in kept], measured or {})


def _estimate(
    study: Study, cells: Sequence[Cell], slots: Sequence[Slot], measured: Mapping[str, Sequence[float]]
) -> Cost:
    by_id = {cell.id: cell for cell in cells}
    variants = Counter(cell.group for cell in cells)
    blocks = len({(by_id[slot.cell].group, slot.block) for slot in slots})
    canary_s = CANARY_S * blocks if study.order == "protocol" else 0.0
    runs = Counter(slot.cell for slot in slots)

    def spread(slot: Slot) -> tuple[float, float, float]:
        cell = by_id[slot.cell]
        earlier = measured.get(cell.id, ())
        if len(earlier):
            return min(earlier), statistics.median(earlier), max(earlier)
        seconds = (
            relay_seconds(cell, study, variants[cell.group], slot.block) if study.relays else seconds_per_run(cell)
        )
        return seconds / MODEL_ERROR, seconds, seconds * MODEL_ERROR

    low_s, seconds, high_s = (canary_s + sum(x) for x in zip(*map(spread, slots), strict=True))
    stored = sum(runs[cell.id] * _bytes(cell) for cell in cells)
    growth = study.max_blocks / study.min_blocks if study.order == "protocol" else 1.0
    most_runs = round(len(slots) * growth)
    return Cost(
        runs=len(slots),
        seconds=seconds,
        low_s=low_s,
        high_s=high_s,
        bytes=stored,
        most_runs=most_runs,
        most_seconds=min(seconds * growth, study.budget_s or math.inf),
        most_bytes=round(stored * growth) + most_runs * LOG_BYTES,
        measured=sum(1 for cell in cells if measured.get(cell.id)),
    )


def _bytes(cell: Cell) -> int:
    length = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
    return RUN_BYTES + CALL_BYTES * (cell.run["num_iterations"] // length)
