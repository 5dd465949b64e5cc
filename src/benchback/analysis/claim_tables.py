"""Claims as tables: against the reference, each variant with each other, and by the formulas of benchback-rl."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from benchback import stats
from benchback.analysis.claims import ALL, Claim, claims_from, claims_of, parts_of, rows_of
from benchback.analysis.groups import Group, model_of
from benchback.analysis.source import Source
from benchback.analysis.table import frame, keys
from benchback.analysis.wording import comparison_columns, comparison_text, printed, setting_text, verdict_text
from benchback.measure.metrics import METRICS
from benchback.measure.record import Cell

MOST_VARIANTS = 12
"""More variants than this are compared with the reference only, not each with each."""


def claims_table(claims: Sequence[Claim]) -> pl.DataFrame:
    """A row per claim."""
    return frame([claim_row(claim) for claim in claims])


def claim_row(claim: Claim) -> dict[str, Any]:
    """A claim as a row."""
    row = keys(claim.subject) | {"env": claim.env, "model": claim.model, "reference": claim.reference}
    row |= {"figure": claim.metric, "twin": claim.subject.twin, "few": claim.few}
    row |= {"said": verdict_text(claim.overall), "left_out": len(claim.overall.left_out)}
    return row | comparison_columns(claim.overall, claim.along) | {"setting": setting_text(claim.setting)}


def pairs_table(source: Source) -> pl.DataFrame:
    """Each variant against each other by every metric: over all cells of a setting, and over parts of them."""
    rows = []
    for groups in source.settings.values():
        variants = {cell.variant: cell for group in groups for cell in group.cells if not cell.twin}
        if len(variants) > MOST_VARIANTS:
            variants = {cell.variant: cell for cell in _best(list(variants.values()))}
        real = [group.only(*(cell for cell in group.cells if cell.variant in variants)) for group in groups]
        for metric in METRICS:
            for place, second in enumerate(variants.values()):
                rows += _pair_rows(source, real, metric, second, list(variants)[place + 1 :])
    return frame(rows)


def _best(cells: Sequence[Cell]) -> list[Cell]:
    """One variant of each backend: the first mentioned."""
    return list({cell.run["backend"]: cell for cell in reversed(cells)}.values())[::-1]


def _pair_rows(
    source: Source, groups: Sequence[Group], metric: str, second: Cell, others: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Other variants against the second; all variants decide together which cells are averaged."""
    found = rows_of(source.parity, groups, metric, second.variant)
    for env, model, part in parts_of(groups):
        for claim in claims_from(found, part, metric):
            if claim.variant in others and (claim.ratio is not None or claim.along):
                row = claim_row(replace(claim, env=env, model=model))
                yield row | printed(claim.overall, claim.along, inverse=True) | _pair(claim.subject, second)


def _pair(first: Cell, second: Cell) -> dict[str, str]:
    names = {"backend2": second.run["backend"], "other": second.variant}
    return names | {"pair": f"{short(first)} : {short(second)}"}


def short(cell: Cell) -> str:
    """The variant, without its unit where that is `phase`."""
    return cell.variant.removesuffix("/phase")


def published_table(source: Source) -> pl.DataFrame:
    """Speed-ups by model size as benchback-rl computes them, over all pairs of runs, beside ours of the blocks.

    The pair a : b has a's seconds over b's: above 1, a is slower.
    """
    rows = []
    for groups in source.settings.values():
        models = dict.fromkeys(model_of(group.cells[0]) for group in groups)
        for metric in ("total", "steady"):
            for model in models:
                part = [group for group in groups if model_of(group.cells[0]) == model]
                rows += _published_rows(source, part, model, metric)
    return frame(rows)


def _published_rows(source: Source, groups: Sequence[Group], model: str, metric: str) -> Iterator[dict[str, Any]]:
    cells = [cell for group in groups for cell in group.cells if not cell.twin]
    variants = {cell.variant: cell for cell in cells}
    if len(variants) > MOST_VARIANTS:
        variants = {cell.variant: cell for cell in _best(list(variants.values()))}
    for second, first in combinations(variants.values(), 2):
        names = first.variant, second.variant
        found = stats.all_pairs(_values(groups, *names, metric))
        if not found.pairs:
            continue
        pair = [group.only(*(cell for cell in group.cells if cell.variant in names)) for group in groups]
        (claim,) = claims_of(source.parity, [group for group in pair if len(group.cells) > 1], metric, second.variant)
        row = keys(first) | {"env": ALL, "model": model} | _pair(first, second) | {"figure": metric}
        row |= {"geometric_mean": found.geometric_mean, "median": found.median, "pairs": found.pairs}
        yield row | {"ours": comparison_text(claim.overall, claim.along)}


def _values(groups: Sequence[Group], first: str, second: str, metric: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for group in groups:
        sides = []
        for name in (first, second):
            outcomes = [x for c in group.cells if c.variant == name for x in group.outcomes[c.id].values()]
            values = [x.metrics[metric] for x in outcomes]
            sides.append(np.array([x for x in values if isinstance(x, float)]))
        yield sides[0], sides[1]
