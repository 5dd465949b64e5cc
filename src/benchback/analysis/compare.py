"""Two stores, strata or variants side by side: what became slower first.

Runs of two stores share no blocks, so their logarithms are compared by Welch's t; two variants of one store are
compared block by block, as in a report.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchback import stats
from benchback.analysis.claims import comparison_columns
from benchback.analysis.comparisons import Group, claims, read_groups
from benchback.analysis.table import Source, frame, keys
from benchback.errors import InputError
from benchback.measure.metrics import FIGURES
from benchback.measure.record import Cell
from benchback.measure.results import open_trainings
from benchback.measure.store import Store
from benchback.stats import Comparison, Measured
from benchback.stats.ratios import Estimate, detectable, interval
from benchback.stats.verdicts import MARGIN, p_difference, p_equivalence

ORDER = ("slower", "no verdict", "inconclusive", "equivalent", "faster")


@dataclass(frozen=True)
class Side:
    """One of the two: a store, or one stratum or one variant of it."""

    path: Path
    stratum: int | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Compared:
    """What came of a comparison."""

    rows: pl.DataFrame
    """Regressions first."""
    changed: dict[str, tuple[Any, Any]]
    """What of the machines differs: name -> before and after."""
    unmatched: int
    """Cells that only one side has."""

    @property
    def regressions(self) -> int:
        """Rows that are slower beyond the margin."""
        return int(self.rows["regression"].sum()) if not self.rows.is_empty() else 0


def side(given: str) -> Side:
    """`STORE`, `STORE@STRATUM` or `STORE:VARIANT`, e.g. `runs/smoke.sqlite:linen/jit/phase`."""
    if Path(given).exists():
        return Side(Path(given))
    for mark in (":", "@"):
        path, found, rest = given.partition(".sqlite" + mark)
        if found and mark == ":":
            return Side(Path(path + ".sqlite"), variant=rest)
        if found and rest.isdecimal():
            return Side(Path(path + ".sqlite"), stratum=int(rest))
    raise InputError(f"{given}: there is no such store; give STORE, STORE.sqlite@STRATUM or STORE.sqlite:VARIANT")


def compare(before: Side, after: Side, margin: float = MARGIN) -> Compared:
    """Every cell that both have, for every figure, as times that the second takes of what the first takes."""
    with open_trainings(before.path) as first, open_trainings(after.path) as second:
        groups = [_groups(store, at) for store, at in ((first, before), (second, after))]
        machines = [_machine(store, at) for store, at in ((first, before), (second, after))]
        if before.variant and after.variant and before.path == after.path and before.stratum == after.stratum:
            rows, unmatched = _variants(first, groups[0], before.variant, after.variant, margin), 0
        else:
            rows, unmatched = _unpaired(groups, before, after, margin)
    if not rows:
        raise InputError(f"{before.path} and {after.path} have no cell in common; compare stores of the same study")
    names = sorted(machines[0].keys() | machines[1].keys())
    pairs = {name: (machines[0].get(name), machines[1].get(name)) for name in names}
    table = frame(sorted(rows, key=_urgency))
    return Compared(table, {name: x for name, x in pairs.items() if x[0] != x[1]}, unmatched)


def _groups(store: Store, side: Side) -> list[Group]:
    strata = len(store.strata())
    if side.stratum is not None and side.stratum >= strata:
        last = f"@0 to @{strata - 1}" if strata > 1 else "@0 only"
        raise InputError(f"{side.path} has no stratum {side.stratum}; give {last}")
    groups = read_groups(store, side.stratum)
    known = list(dict.fromkeys(cell.variant for group in groups for cell in group.cells))
    if side.variant is not None and side.variant not in known:
        near = get_close_matches(side.variant, known, 5, 0.5) or known[:5]
        raise InputError(f"{side.path} has no variant {side.variant}; it has {len(known)}, e.g. {', '.join(near)}")
    return groups


def _machine(store: Store, side: Side) -> dict[str, Any]:
    return dict(store.strata()[-1 if side.stratum is None else side.stratum])


def _urgency(row: dict[str, Any]) -> tuple:
    return not row["regression"], ORDER.index(row["verdict"]), -(row["ratio"] or 0.0)


def _variants(store: Store, groups: Sequence[Group], before: str, after: str, margin: float) -> list[dict[str, Any]]:
    rows = []
    for group in groups:
        cells = {cell.variant: cell for cell in group.cells}
        if before in cells and after in cells:
            pair = Group(group.title, (cells[after], cells[before]), group.outcomes)
            for figure in FIGURES:
                row = claims(store, [pair], figure, before)[0].cells[0]
                values = [
                    [o.figures[figure] for o in group.outcomes[cells[name].id].values()] for name in (before, after)
                ]
                rows.append(_row(cells[after], figure, row, values, margin))
    return [row for row in rows if row]


def _unpaired(groups: Sequence[Sequence[Group]], before: Side, after: Side, margin: float) -> tuple[list, int]:
    found = [
        _outcomes(part, at, before.variant or after.variant) for part, at in zip(groups, (before, after), strict=True)
    ]
    rows = []
    for figure in FIGURES:
        family, places = [], []
        for name in found[0]:
            if name in found[1]:
                first = found[0][name][1]
                values = [[outcome.figures[figure] for outcome in x] for x in (first, found[1][name][1])]
                family.append(welch(figure, values[1], values[0], margin))
                places.append((found[1][name][0], values))
        for (cell, values), row in zip(places, stats.adjust(family), strict=True):
            rows.append(_row(cell, figure, row, values, margin))
    return [row for row in rows if row], len(found[0].keys() ^ found[1].keys())


def _outcomes(groups: Sequence[Group], side: Side, by_group: str | None) -> dict[str, tuple[Cell, list]]:
    """Outcomes by cell; by group where one variant is compared with another."""
    found = {}
    for group in groups:
        for cell in group.cells:
            if not cell.twin and side.variant in (None, cell.variant):
                found[cell.group if by_group else cell.id] = cell, list(group.outcomes[cell.id].values())
    return found


def welch(
    name: str, numerator: Sequence[Measured], denominator: Sequence[Measured], margin: float = MARGIN
) -> Comparison:
    """Mean difference of logarithms of two independent samples (Welch 1947), with all that a verdict needs."""
    logs = [np.log([x for x in side if isinstance(x, float) and x > 0]) for side in (numerator, denominator)]
    missing = tuple(x for side in (numerator, denominator) for x in side if isinstance(x, str))
    counts = [len(x) for x in logs]
    if not min(counts):
        return Comparison(name, 0, missing=missing, reason=missing[0] if missing else "no run has a result")
    mean = float(logs[0].mean() - logs[1].mean())
    if min(counts) < 2:
        return Comparison(name, min(counts), ratio=math.exp(mean), missing=missing, reason="one run gives no interval")
    part = [float(x.var(ddof=1)) / len(x) for x in logs]
    squares = sum(v**2 / (n - 1) for v, n in zip(part, counts, strict=True))
    freedom = sum(part) ** 2 / squares if squares else float(sum(counts) - 2)
    found = Estimate(mean, math.sqrt(sum(part)), freedom)
    low, high = interval(found)
    return Comparison(
        name,
        n=min(counts),
        ratio=math.exp(mean),
        low=low,
        high=high,
        p=p_difference(found),
        p_equivalence=p_equivalence(found, margin),
        mde=detectable(found),
        missing=missing,
    )


def _row(
    cell: Cell, figure: str, row: Comparison, sides: Sequence[Sequence[Measured]], margin: float
) -> dict[str, Any] | None:
    if row.ratio is None and any("phases are timed" in text for text in (row.reason, *row.missing)):
        return None
    middle = [stats.geometric_mean([x for x in side if isinstance(x, float)]) for side in sides]
    found = keys(cell) | {"figure": figure, "before_s": middle[0], "after_s": middle[1]} | comparison_columns(row)
    return found | {"regression": row.verdict == "slower" and row.ratio is not None and row.ratio > 1 + margin}


def side_by_side(first: Source, second: Source) -> pl.DataFrame:
    """Two stores that have been read, for a figure."""
    sides = Side(first.store.path), Side(second.store.path)
    rows, _ = _unpaired((first.groups, second.groups), *sides, MARGIN)
    return frame(rows)


def overall(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Geometric mean of the ratios of every backend and figure."""
    known = rows.filter(pl.col("ratio").is_not_null())
    found = []
    for (backend, figure), part in known.group_by("backend", "figure", maintain_order=True):
        ratio = stats.geometric_mean(part["ratio"].to_list())
        found.append({"backend": backend, "figure": figure, "ratio": ratio, "cells": len(part)})
    return found
