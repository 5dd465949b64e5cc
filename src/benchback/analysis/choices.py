"""The choice that the measurements leave: who is fastest, who cannot be told from it, and where that changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from benchback import stats
from benchback.analysis.claims import ALL, Claim, Rows, claims_from, common_titles, parts_of, rows_of
from benchback.analysis.groups import Group, Setting, comparable, reference_variant
from benchback.analysis.ranges import AXES, Axis, range_of
from benchback.analysis.source import Source
from benchback.measure.record import Cell
from benchback.stats import Comparison, Verdict

METRIC = "steady"
"""By which variants are chosen: seconds of an iteration in steady state."""


@dataclass(frozen=True)
class Choice:
    """The fastest variants: one that was shown to be faster than every other, or several that are tied."""

    best: tuple[Cell, ...]
    """In order of mention, the reference first."""
    at_most: float | None = None
    """Largest difference between two of them, as a ratio - 1, that no interval excludes; None for one alone."""
    told_apart: bool = False
    """Whether some two of them were shown to differ, though by less than the margin."""

    def has(self, cell: Cell) -> bool:
        """Whether the variant of this cell is among the fastest."""
        return cell.variant in [each.variant for each in self.best]


@dataclass(frozen=True)
class Turn:
    """The choice at every value of an axis along which it changes."""

    axis: Axis
    choices: tuple[tuple[str, Choice], ...]


@dataclass(frozen=True)
class Hole:
    """A cell that is in no average, because one of the variants has no result in it."""

    title: str
    cell: Cell
    """A cell of the variant."""
    comparison: Comparison
    """Says why."""


@dataclass(frozen=True)
class Summary:
    """All variants over the cells that all of them have, by steady time; of one setting, environment and model."""

    setting: Setting
    env: str
    model: str
    reference: Cell
    claims: tuple[Claim, ...]
    """Of the variants in the summary, against the reference."""
    cells: tuple[str, ...]
    """Titles of the cells that are averaged."""
    holes: tuple[Hole, ...] = ()
    unknown: tuple[Claim, ...] = ()
    """Variants without a result in any cell; they are not in the summary."""
    few: tuple[Claim, ...] = ()
    """Variants that were measured in few cells, over cells of their own."""
    twins: tuple[Claim, ...] = ()
    """A/A copies, against the cells of which they are copies."""
    choice: Choice | None = None
    """None where no two variants can be compared."""
    slower: tuple[Claim, ...] = ()
    """The variants of the summary that are not among the fastest, against the first of those."""
    turns: tuple[Turn, ...] = ()
    """Axes along which a variant that is among the fastest over all was shown to be slower than another."""


Pairs = Mapping[tuple[str, str], Rows]
"""(variant, rival) -> the variant against the rival, group by group; both directions of every pair."""


def summaries(source: Source) -> tuple[Summary, ...]:
    """A summary for every setting, and in it for all cells, each environment, each model, and each pair of both."""
    found = []
    for setting, groups in comparable(source.groups):
        pairs = _pairs(source, groups)
        rows = rows_of(source.parity, groups, METRIC, reference_variant(groups))
        for env, model, part in parts_of(groups):
            made = _summary(setting, rows, pairs, part)
            found += [replace(made, env=env, model=model)] if made else []
    return tuple(found)


def _pairs(source: Source, groups: Sequence[Group]) -> Pairs:
    """Every two variants, copies of A/A pairs left out."""
    variants = list(dict.fromkeys(cell.variant for group in groups for cell in group.cells if not cell.twin))
    found = {}
    for at, rival in enumerate(variants):
        later = [group.only(*(c for c in group.cells if c.variant in variants[at:])) for group in groups]
        for rows in rows_of(source.parity, later, METRIC, rival):
            found[rows.subject.variant, rival] = rows
            inverse = {title: _inverse(row) for title, row in rows.rows.items()}
            found[rival, rows.subject.variant] = Rows(rows.rival, rows.subject, inverse)
    return found


def _inverse(row: Comparison) -> Comparison:
    """The same comparison with numerator and denominator exchanged."""
    swapped = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    return replace(
        row,
        ratio=row.ratio and 1 / row.ratio,
        low=row.high and 1 / row.high,
        high=row.low and 1 / row.low,
        verdict=row.verdict and swapped.get(row.verdict, row.verdict),
        estimate=row.estimate and replace(row.estimate, mean=-row.estimate.mean),
    )


def _summary(setting: Setting, rows: Sequence[Rows], pairs: Pairs, groups: Sequence[Group]) -> Summary | None:
    claims = claims_from(rows, groups, METRIC)
    if not claims:
        return None
    titles = common_titles(rows, [group.title for group in groups])
    real = [claim for claim in claims if not claim.few and not claim.subject.twin]
    known = [claim for claim in real if any(row.estimate for row in claim.cells)]
    holes = [Hole(row.name, claim.subject, row) for claim in known for row in claim.cells if row.estimate is None]
    made = Summary(
        setting,
        env=ALL,
        model=ALL,
        reference=reference_cell(claims),
        claims=tuple(known),
        cells=tuple(titles) if known else (),
        holes=tuple(holes),
        unknown=tuple(claim for claim in real if claim not in known),
        few=tuple(claim for claim in claims if claim.few),
        twins=tuple(claim for claim in claims if claim.subject.twin),
    )
    return _with_choice(made, pairs, [group for group in groups if group.title in made.cells]) if made.cells else made


def reference_cell(claims: Sequence[Claim]) -> Cell:
    """The cell with which variants are compared; twins are compared with their originals."""
    return next((claim.rival for claim in claims if not claim.subject.twin), claims[0].rival)


def _with_choice(summary: Summary, pairs: Pairs, groups: Sequence[Group]) -> Summary:
    """The summary with the fastest of its variants, the others against those, and where that changes."""
    cells = [summary.reference, *(claim.subject for claim in summary.claims)]
    choice = _choices(cells, pairs, {ALL: groups})[ALL]
    first = choice.best[0].variant
    others = [pairs[cell.variant, first] for cell in cells if not choice.has(cell)]
    turns = []
    for axis, value_of in AXES.items():
        parts: dict[str, list[Group]] = {}
        for group in groups:
            parts.setdefault(value_of(group), []).append(group)
        along = _choices(cells, pairs, parts)
        if not all(here.has(cell) for here in along.values() for cell in choice.best):
            turns.append(Turn(axis, tuple(along.items())))
    return replace(summary, choice=choice, slower=tuple(claims_from(others, groups, METRIC)), turns=tuple(turns))


def _choices(cells: Sequence[Cell], pairs: Pairs, parts: Mapping[str, Sequence[Group]]) -> dict[str, Choice]:
    """The choice in every part. The comparisons of all parts are one family, adjusted together by Holm."""
    rows = {
        (part, b.variant, a.variant): _over(pairs[b.variant, a.variant], groups)
        for part, groups in parts.items()
        for a, b in combinations(cells, 2)
    }
    adjusted = dict(zip(rows, stats.adjust(list(rows.values())), strict=True))
    adjusted |= {(part, a, b): _inverse(row) for (part, b, a), row in adjusted.items()}
    found = {}
    for part, groups in parts.items():
        best = _fastest(cells, {(a, b): row for (name, a, b), row in adjusted.items() if name == part})
        found[part] = _tied(best, pairs, groups)
    return found


def _over(rows: Rows, groups: Sequence[Group]) -> Comparison:
    """Two variants over all these groups."""
    return stats.pool("", [rows.rows[group.title] for group in groups if group.title in rows.rows]).overall


def _fastest(cells: Sequence[Cell], rows: Mapping[tuple[str, str], Comparison]) -> list[Cell]:
    """The variant with the smallest ratio to the others, and all that were not shown to be slower than it."""
    first = cells[0].variant
    for cell in cells[1:]:
        if (rows[cell.variant, first].ratio or 1.0) < 1:
            first = cell.variant
    return [c for c in cells if c.variant == first or rows[c.variant, first].verdict is not Verdict.SLOWER]


def _tied(best: Sequence[Cell], pairs: Pairs, groups: Sequence[Group]) -> Choice:
    """The choice, with the largest difference between two of them that is not excluded, wherever it is."""
    found: list[Comparison] = []
    for a, b in combinations(best, 2):
        rows = pairs[b.variant, a.variant]
        used = {group.title: rows.rows[group.title] for group in groups if rows.complete(group.title)}
        unlike = range_of(used, groups)
        found += [point.comparison for point in unlike.points] if unlike else [_over(rows, groups)]
    bounds = [row.at_most for row in found]
    apart = any(row.low is not None and row.high is not None and not row.low <= 1 <= row.high for row in found)
    unbounded = not bounds or None in bounds
    return Choice(tuple(best), None if unbounded else max(x for x in bounds if x is not None), apart)
