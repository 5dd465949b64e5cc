"""`benchback plan`: what a study would run, in which order, and what it would take."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from benchback.cli.arguments import parse_named, seconds_of
from benchback.cli.tables import hours, table
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure import study as studies
from benchback.measure.plan import TYPICAL_CV, Cost, estimate, minimum_detectable_effect, schedule
from benchback.measure.record import Cell, Slot
from benchback.measure.study import Study

NOTICEABLE = 1.1
"""A slowdown by other programs from which on the plan says so."""
FEWEST_BLOCKS = 3
"""Blocks of every group that a budget asks for before it adds some where they are needed most."""
MOST_BLOCKS = 30


@dataclass(frozen=True)
class PlanFlags:
    """Show what a study would run: configurations, runs in order, time, disk, and the smallest effect it can find."""

    scale: float = 1.0
    """Factor on the number of iterations: a quick look, marked as not comparable."""
    index: int | None = None
    """Only the configuration with this index."""
    start: Annotated[int | None, tyro.conf.arg(name="from")] = None
    """Only configurations from this index on."""
    count: int | None = None
    """At most this many configurations."""
    order: Literal["protocol", "original"] | None = None
    """protocol: interleaved blocks; original: one after another as published."""
    repeats: int | None = None
    """Passes in the original order."""
    blocks: int | None = None
    """Blocks of every group, neither fewer nor more; by default as the study says."""
    protocol: Literal["relay", "runs"] | None = None
    """relay: the variants of a block take turns in resident processes; runs: whole trainings one after another."""
    budget: str | None = None
    """Time for the campaign, e.g. 90s, 5m or 1h: at least 3 blocks if they fit, then more where it is least precise."""
    seed: int | None = None
    """Seed of the schedule and of the runs; 0 unless given. A campaign keeps the one it was begun with."""
    json: bool = False
    """Print JSON."""


def chosen_study(arguments: list[str], verb: str, flags_type: type) -> tuple[Any, Any]:
    """The study of the first argument, modified by the flags, and the flags."""
    what = f"a study: {', '.join(studies.names())}, or a YAML file"
    name, flags = parse_named(flags_type, arguments, verb, "STUDY", what)
    chosen = studies.select(studies.load(name), flags.index, flags.start, flags.count)
    if flags.scale != 1.0:
        chosen = studies.scaled(chosen, flags.scale)
    given = {name: getattr(flags, name) for name in ("order", "repeats", "protocol")}
    changes: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
    if flags.blocks is not None:
        changes |= {"min_blocks": flags.blocks, "max_blocks": flags.blocks}
    if flags.budget is not None:
        changes |= within(chosen, flags)
    changed = replace(chosen, **changes)
    if flags.protocol == "relay" and not changed.relays:
        raise InputError(f"--protocol relay has no effect in the order {changed.order}; add --order protocol")
    return changed, flags


def within(study: Study, flags: PlanFlags) -> dict[str, Any]:
    """The fields of a study that make it keep to the budget."""
    if flags.blocks is not None:
        raise InputError("--budget chooses the number of blocks; leave out --blocks, or --budget")
    return {
        "budget_s": seconds_of(flags.budget or ""),
        "min_blocks": min(study.min_blocks, FEWEST_BLOCKS),
        "max_blocks": MOST_BLOCKS,
    }


def plan(arguments: list[str]) -> int:
    study, flags = chosen_study(arguments, "plan", PlanFlags)
    print_plan(study, *schedule(study, flags.seed or 0), estimate(study), flags.json)
    return 0


def print_plan(study: Study, cells: Sequence[Cell], slots: Sequence[Slot], cost: Cost, as_json: bool) -> None:
    """Print the configurations in published order, and their cost."""
    paired = study.order == "protocol" and study.min_blocks > 1
    effect = minimum_detectable_effect(study.min_blocks, TYPICAL_CV) if paired else None
    busy = machine.slowdown(study.threads)
    if as_json:
        entries = [asdict(entry) | {"cell_id": entry.cell.id} for entry in study.entries]
        found = {"study": study.name, "comparable": study.comparable, "order": study.order, "entries": entries}
        found |= {"protocol": "relay" if study.relays else "runs", "budget_s": study.budget_s}
        found |= {"schedule": [asdict(slot) | {"id": slot.id} for slot in slots], "estimate": asdict(cost)}
        found |= {"seconds_as_busy_as_now": cost.seconds * busy}
        print(json.dumps(found | {"minimum_detectable_effect": effect}, indent=2))
        return
    rows = [
        (str(e.index), e.label, e.cell.run["env"], e.cell.name, e.cell.run["model"], e.cell.timing)
        for e in study.entries
    ]
    Console().print(table(study.name, ("index", "label", "env", "variant", "model", "timing"), rows))
    print(f"{len(study.entries)} configurations, {len(cells)} cells, {cost.runs} runs (at most {cost.most_runs})")
    spread = f"between {hours(cost.low_s)} and {hours(cost.high_s)}"
    print(f"about {hours(cost.seconds)} ({spread}; at most {hours(cost.most_seconds)} if every group needs all blocks)")
    if busy > NOTICEABLE:
        print(f"about {hours(cost.seconds * busy)} if other programs stay as busy as now")
    how = f"order {study.order}, {'relays' if study.relays else 'whole runs'}"
    print(f"about {cost.bytes / 1e6:.1f} MB, {how}" + ("" if study.comparable else ", not comparable"))
    if effect is not None:
        print(f"smallest effect {study.min_blocks} blocks find: {effect:.1%}, where runs vary by {TYPICAL_CV:.0%}")
