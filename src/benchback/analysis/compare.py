"""Comparison of two stores, strata or variants; regressions come first.

Runs of two stores share no blocks, so their logarithms are compared by Welch's t; two variants of one store are
compared block by block, as in a report.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import polars as pl

from benchback import stats
from benchback.analysis.claims import claims_of, phases_not_timed
from benchback.analysis.groups import Group
from benchback.analysis.machines import Fleet, fleet_from, fleet_of
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.table import frame, keys
from benchback.analysis.wording import NO_VERDICT, comparison_columns
from benchback.errors import InputError
from benchback.measure.metrics import METRICS
from benchback.measure.record import Cell
from benchback.measure.results import open_trainings
from benchback.measure.store import Store
from benchback.stats import MARGIN, Comparison, Measured, Verdict

ORDER = (Verdict.SLOWER, NO_VERDICT, Verdict.INCONCLUSIVE, Verdict.EQUIVALENT, Verdict.FASTER)
"""Of rows: the most urgent first."""


@dataclass(frozen=True)
class Side:
    """One of the two: a store, or one stratum or one variant of it."""

    path: Path
    stratum: int | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Compared:
    """The rows of a comparison, and what else differs."""

    rows: pl.DataFrame
    """Regressions first."""
    changed: dict[str, tuple[Any, Any]]
    """Facts about the machines that differ: name -> before and after."""
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
    """Every cell that both have, by every metric: the ratio of the second's time to the first's."""
    with open_trainings(before.path) as first, open_trainings(after.path) as second:
        sources = [_read(store, at) for store, at in ((first, before), (second, after))]
        machines = [_machine(store, at) for store, at in ((first, before), (second, after))]
        if before.variant and after.variant and before.path == after.path and before.stratum == after.stratum:
            rows, unmatched = _variants(sources[0], before.variant, after.variant, margin), 0
        else:
            rows, unmatched = _unpaired([source.groups for source in sources], before, after, margin)
    if not rows:
        raise InputError(f"{before.path} and {after.path} have no cell in common; compare stores of the same study")
    names = sorted(machines[0].keys() | machines[1].keys())
    pairs = {name: (machines[0].get(name), machines[1].get(name)) for name in names}
    table = frame(sorted(rows, key=_urgency))
    return Compared(table, {name: x for name, x in pairs.items() if x[0] != x[1]}, unmatched)


def fleet(sides: Sequence[Side]) -> Fleet:
    """Stores or strata as machines; all strata of a store that is given alone."""
    if any(at.variant for at in sides):
        raise InputError("machines are stores or strata; leave out the variant")
    with ExitStack() as opened:
        stores = [opened.enter_context(open_trainings(at.path)) for at in sides]
        if len(sides) == 1 and sides[0].stratum is None:
            found = fleet_of(stores[0])
        else:
            pairs = list(zip(stores, sides, strict=True))
            found = fleet_from([(_side_name(at), _machine(store, at), _read(store, at)) for store, at in pairs])
    if len(found.machines) < 2:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.left_out.items()) or "there is one only"
        raise InputError(f"compare needs two stores, or machines with the same software to sum up; {why}")
    return found


def _side_name(side: Side) -> str:
    return side.path.stem + ("" if side.stratum is None else f"@{side.stratum}")


def _read(store: Store, side: Side) -> Source:
    strata = len(store.strata())
    if side.stratum is not None and side.stratum >= strata:
        last = f"@0 to @{strata - 1}" if strata > 1 else "@0 only"
        raise InputError(f"{side.path} has no stratum {side.stratum}; give {last}")
    source = read(store, stratum=side.stratum)
    known = source.variants
    if side.variant is not None and side.variant not in known:
        near = get_close_matches(side.variant, known, 5, 0.5) or known[:5]
        raise InputError(f"{side.path} has no variant {side.variant}; it has {len(known)}, e.g. {', '.join(near)}")
    return source


def _machine(store: Store, side: Side) -> dict[str, Any]:
    return dict(store.strata()[-1 if side.stratum is None else side.stratum])


def _urgency(row: dict[str, Any]) -> tuple:
    return not row["regression"], ORDER.index(row["verdict"]), -(row["ratio"] or 0.0)


def _variants(source: Source, before: str, after: str, margin: float) -> list[dict[str, Any]]:
    rows = []
    for group in source.groups:
        first, second = group.cell(before), group.cell(after)
        if first and second:
            for metric in METRICS:
                (claim,) = claims_of(source.parity, [group.only(second, first)], metric, before)
                sides = [[x.metrics[metric] for x in group.outcomes[cell.id].values()] for cell in (first, second)]
                rows.append(_row(second, metric, claim.cells[0], sides, margin))
    return [row for row in rows if row]


def _unpaired(groups: Sequence[Sequence[Group]], before: Side, after: Side, margin: float) -> tuple[list, int]:
    found = [
        _outcomes(part, at, before.variant or after.variant) for part, at in zip(groups, (before, after), strict=True)
    ]
    rows = []
    for metric in METRICS:
        family, places = [], []
        for name in found[0]:
            if name in found[1]:
                first = found[0][name][1]
                values = [[outcome.metrics[metric] for outcome in x] for x in (first, found[1][name][1])]
                family.append(stats.compare_unpaired(metric, values[1], values[0], margin))
                places.append((found[1][name][0], values))
        for (cell, values), row in zip(places, stats.adjust(family), strict=True):
            rows.append(_row(cell, metric, row, values, margin))
    return [row for row in rows if row], len(found[0].keys() ^ found[1].keys())


def _outcomes(groups: Sequence[Group], side: Side, by_group: str | None) -> dict[str, tuple[Cell, list]]:
    """Outcomes by cell; by group where one variant is compared with another."""
    found = {}
    for group in groups:
        for cell in group.cells:
            if not cell.twin and side.variant in (None, cell.variant):
                found[cell.group if by_group else cell.id] = cell, list(group.outcomes[cell.id].values())
    return found


def _row(
    cell: Cell, metric: str, row: Comparison, sides: Sequence[Sequence[Measured]], margin: float
) -> dict[str, Any] | None:
    """A comparison as a row; None where the metric is not taken in this timing."""
    if row.ratio is None and phases_not_timed(row):
        return None
    middle = [stats.geometric_mean([x for x in side if isinstance(x, float)]) for side in sides]
    found = keys(cell) | {"figure": metric, "before_s": middle[0], "after_s": middle[1]} | comparison_columns(row)
    slower = row.verdict is Verdict.SLOWER and row.ratio is not None and row.ratio > 1 + margin
    return found | {"regression": slower}


def side_by_side(first: Source, second: Source) -> pl.DataFrame:
    """Two stores that have been read, for a chart."""
    sides = Side(first.store.path), Side(second.store.path)
    rows, _ = _unpaired((first.groups, second.groups), *sides, MARGIN)
    return frame(rows)


def spans(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Smallest and largest ratio of every variant by every metric; cells are not averaged, they may be unlike."""
    known = rows.filter(pl.col("ratio").is_not_null())
    found = []
    for (variant, metric), part in known.group_by("variant", "figure", maintain_order=True):
        row = {"variant": variant, "name": part["name"][0], "figure": metric, "cells": len(part)}
        found.append(row | {"lowest": part["ratio"].min(), "highest": part["ratio"].max()})
    return found
