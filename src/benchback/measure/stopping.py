"""When a campaign has enough blocks: pairs that are not precise enough get more, while there is time."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from benchback import stats
from benchback.measure import plan
from benchback.measure.cost import relay_seconds
from benchback.measure.metrics import Timed, comparable, ratio
from benchback.measure.record import Cell, Slot
from benchback.measure.results import block_times
from benchback.measure.store import Store
from benchback.measure.study import Study

BLOCKS_AT_ONCE = 2
"""Blocks of whole runs that are added at once: an even number keeps orders balanced with their reverse."""


@dataclass(frozen=True)
class OpenGroup:
    """A group with pairs that are not known well enough."""

    group: str
    pairs: int
    half_width: float
    """Of the widest interval, as a log ratio; infinite where there is none yet."""


def lengthen(store: Store, study: Study, stratum: int) -> None:
    """Append the blocks that the study asks for now beyond those it was begun with."""
    if study.order != "protocol":
        return
    cells, slots, seed = list(store.cells().values()), store.slots(), store.campaign()["seed"]
    added: list[Slot] = []
    for group, blocks in blocks_by_group(cells, slots, stratum).items():
        if blocks < study.min_blocks:
            added += plan.extend(cells, [*slots, *added], group, study.min_blocks - blocks, seed, stratum)
    with suppress(ValueError):  # another coordinator was faster; what it added will be found open
        store.add_slots(added)


def blocks_by_group(cells: Iterable[Cell], slots: Iterable[Slot], stratum: int) -> dict[str, int]:
    """Group -> how many of its blocks are scheduled in a stratum."""
    groups = {cell.id: cell.group for cell in cells}
    found = dict.fromkeys(groups.values(), 0)
    for slot in slots:
        if slot.stratum == stratum:
            found[groups[slot.cell]] = max(found[groups[slot.cell]], 1 + slot.block)
    return found


def extend_groups(
    store: Store, study: Study, stratum: int, log: Callable[[str], None], left_s: float | None = None
) -> bool:
    """Append blocks to groups whose ratios are not known well enough; whether there is more to run.

    With `left_s` seconds left only the group with the widest interval gets a block, if one of its blocks fits.
    """
    if study.order != "protocol" or study.max_blocks == study.min_blocks:
        return False
    cells, slots = store.cells(), store.slots()
    counts = store.progress(stratum)
    if counts.open or counts.running:
        return True  # another coordinator has extended them meanwhile: run those blocks first
    at_once = 1 if study.relays else BLOCKS_AT_ONCE
    room = {
        group: min(at_once, study.max_blocks - blocks)
        for group, blocks in blocks_by_group(cells.values(), slots, stratum).items()
    }
    found = [group for group in open_groups(store, study.precision, stratum) if room[group.group] > 0]
    if left_s is not None:
        spent_s = block_seconds(store, study, stratum)
        fitting = [x for x in found if spent_s.get(x.group, 0.0) * room[x.group] <= left_s]
        found = sorted(fitting, key=lambda x: -x.half_width)[:1]
    added: list[Slot] = []
    for x in found:
        seed = store.campaign()["seed"]
        added += plan.extend(list(cells.values()), [*slots, *added], x.group, room[x.group], seed, stratum)
    if not added:
        return False
    with suppress(ValueError):  # another coordinator was faster; what it added will be found open
        store.add_slots(added)
        for x in found:
            blocks = room[x.group]
            store.add_event("extended", {"group": x.group, "blocks": blocks, "undecided": x.pairs})
            more = f"{blocks} more block{'s' if blocks > 1 else ''}"
            log(f"{x.pairs} comparison{'s are' if x.pairs > 1 else ' is'} not precise enough: {more}")
    return True


def open_groups(store: Store, precision: float, stratum: int) -> list[OpenGroup]:
    """Groups with pairs whose 95 % interval is wider than the precision on either side, in order of mention."""
    times, found = block_times(store, stratum), []
    members: dict[str, list[str]] = {}
    for cell in store.cells().values():
        members.setdefault(cell.group, []).append(cell.id)
    for group, ids in members.items():
        widths = [half_width(ratios) for ratios in pair_ratios(times, ids).values()]
        wide = [width for width in widths if not width <= precision]
        if wide:
            found.append(OpenGroup(group, len(wide), max(wide)))
    return found


def pair_ratios(times: Mapping[str, Mapping[int, Timed]], members: Sequence[str]) -> dict[tuple[str, str], list[float]]:
    """The log ratios of every pair of cells that ran at all, in the blocks that all of those completed.

    Relays that ran in pairs with the reference give no ratio of two others; such pairs are left out.
    """
    ran = [cell for cell in members if times.get(cell)]
    common = sorted(set.intersection(*(set(times[cell]) for cell in ran))) if ran else []
    found: dict[tuple[str, str], list[float]] = {}
    for a, b in combinations(ran, 2):
        if common and not any(comparable(times[a][block], times[b][block]) for block in common):
            continue
        ratios = (ratio(times[a][block], times[b][block]) for block in common)
        found[a, b] = [math.log(x) for x in ratios if x is not None]
    return found


def half_width(log_ratios: Sequence[float]) -> float:
    """Half the width of the 95 % interval (paired t) of one pair's log ratio; infinite for fewer than two blocks."""
    if len(log_ratios) < 2:
        return math.inf
    low, high = stats.interval(stats.estimate(log_ratios))
    return math.log(high / low) / 2


def block_seconds(store: Store, study: Study, stratum: int) -> dict[str, float]:
    """Group -> seconds that another of its blocks takes: as long as its longest, not counting the first.

    That one may have compiled for all: where there is no other yet, it counts as far as the model says that later
    ones take as long.
    """
    cells = store.cells()
    blocks: dict[tuple[str, int], float] = {}
    slots = {slot.id: slot for slot in store.slots() if slot.stratum == stratum}
    for attempt in store.attempts():
        if attempt.slot in slots:
            slot = slots[attempt.slot]
            place = cells[slot.cell].group, slot.block
            blocks[place] = blocks.get(place, 0.0) + attempt.duration_s
    found: dict[str, dict[int, float]] = {}
    for (group, block), seconds in blocks.items():
        found.setdefault(group, {})[block] = seconds
    members = {group: [cell for cell in cells.values() if cell.group == group] for group in found}
    return {
        group: max([s for block, s in x.items() if block] or [_later_share(members[group], study) * max(x.values())])
        for group, x in found.items()
    }


def _later_share(cells: Sequence[Cell], study: Study) -> float:
    """Seconds of a later block relative to the first: less where programs are kept."""
    if not (study.relays and study.keep_caches):
        return 1.0
    first_s, later_s = (sum(relay_seconds(cell, study, len(cells), block) for cell in cells) for block in (0, 1))
    return later_s / first_s
