"""`benchback plan`: what a study would run, in which order, and what it would take."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from benchback.analysis.groups import model_of
from benchback.cli.arguments import Imports, parse_named, tell_notes
from benchback.cli.tables import hours, short_envs, table
from benchback.errors import InputError
from benchback.measure import budget, machine
from benchback.measure import study as studies
from benchback.measure.plan import TYPICAL_CV, Cost, estimate, minimum_detectable_effect, schedule
from benchback.measure.record import Cell, Slot
from benchback.measure.study import Study

if TYPE_CHECKING:
    from benchback.measure.virtual import Outlook

MOST_MACHINES = 10_000
NOTICEABLE = 1.1
"""A slowdown by other programs from which on the plan says so."""


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
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class PlanVerbFlags(PlanFlags):
    """Show what a study would run: configurations, runs in order, time, disk, and the smallest effect it can find."""

    machines: str | None = None
    """Also what it would take on so many equal machines, e.g. 1,4,16,64: the cluster's scheduler in virtual time."""
    measured: Path | None = None
    """Store from which `--machines` takes the seconds of cells that it has; a rough model by default."""


def chosen_study(arguments: list[str], verb: str, flags_type: type) -> tuple[Any, Any]:
    """The study of the first argument, modified by the flags, and the flags."""
    what = f"a study: {', '.join(studies.names())}, or a YAML file"
    name, flags = parse_named(flags_type, arguments, verb, "STUDY", what)
    chosen = studies.select(studies.load(name), flags.index, flags.start, flags.count)
    if flags.scale != 1.0:
        chosen = studies.scaled(chosen, flags.scale)
    if flags.import_:
        chosen = studies.importing(chosen, flags.import_)
    if chosen.kind == "training":
        tell_notes(*(entry.cell.run["env"] for entry in chosen.entries))
    given = {name: getattr(flags, name) for name in ("order", "repeats", "protocol")}
    changes: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
    if flags.blocks is not None:
        changes |= {"min_blocks": flags.blocks, "max_blocks": flags.blocks}
    if flags.budget is not None:
        chosen = within(chosen, flags)
    changed = replace(chosen, **changes)
    if flags.protocol == "relay" and not changed.relays:
        raise InputError(f"--protocol relay has no effect in the order {changed.order}; add --order protocol")
    return changed, flags


def within(study: Study, flags: PlanFlags) -> Study:
    """The study with as many blocks as fit in the budget of the flags."""
    if flags.blocks is not None:
        raise InputError("--budget chooses the number of blocks; leave out --blocks, or --budget")
    return budget.within(study, budget.seconds_of(flags.budget or ""))


def plan(arguments: list[str]) -> int:
    study, flags = chosen_study(arguments, "plan", PlanVerbFlags)
    outlooks = outlooks_of(study, flags)
    print_plan(study, *schedule(study, flags.seed or 0), estimate(study), flags.json, outlooks)
    return 0


def outlooks_of(study: Study, flags: PlanVerbFlags) -> "list[Outlook]":
    """What the study would take on each number of machines that the flags name."""
    if flags.machines is None:
        return []
    counts = machine_counts(flags.machines)
    if not study.relays:
        raise InputError("--machines plans relays, and this study has none; add --order protocol --protocol relay")
    from benchback.analysis.reader import stored_attempts
    from benchback.measure.store import open_store
    from benchback.measure.virtual import expected, foresee

    took: dict[str, list[float]] = {}
    if flags.measured is not None:
        with open_store(flags.measured, readonly=True) as store:
            for slot, _, attempt in stored_attempts(store):
                if attempt.outcome == "ok":
                    took.setdefault(slot.cell, []).append(attempt.duration_s)
    seconds = expected(study, took)
    return [foresee(study, count, seconds, flags.seed or 0) for count in counts]


def machine_counts(given: str) -> list[int]:
    """`1,4,16` as numbers."""
    parts = given.split(",")
    if not all(part.isdecimal() and 0 < int(part) <= MOST_MACHINES for part in parts):
        raise InputError(f"--machines {given[:40]} must be numbers from 1 to {MOST_MACHINES}, e.g. 1,4,16")
    return [int(part) for part in parts]


def print_outlooks(outlooks: "Sequence[Outlook]") -> None:
    """Print what a study would take on several numbers of machines."""
    rows = [
        (str(x.machines), hours(x.makespan_s), f"{x.idle:.1%}", f"{x.writes_per_s:.2g}", f"{x.planned_s:.1f}")
        for x in outlooks
    ]
    columns = ("machines", "takes", "idle", "writes/s", "planned in s")
    Console().print(table(f"{outlooks[0].blocks} blocks on equal machines", columns, rows))


def print_plan(
    study: Study,
    cells: Sequence[Cell],
    slots: Sequence[Slot],
    cost: Cost,
    as_json: bool,
    outlooks: "Sequence[Outlook]" = (),
) -> None:
    """Print the configurations in published order, their cost, and what they would take on several machines."""
    paired = study.order == "protocol" and study.min_blocks > 1
    effect = minimum_detectable_effect(study.min_blocks, TYPICAL_CV) if paired else None
    busy = machine.slowdown(study.threads)
    if as_json:
        entries = [asdict(entry) | {"cell_id": entry.cell.id} for entry in study.entries]
        found = {"study": study.name, "comparable": study.comparable, "order": study.order, "entries": entries}
        found |= {"protocol": "relay" if study.relays else "runs", "budget_s": study.budget_s}
        found |= {"schedule": [asdict(slot) | {"id": slot.id} for slot in slots], "estimate": asdict(cost)}
        found |= {"seconds_as_busy_as_now": cost.seconds * busy, "machines": [asdict(x) for x in outlooks]}
        print(json.dumps(found | {"minimum_detectable_effect": effect}, indent=2))
        return
    suite, names = short_envs([entry.cell.run["env"] for entry in study.entries])
    rows = [
        (str(e.index), e.label, env, e.cell.name, model_of(e.cell), e.cell.timing)
        for e, env in zip(study.entries, names, strict=True)
    ]
    title = study.name + (f", environments of {suite}" if suite else "")
    Console().print(table(title, ("index", "label", "env", "variant", "model", "timing"), rows))
    print(f"{len(study.entries)} configurations, {len(cells)} cells, {cost.runs} runs (at most {cost.most_runs})")
    print(f"about {hours(cost.seconds)}, between {hours(cost.low_s)} and {hours(cost.high_s)}")
    if cost.most_runs > cost.runs:
        print(f"about {hours(cost.most_seconds)} if every group needs all its blocks")
    if busy > NOTICEABLE:
        print(f"about {hours(cost.seconds * busy)} if other programs stay as busy as now")
    how = f"order {study.order}, {'relays' if study.relays else 'whole runs'}"
    print(f"about {cost.bytes / 1e6:.1f} MB, {how}" + ("" if study.comparable else ", not comparable"))
    if effect is not None:
        print(f"smallest effect {study.min_blocks} blocks find: {effect:.1%}, where runs vary by {TYPICAL_CV:.0%}")
    if outlooks:
        print_outlooks(outlooks)
