"""Medians of every variant of a group: speed, compile time, cold start and return."""

import statistics
from collections.abc import Iterable
from typing import Any

from benchback.analysis.groups import Group, Outcome
from benchback.measure.record import Cell
from benchback.stats import Measured


def variant_rows(group: Group) -> list[dict[str, Any]]:
    """Medians over blocks of every variant; None where nothing can be said."""
    return [_row(group, cell) for cell in group.cells]


def _row(group: Group, cell: Cell) -> dict[str, Any]:
    outcomes = [outcome for outcome in group.outcomes[cell.id].values() if outcome.ledger]
    steady_s = median(outcome.metrics["steady"] for outcome in outcomes)
    row: dict[str, Any] = {
        "group": group.title,
        "variant": cell.variant,
        "agents": cell.members,
        "blocks": len(outcomes),
    }
    row |= {"algorithm": cell.run["algorithm"], "backend": cell.run["backend"]}
    steps = cell.run["num_envs"] * cell.run["num_steps"] * cell.members
    row["steps_per_s"] = steps / steady_s if steady_s else None
    row["compile_s"] = compile_s(cell, outcomes, steady_s or 0.0)
    row["cold_start_s"] = median(outcome.metrics["cold_start"] for outcome in outcomes)
    row["episode_return"] = median(outcome.episode_return for outcome in outcomes)
    return row


def median(values: Iterable[Measured | None]) -> float | None:
    """The median of what is known; None if nothing is."""
    known = [value for value in values if isinstance(value, int | float)]
    return statistics.median(known) if known else None


def compile_s(cell: Cell, outcomes: Iterable[Outcome], steady_s: float) -> float | None:
    """What the first call takes beyond a steady one; where nothing is steady, all of it."""
    compiled = [outcome for outcome in outcomes if not outcome.ledger.get("cached_files_before")]
    first_s = median(outcome.first_call_s for outcome in compiled)
    iterations = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
    return None if first_s is None else first_s - steady_s * iterations
