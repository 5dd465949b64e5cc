"""A campaign as it goes, and what came of it."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchback.analysis.comparisons import (
    Group,
    claims,
    comparable,
    parity_of,
    read_groups,
    reference_variant,
    setting_text,
)
from benchback.cli.show_tables import jsonable, table
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.coordinator import Hooks
from benchback.measure.plan import TYPICAL_CV, Cost, minimum_detectable_effect
from benchback.measure.record import Attempt, Cell, Slot
from benchback.measure.store import Store
from benchback.measure.study import Study
from benchback.stats import Claim, Comparison

FIGURES_SHOWN = ("steady", "cold_start", "total")


def print_plan(study: Study, cells: Sequence[Cell], slots: Sequence[Slot], cost: Cost, as_json: bool) -> None:
    """Configurations in published order, and what running them takes."""
    paired = study.order == "protocol" and study.min_blocks > 1
    effect = minimum_detectable_effect(study.min_blocks, TYPICAL_CV) if paired else None
    if as_json:
        entries = [asdict(entry) | {"cell_id": entry.cell.id} for entry in study.entries]
        found = {"study": study.name, "comparable": study.comparable, "order": study.order, "entries": entries}
        found |= {"schedule": [asdict(slot) | {"id": slot.id} for slot in slots], "estimate": asdict(cost)}
        print(json.dumps(found | {"minimum_detectable_effect": effect}, indent=2))
        return
    rows = [
        (str(e.index), e.label, e.cell.run["env"], e.cell.variant, e.cell.run["model"], e.cell.timing)
        for e in study.entries
    ]
    Console().print(table(study.name, ("index", "label", "env", "variant", "model", "timing"), rows))
    print(f"{len(study.entries)} configurations, {len(cells)} cells, {cost.runs} runs (at most {cost.most_runs})")
    spread = f"between {hours(cost.low_s)} and {hours(cost.high_s)}"
    print(f"about {hours(cost.seconds)} ({spread}; at most {hours(cost.most_seconds)} if every group needs all blocks)")
    print(f"about {cost.bytes / 1e6:.1f} MB, order {study.order}" + ("" if study.comparable else ", not comparable"))
    if effect is not None:
        print(f"smallest effect {study.min_blocks} blocks find: {effect:.1%}, where runs vary by {TYPICAL_CV:.0%}")


def hours(seconds: float) -> str:
    """`42 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Board:
    """Runs done of total, what is running, time left with its spread, noise and failures; silent while a run lasts."""

    def __init__(
        self, store: Store, as_json: bool, describe: Callable[[Cell], str] = lambda cell: cell.variant
    ) -> None:
        self.store, self.as_json, self.failures, self.describe = store, as_json, 0, describe
        self.cells = store.cells()
        self.took: dict[str, list[float]] = {}
        for attempt in store.attempts():
            self.learn(attempt.slot.split("/")[0], attempt)
        self.console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}")
        # No refreshing thread: it would wake up during timed regions.
        self.bar = Progress(*columns, console=self.console, auto_refresh=False, disable=as_json)
        self.task = self.bar.add_task("starting", total=None, left="")

    def learn(self, cell: str, attempt: Attempt) -> None:
        """Take an attempt into account."""
        self.took.setdefault(cell, []).append(attempt.duration_s)
        self.failures += attempt.outcome not in ("ok", "interrupted")

    def started(self, slot: Slot, cell: Cell) -> None:
        """Before a run."""
        what = f"{cell.run['env'].split('/')[-1]} {self.describe(cell)} block {slot.block}"
        self.draw(what)

    def finished(self, slot: Slot, cell: Cell, attempt: Attempt) -> None:
        """After a run."""
        self.learn(cell.id, attempt)
        light = "noisy" if machine.violations(attempt.noise) else "quiet"
        if self.as_json:
            row = {"event": "run", "slot": slot.id, "variant": cell.variant, "outcome": attempt.outcome}
            row |= {"duration_s": attempt.duration_s, "tags": attempt.tags, "detail": attempt.detail}
            print(json.dumps(row), flush=True)
        elif not self.console.is_terminal or attempt.outcome != "ok":
            self.say(f"{slot.id} {self.describe(cell)}: {attempt.outcome} in {attempt.duration_s:.1f} s, {light}")
        self.draw(f"{self.describe(cell)} {attempt.outcome}, {light}")

    def draw(self, what: str) -> None:
        """Show where the campaign stands."""
        counts = self.store.progress()
        failures = f", {self.failures} failures" if self.failures else ""
        self.bar.update(
            self.task,
            description=what,
            completed=counts.ok + counts.failed,
            total=counts.total,
            left=f"{self.time_left(counts.total - counts.ok - counts.failed)}{failures}",
        )
        self.bar.refresh()

    def time_left(self, runs: int) -> str:
        """What the open runs will take, judging by those that are done, with the spread between variants."""
        durations = [statistics.median(values) for values in self.took.values()]
        if not durations:
            return ""
        middle = statistics.fmean(durations)
        spread = statistics.stdev(durations) / len(durations) ** 0.5 if len(durations) > 1 else middle / 2
        return f"{hours(runs * middle)} left +- {hours(runs * spread)}"

    def say(self, line: str) -> None:
        """A line above the bar."""
        if not self.as_json:
            self.bar.console.print(line, highlight=False, markup=False)


@contextmanager
def watching(
    store: Store, as_json: bool, describe: Callable[[Cell], str] = lambda cell: cell.variant
) -> Iterator[Hooks]:
    """A Hooks whose board is on screen while the context lasts; it calls a cell what `describe` says."""
    board = Board(store, as_json, describe)
    with board.bar:
        yield Hooks(started=board.started, finished=board.finished, log=board.say)


def print_outcome(store: Store, as_json: bool) -> int:
    """The verdict table of a campaign; returns how many slots have no result."""
    groups = read_groups(store)
    counts = store.progress(len(store.strata()) - 1)
    parts = [(setting_text(setting), part, claims_of(store, part)) for setting, part in comparable(groups)]
    if as_json:
        listed = {
            figure: [{"setting": setting} | asdict(claim) for setting, _, found in parts for claim in found[figure]]
            for figure in FIGURES_SHOWN
        }
        summary = {"event": "outcome", "store": str(store.path), "slots": asdict(counts), "claims": listed}
        print(json.dumps(summary | {"rows": [row for group in groups for row in variant_rows(group)]}))
        return counts.failed
    for group in groups:
        print_group(group, store)
    for setting, part, found in parts:
        print_claims(setting if len(parts) > 1 else "", reference_variant(part), found)
    if counts.failed:
        print(f"{counts.failed} runs have no result: benchback list-runs {store.path}")
    print(f"results in {store.path}")
    return counts.failed


def claims_of(store: Store, groups: Sequence[Group]) -> dict[str, list[Claim]]:
    """Claims about each figure that a campaign's table shows."""
    return {figure: claims(store, groups, figure) for figure in FIGURES_SHOWN}


def print_claims(setting: str, reference: str, found: Mapping[str, Sequence[Claim]]) -> None:
    """Every variant against the reference, and why there is no verdict where there is none."""
    columns = (f"against {reference}", "steady", "verdict", "cold start", "total", "cells", "blocks", "MDE")
    rows = [
        (
            steady.overall.name.split(" : ")[0],
            ratio_text(steady.overall),
            steady.overall.verdict or "none",
            ratio_text(cold.overall),
            ratio_text(total.overall),
            str(steady.overall.cells),
            str(steady.overall.n),
            "" if steady.overall.mde is None else f"{steady.overall.mde:.1%}",
        )
        for steady, cold, total in zip(*found.values(), strict=True)
    ]
    if rows:
        title = f"{setting}: times as long" if setting else "times as long"
        Console().print(table(f"{title}, with 95 % interval; ' is the A/A copy", columns, rows))
    for reason, names in unknown(found["steady"]).items():
        print(f"no verdict on {', '.join(names)}: {reason}")


def unknown(rows: Sequence[Claim]) -> dict[str, list[str]]:
    """Why there is no verdict -> on whom."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.overall.verdict is None:
            found.setdefault(row.overall.reason, []).append(row.overall.name.split(" : ")[0])
    return found


def print_group(group: Group, store: Store) -> None:
    """Medians of every variant of a group."""
    verdicts = parity_of(store)
    rows = [
        (
            row["variant"],
            number(row["steps_per_s"], ",.0f"),
            number(row["compile_s"], ".1f"),
            number(row["cold_start_s"], ".1f"),
            number(row["episode_return"], ".1f"),
            str(row["blocks"]),
            verdicts.get(f"{row['algorithm']}/{row['backend']}", "not measured"),
        )
        for row in variant_rows(group)
    ]
    columns = ("variant", "env steps/s", "compile s", "cold start s", "return", "blocks", "parity")
    Console().print(table(group.title, columns, rows))


def variant_rows(group: Group) -> list[dict[str, Any]]:
    """Medians over blocks of every variant; None where nothing can be said."""
    found = []
    for cell in group.cells:
        outcomes = [x for x in group.outcomes[cell.id].values() if x.ledger]
        steady = [x.figures["steady"] for x in outcomes if isinstance(x.figures["steady"], float)]
        cold = [x.figures["cold_start"] for x in outcomes if isinstance(x.figures["cold_start"], float)]
        first = [x.first_call_s for x in outcomes if x.first_call_s is not None]
        returns = [x.episode_return for x in outcomes if x.episode_return is not None]
        steps = cell.run["num_envs"] * cell.run["num_steps"]
        row: dict[str, Any] = {"group": group.title, "variant": cell.variant, "blocks": len(outcomes)}
        row |= {"algorithm": cell.run["algorithm"], "backend": cell.run["backend"]}
        row["steps_per_s"] = steps / statistics.median(steady) if steady else None
        # What the first call takes beyond a steady one; where nothing is steady, all of it.
        once = statistics.median(steady) * (cell.run["chunk"] if cell.run["unit"] == "chunk" else 1) if steady else 0.0
        row["compile_s"] = statistics.median(first) - once if first else None
        row["cold_start_s"] = statistics.median(cold) if cold else None
        row["episode_return"] = statistics.median(returns) if returns else None
        found.append(row)
    return found


def number(value: float | None, format: str) -> str:
    """The value, or a dash where there is none."""
    return "-" if value is None else f"{value:{format}}"


def ratio_text(row: Comparison) -> str:
    """`1.02 [1.01, 1.03]`."""
    if row.ratio is None:
        return "-"
    interval = "" if row.low is None else f" [{row.low:.2f}, {row.high:.2f}]"
    return f"{row.ratio:.2f}{interval}"


def print_status(store: Store, as_json: bool) -> None:
    """Where a campaign stands."""
    campaign, counts = store.campaign(), store.progress()
    found = {"store": str(store.path), "study": campaign["study"]["name"], "note": campaign.get("note", "")}
    found |= {"comparable": campaign.get("comparable", True), "strata": len(store.strata())}
    found |= {"slots": asdict(counts) | {"open": counts.open}, "events": [asdict(e) for e in store.events()]}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['study']}: {counts.ok} of {counts.total} runs done, {counts.failed} failed, ", end="")
    print(f"{counts.running} running, {counts.open} open" + ("" if found["comparable"] else "; not comparable"))
    if found["note"]:
        print(found["note"])
    for event in store.events():
        print(f"{event.at}  {event.kind}: {json.dumps(event.detail)[:200]}")


def print_runs(store: Store, as_json: bool) -> None:
    """Every attempt, oldest first."""
    cells = store.cells()
    rows = [
        {"slot": a.slot, "attempt": a.number, "variant": cells[a.slot.split("/")[0]].variant, "outcome": a.outcome}
        | {"env": cells[a.slot.split("/")[0]].run["env"], "duration_s": a.duration_s, "tags": a.tags}
        | {"detail": a.detail, "started_at": a.started_at}
        for a in store.attempts()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("run", "try", "env", "variant", "outcome", "seconds", "tags", "detail")
    cells_of = [
        (
            r["slot"],
            str(r["attempt"]),
            r["env"],
            r["variant"],
            r["outcome"],
            f"{r['duration_s']:.1f}",
            " ".join(r["tags"]),
            r["detail"][:60],
        )
        for r in rows
    ]
    Console().print(table(str(store.path), columns, cells_of))


def print_run(store: Store, slot: str, as_json: bool) -> None:
    """All attempts at one slot, with everything that was measured."""
    attempts = list(store.attempts(slot))
    if not attempts:
        raise InputError(f"run={slot} has no attempts in {store.path}; `benchback list-runs {store.path}` names them")
    if as_json:
        print(json.dumps([asdict(a) for a in attempts], indent=2))
        return
    for attempt in attempts:
        print(f"{attempt.slot} attempt {attempt.number}: {attempt.outcome} {attempt.detail}")
        print(f"  started {attempt.started_at}, {attempt.duration_s:.1f} s, tags: {' '.join(attempt.tags) or 'none'}")
        print(f"  noise: {json.dumps({k: round(v, 4) for k, v in attempt.noise.items()})}")
        if attempt.record:
            print(f"  marks: {json.dumps({k: round(v, 3) for k, v in attempt.record.marks.items()})}")
            print(f"  ledger: {json.dumps(attempt.record.ledger)}")
            for name, values in attempt.record.samples.items():
                known = [x for x in values if x is not None]
                middle = f"median {statistics.median(known):.6g}" if known else "no values"
                print(f"  {name}: {len(values)} values, {middle}")
        elif attempt.log:
            print("  " + "\n  ".join(attempt.log.strip().splitlines()[-20:]))


def print_problems(path: Path, problems: Sequence[str], as_json: bool) -> None:
    """What is wrong with a store."""
    if as_json:
        print(json.dumps({"store": str(path), "ok": not problems, "problems": list(problems)}, indent=2))
    else:
        print("\n".join(problems) if problems else f"{path}: nothing wrong")


def print_files(paths: Sequence[Path], as_json: bool) -> None:
    """Where an export is."""
    print(json.dumps([str(path) for path in paths]) if as_json else "\n".join(str(path) for path in paths))


def print_examination(found: Mapping[str, Any], as_json: bool) -> None:
    """What the doctor found, and what to do."""
    if as_json:
        print(json.dumps({**found, "aa": jsonable(found["aa"])}, indent=2))
        return
    rows = [(name, str(value)) for name, value in machine_facts(found).items()]
    Console().print(table("machine", ("what", "value"), rows))
    rows = [
        (name, f"{value:.3g}", f"{machine.LIMITS[name]:.3g}", "too much" if value > machine.LIMITS[name] else "fine")
        for name, value in found["noise"].items()
    ]
    Console().print(table("noise while it was measured", ("what", "seen", "limit", ""), rows))
    spread = found["spread"]
    print(f"the same work varies by {spread['matmul_s']:.1%} (arithmetic) and {spread['memcpy_s']:.1%} (memory)")
    same = found["aa"]
    print(f"A/A: {same['ratio']:.3f} [{same['low']:.3f}, {same['high']:.3f}] over {same['n']} pairs: {same['verdict']}")
    print(f"five blocks find differences from {found['detectable_with_5_blocks']:.1%} on")
    print("what to change:" if found["advice"] else "nothing to change")
    for line in found["advice"]:
        print(f"- {line}")


def machine_facts(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is known about the machine, for people: sizes in GB, and what was looked for and not found."""
    known = dict(found["machine"])
    memory, free = known.pop("memory_bytes") / 1e9, found["free_bytes"] / 1e9
    facts = {"memory": f"{memory:.1f} GB", "free disk here": f"{free:.1f} GB"}
    facts |= {"threads of a worker": "1 unless the study says otherwise", "compile caches": "private to every run"}
    if found["caches"]:
        facts["set in this shell"] = ", ".join(found["caches"])
    return known | facts | {"gpu": known.get("gpu", "none"), "governor": known.get("governor", "not told")}


def print_complexity(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Seconds of a vectorised step, fastest environment first."""
    if as_json:
        print(json.dumps(list(rows), indent=2))
        return
    ordered = sorted(rows, key=lambda row: (row["num_envs"], row["step_s"]))
    cells = [(r["env"], str(r["num_envs"]), f"{r['step_s'] * 1e6:.1f}", f"{r['relative']:.1f}") for r in ordered]
    Console().print(table("a step of all environments", ("env", "environments", "microseconds", "relative"), cells))
