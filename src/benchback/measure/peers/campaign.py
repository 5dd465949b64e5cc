"""The comparison: every side once per block, in a seeded order that the next block reverses."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchback.measure.peers.environments import Unavailable, prepare
from benchback.measure.peers.process import Failed, command_for, differences, measure
from benchback.measure.peers.sides import Side
from benchback.measure.peers.work import Workload

Progress = Callable[[str, int, int], None]
"""Told what comes next, how many measurements are done, and of how many."""


@dataclass(frozen=True)
class Slot:
    """A measurement to make."""

    block: int
    work: Workload
    side: Side


@dataclass(frozen=True)
class Plan:
    """Everything that determines a comparison."""

    works: tuple[Workload, ...]
    sides: tuple[Side, ...]
    blocks: int = 5
    seed: int = 0
    threads: int = 1
    timeout_s: float = 300.0


def schedule(plan: Plan) -> list[Slot]:
    """Block by block, workloads shuffled in each; a workload's order of sides is drawn, then reversed, and so on."""
    generator = np.random.default_rng(plan.seed)
    slots: list[Slot] = []
    orders: dict[str, list[int]] = {}
    for block in range(plan.blocks):
        for i in generator.permutation(len(plan.works)):
            work = plan.works[i]
            fresh = block % 2 == 0
            order = generator.permutation(len(plan.sides)).tolist() if fresh else orders[work.name][::-1]
            orders[work.name] = order
            slots += [Slot(block, work, plan.sides[j]) for j in order if work.env in plan.sides[j].envs]
    return slots


def run(plan: Plan, out: Path | None, progress: Progress) -> list[dict[str, Any]]:
    """A row for each measurement, written to `out` (JSON lines, the schedule first) as soon as it is made."""
    slots = schedule(plan)
    if out:
        order = [(slot.block, slot.work.name, slot.side.name) for slot in slots]
        out.write_text(json.dumps({"schedule": order, "seed": plan.seed, "threads": plan.threads}) + "\n")
    rows = []
    for row in _measured(plan, slots, progress):
        rows.append(row)
        if out:
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return rows


def _measured(plan: Plan, slots: Sequence[Slot], progress: Progress) -> Iterator[dict[str, Any]]:
    """Rows of the slots; a side that failed on a workload is not tried on it again."""
    pythons, unavailable = _prepare_all(plan.sides, len(slots), progress)
    failed: set[tuple[str, str]] = set()
    for done, slot in enumerate(slots):
        place = slot.work.name, slot.side.name
        progress(f"{slot.work.name} {slot.side.name}", done, len(slots))
        if place in failed:
            continue
        row = {"workload": slot.work.name, "side": slot.side.name, "block": slot.block, "error": ""}
        try:
            if slot.side.name in unavailable:
                raise Failed(unavailable[slot.side.name])
            yield row | _measure_slot(slot, pythons[slot.side.name], plan)
        except Failed as failure:
            failed.add(place)
            yield row | {"error": str(failure)}


def _prepare_all(sides: Sequence[Side], total: int, progress: Progress) -> tuple[dict[str, Path], dict[str, str]]:
    """Side -> its Python, and side -> why it cannot run."""
    pythons, unavailable = {}, {}
    for side in sides:
        progress(f"installing {side.name}", 0, total)
        try:
            pythons[side.name] = prepare(side.environment) if side.environment else Path(sys.executable)
        except Unavailable as reason:
            unavailable[side.name] = f"unavailable: {reason}"
    return pythons, unavailable


def _measure_slot(slot: Slot, python: Path, plan: Plan) -> dict[str, Any]:
    seed = plan.seed + slot.block
    outcome = measure(command_for(slot.side, slot.work, python, seed), plan.threads, plan.timeout_s)
    other = differences(slot.work.to_dict(seed), outcome["config"], slot.side.differs)
    if other:
        raise Failed("not the same work: " + ", ".join(f"{n}={y!r} instead of {x!r}" for n, (x, y) in other.items()))
    return outcome
