"""Who is faster, by how much and how surely: claims over all cells, and over every environment and model by itself."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from benchback import stats
from benchback.analysis.comparisons import (
    Group,
    Setting,
    claims_under,
    comparable,
    reference_variant,
    setting_text,
)
from benchback.analysis.table import Source, env_of, frame, keys, model_of
from benchback.measure.metrics import FIGURES
from benchback.measure.record import Cell
from benchback.stats import Claim, Comparison

ALL = "*"
"""Stands for all environments, or all models, of a claim; shown unless one is chosen."""
MOST_VARIANTS = 12
"""More variants than this are compared with the reference only, not each with each."""


def claims_table(source: Source) -> pl.DataFrame:
    """Every variant against the reference of its cells, for every figure, over all cells and over parts of them."""
    rows = []
    for setting, groups in comparable(source.groups):
        reference = reference_variant(groups)
        for env, model, part in parts(groups):
            for figure in FIGURES:
                found = claims_under(source.parity, part, figure, reference)
                rows += [row for claim in found if (row := _claim_row(setting, env, model, figure, claim, part))]
    return frame(rows)


def parts(groups: Sequence[Group]) -> Iterator[tuple[str, str, list[Group]]]:
    """All groups, those of each environment, of each model, and of each pair of both."""
    envs = dict.fromkeys(env_of(group.cells[0]) for group in groups)
    models = dict.fromkeys(model_of(group.cells[0]) for group in groups)
    for env in (ALL, *envs):
        for model in (ALL, *models):
            part = [g for g in groups if env in (ALL, env_of(g.cells[0])) and model in (ALL, model_of(g.cells[0]))]
            if part:
                yield env, model, part


def _claim_row(
    setting: Setting, env: str, model: str, figure: str, claim: Claim, groups: Sequence[Group]
) -> dict[str, Any] | None:
    row, (mine, theirs) = claim.overall, claim.overall.name.split(" : ")
    if row.reason and _does_not_apply(row):
        return None
    cell = next(cell for group in groups for cell in group.cells if cell.variant == mine)
    found = keys(cell) | {"env": env, "model": model, "reference": theirs, "figure": figure, "twin": cell.twin}
    return found | comparison_columns(row) | {"setting": setting_text(setting)}


def _does_not_apply(row: Comparison) -> bool:
    """Whether a figure is missing only because it is not taken in this timing."""
    return all("phases are timed in unit phase" in text for text in row.missing)


def comparison_columns(row: Comparison) -> dict[str, Any]:
    """A comparison as columns, with its words."""
    return {
        "ratio": row.ratio,
        "low": row.low,
        "high": row.high,
        "verdict": row.verdict or "no verdict",
        "blocks": row.n,
        "cells": row.cells,
        "detectable": row.mde,
        "text": ratio_text(row),
        "reason": "; ".join(filter(None, (row.reason, f"{len(row.missing)} left out" if row.missing else ""))),
    }


def ratio_text(row: Comparison) -> str:
    """`1.02x [1.01, 1.03] slower`, or why there is no ratio."""
    if row.ratio is None:
        return row.reason
    return f"{span_text(row.ratio, row.low, row.high)} {row.verdict or '(one block)'}"


def span_text(ratio: float, low: float | None, high: float | None) -> str:
    """`1.02x [1.01, 1.03]`, with as many decimals as the interval deserves."""
    if low is None or high is None:
        return f"{ratio:.3g}x"
    decimals = min(max(-math.floor(math.log10(max(high - low, 1e-9))), 2), 3)
    return f"{ratio:.{decimals}f}x [{low:.{decimals}f}, {high:.{decimals}f}]"


def pairs_table(source: Source) -> pl.DataFrame:
    """Each variant against each other in every cell: the ratio of the blocks, for total and steady time."""
    rows = []
    for setting, groups in source.settings.items():
        for group in groups:
            cells = [cell for cell in group.cells if not cell.twin]
            if len(cells) > MOST_VARIANTS:
                cells = _best(cells)
            for second, first in combinations(cells, 2):
                rows += _pair_rows(source, setting, group, first, second)
    return frame(rows)


def _best(cells: Sequence[Cell]) -> list[Cell]:
    """One variant of each backend: the first mentioned."""
    return list({cell.run["backend"]: cell for cell in reversed(cells)}.values())[::-1]


def _pair_rows(source: Source, setting: Setting, group: Group, first: Cell, second: Cell) -> Iterator[dict[str, Any]]:
    for figure in FIGURES:
        found = claims_under(source.parity, [_only(group, first, second)], figure, second.variant)[0].cells[0]
        if found.ratio is not None:
            pair = f"{short(first)} → {short(second)}"
            row = keys(first) | {
                "backend2": second.run["backend"],
                "other": second.variant,
                "pair": pair,
                "figure": figure,
            }
            yield row | {"place": source.place(first)} | comparison_columns(found) | {"setting": setting_text(setting)}


def _only(group: Group, *cells: Cell) -> Group:
    return Group(group.title, cells, {cell.id: group.outcomes[cell.id] for cell in cells})


def short(cell: Cell) -> str:
    """The backend, with what tells it from its own other variants only where it is not the ordinary one."""
    return cell.variant.removesuffix("/phase")


def published_table(source: Source) -> pl.DataFrame:
    """Speed-ups by model size as benchback-rl computes them, over all pairs of runs, beside ours of the blocks.

    The pair a → b has a's seconds over b's: above 1, b is faster.
    """
    rows = []
    for groups in source.settings.values():
        models = dict.fromkeys(model_of(group.cells[0]) for group in groups)
        for figure in ("total", "steady"):
            for model in models:
                part = [group for group in groups if model_of(group.cells[0]) == model]
                rows += _published_rows(source, part, model, figure)
    return frame(rows)


def _published_rows(source: Source, groups: Sequence[Group], model: str, figure: str) -> Iterator[dict[str, Any]]:
    cells = [cell for group in groups for cell in group.cells if not cell.twin]
    variants = {cell.variant: cell for cell in cells}
    if len(variants) > MOST_VARIANTS:
        variants = {cell.variant: cell for cell in _best(list(variants.values()))}
    for second, first in combinations(variants, 2):
        found = stats.all_pairs(_values(groups, first, second, figure))
        if not found.pairs:
            continue
        pair = [_only(group, *(c for c in group.cells if c.variant in (first, second))) for group in groups]
        found_ours = claims_under(source.parity, pair, figure, second)
        ours = next((c.overall for c in found_ours if c.overall.name.startswith(f"{first} :")), None)
        row = keys(variants[first]) | {"env": ALL, "model": model, "backend2": variants[second].run["backend"]}
        row["other"] = second
        row |= {"pair": f"{short(variants[first])} → {short(variants[second])}", "figure": figure}
        row |= {"geometric_mean": found.geometric_mean, "median": found.median, "pairs": found.pairs}
        yield row | {"ours": "" if ours is None else ratio_text(ours)}


def _values(groups: Sequence[Group], first: str, second: str, figure: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for group in groups:
        sides = []
        for name in (first, second):
            outcomes = [o for c in group.cells if c.variant == name for o in group.outcomes[c.id].values()]
            found = [o.figures[figure] for o in outcomes]
            sides.append(np.array([x for x in found if isinstance(x, float)]))
        yield sides[0], sides[1]
