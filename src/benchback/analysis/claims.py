"""Claims as typed records: how many times as long a variant takes as its reference, by one metric, block by block.

Everything that terminal, page and files say about speed is made of these. A claim over several cells is made of the
cells that all variants beside it have, and is a range where their ratios are unlike.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchback import stats
from benchback.analysis.evidence import deviates
from benchback.analysis.groups import (
    Group,
    Outcome,
    Setting,
    comparable,
    env_of,
    model_of,
    original,
    reference_variant,
    setting_of,
)
from benchback.analysis.proofs import PASS, PASS_IN_MODE_NONE, parity_verdict
from benchback.analysis.ranges import Range, range_of
from benchback.analysis.reasons import Deviates, LedgersDiffer, ParityNotProven
from benchback.analysis.source import Source
from benchback.measure.metrics import METRICS, PhasesNotTimed
from benchback.measure.record import Cell
from benchback.measure.verify import COMPARED, disagreements
from benchback.stats import Comparison, Measured, NoVerdict, Verdict

ALL = "*"
"""Stands for all environments, or all models, of a claim."""


@dataclass(frozen=True)
class Claim:
    """A statement about two variants over all cells of a setting, or over those of an environment and a model."""

    setting: Setting
    metric: str
    subject: Cell
    """The first cell of the variant that the claim is about."""
    rival: Cell
    """The first cell of the variant with which it is compared."""
    overall: Comparison
    """The ratio, its interval, verdict, blocks, cells and detectable effect, or why there is none."""
    cells: tuple[Comparison, ...]
    """The same in every cell by itself."""
    env: str = ALL
    model: str = ALL
    along: Range | None = None
    """The ratios along an axis, where they are too different for one number; `overall` has none then."""
    few: bool = False
    """The variant was measured in few cells only: its ratio is of its own cells, not of those of the others."""

    @property
    def variant(self) -> str:
        """Whom the claim is about."""
        return self.subject.variant

    @property
    def reference(self) -> str:
        """With whom it is compared."""
        return self.rival.variant

    @property
    def ratio(self) -> float | None:
        """How many times as long as the reference; None where nothing can be compared."""
        return self.overall.ratio

    @property
    def verdict(self) -> Verdict | None:
        """What is shown, in all cells alike where they differ; None where `overall.reason` says why nothing is."""
        return self.along.verdict if self.along else self.overall.verdict


@dataclass(frozen=True)
class Rows:
    """A variant against another in every group that has both: what claims are made of."""

    subject: Cell
    rival: Cell
    rows: Mapping[str, Comparison]
    """By the title of the group."""

    def complete(self, title: str) -> bool:
        """Whether the group has two complete blocks of both."""
        return title in self.rows and self.rows[title].estimate is not None


def claims_of(
    parity: Mapping[str, str], groups: Sequence[Group], metric: str, reference: str | None = None
) -> list[Claim]:
    """Every other variant of groups of one setting against the reference, in order of mention.

    A twin is compared with the cell of which it is the copy. `parity` has the verdict of every program.
    """
    return claims_from(rows_of(parity, groups, metric, reference or reference_variant(groups)), groups, metric)


def rows_of(parity: Mapping[str, str], groups: Sequence[Group], metric: str, reference: str) -> list[Rows]:
    """Every other variant of the groups against the reference, group by group."""
    variants = {cell.variant: cell for group in groups for cell in group.cells}
    found = []
    for name, cell in variants.items():
        rival = original(cell).variant if cell.twin else reference
        if name == rival:
            continue
        cells = [(group, group.cell(name), group.cell(rival)) for group in groups]
        both = [(group, mine, theirs) for group, mine, theirs in cells if mine and theirs]
        if both:
            rows = {}
            for group, mine, theirs in both:
                pairs = paired(group, mine, theirs, metric, parity).values()
                rows[group.title] = stats.compare(group.title, [a for a, _ in pairs], [b for _, b in pairs])
            found.append(Rows(both[0][1], both[0][2], rows))
    return found


def claims_from(found: Sequence[Rows], groups: Sequence[Group], metric: str) -> list[Claim]:
    """A claim of each variant over the groups that all variants have; see `common_titles`."""
    titles = [group.title for group in groups]
    found = [each for each in found if any(title in each.rows for title in titles)]
    many, common = _many(found, titles), common_titles(found, titles)
    claims = []
    for each in found:
        rows = [each.rows[title] for title in titles if title in each.rows]
        alone = each not in many
        pooled = stats.pool(f"{each.subject.variant} : {each.rival.variant}", rows, None if alone else common)
        used = {row.name: row for row in rows if row.estimate and (alone or row.name in common)}
        along = range_of(used, groups)
        overall = pooled.overall if along is None else _unlike(pooled.overall)
        claim = Claim(setting_of(each.subject), metric, each.subject, each.rival, overall, pooled.cells, along=along)
        claims.append(replace(claim, few=alone and not each.subject.twin))
    return claims


def common_titles(found: Sequence[Rows], titles: Sequence[str]) -> list[str]:
    """Groups that have two complete blocks of every variant, so that averages over them can be set side by side.

    Variants that were planned in few groups, or have no result in any, do not count: they are not in the summary.
    """
    many = [each for each in _many(found, titles) if any(map(each.complete, titles))]
    return [title for title in titles if all(each.complete(title) for each in many)]


def _many(found: Sequence[Rows], titles: Sequence[str]) -> list[Rows]:
    """Variants that at least half as many of the groups have as have the most widespread; twins are none."""
    real = [each for each in found if not each.subject.twin]
    planned = [sum(title in each.rows for title in titles) for each in real]
    return [each for each, count in zip(real, planned, strict=True) if 2 * count >= max(planned)]


def _unlike(overall: Comparison) -> Comparison:
    """The same without the one number that would stand for unlike ratios."""
    kept = {"cells": overall.cells, "left_out": overall.left_out, "reason": NoVerdict.DIFFERS}
    return Comparison(overall.name, overall.n, **kept)


def paired(
    group: Group, mine: Cell, theirs: Cell, metric: str, parity: Mapping[str, str]
) -> dict[int, tuple[Measured, Measured]]:
    """The metric of two cells in the blocks that are planned for both; a reason where they may not be compared."""
    a, b = group.outcomes[mine.id], group.outcomes[theirs.id]
    refused = unproven(mine, parity) or unproven(theirs, parity)
    found: dict[int, tuple[Measured, Measured]] = {}
    for block in sorted(a.keys() & b.keys()):
        reason = refused or _unequal(a[block], b[block])
        found[block] = reason or _numerator(a[block], b[block], metric), b[block].metrics[metric]
    return found


def _numerator(mine: Outcome, theirs: Outcome, metric: str) -> Measured:
    """The metric of a run; in a relay such that its ratio to the other's is the ratio within rounds."""
    turns, other = mine.turns.get(metric), theirs.turns.get(metric)
    seconds = theirs.metrics[metric]
    if not turns or not other or not isinstance(seconds, float):
        return mine.metrics[metric]
    ratio = stats.relay_ratio(turns, other)
    return ratio * seconds if isinstance(ratio, float) else ratio


def unproven(cell: Cell, parity: Mapping[str, str]) -> ParityNotProven | None:
    """Why no speed may be claimed for a cell; None where the parity of its program was proven."""
    verdict = parity_verdict(cell, parity)
    return None if verdict in (PASS, PASS_IN_MODE_NONE) else ParityNotProven(cell.proof, verdict)


def _unequal(a: Outcome, b: Outcome) -> LedgersDiffer | Deviates | None:
    """What two runs did differently besides the compared axes; None if nothing, or if one of them has no result."""
    if not a.ledger or not b.ledger:
        return None
    return _differing(a, b) or deviates(a, b)


def _differing(a: Outcome, b: Outcome) -> LedgersDiffer | None:
    """In what the ledgers of two runs differ."""
    names = (a.ledger.keys() | b.ledger.keys()) - COMPARED
    if all(a.ledger.get(name) == b.ledger.get(name) for name in names):
        return None
    # Counts per call still have to be brought to the same length of a call.
    differing = tuple(found.field for found in disagreements({"a": a.ledger, "b": b.ledger}))
    return LedgersDiffer(differing) if differing else None


def all_claims(source: Source) -> list[Claim]:
    """Every variant against the reference of its cells by every metric, over all cells and over parts of them.

    A metric that is not taken in a timing is not claimed in it.
    """
    found = []
    for _, groups in comparable(source.groups):
        reference = reference_variant(groups)
        rows = {metric: rows_of(source.parity, groups, metric, reference) for metric in METRICS}
        for env, model, part in parts_of(groups):
            for metric in METRICS:
                for claim in claims_from(rows[metric], part, metric):
                    if not _does_not_apply(claim.overall):
                        found.append(replace(claim, env=env, model=model))
    return found


def parts_of(groups: Sequence[Group]) -> Iterator[tuple[str, str, list[Group]]]:
    """All groups, those of each environment, of each model, and of each pair of both."""
    envs = dict.fromkeys(env_of(group.cells[0]) for group in groups)
    models = dict.fromkeys(model_of(group.cells[0]) for group in groups)
    for env in (ALL, *envs):
        for model in (ALL, *models):
            part = [g for g in groups if env in (ALL, env_of(g.cells[0])) and model in (ALL, model_of(g.cells[0]))]
            if part:
                yield env, model, part


def _does_not_apply(row: Comparison) -> bool:
    """Whether a metric is missing in every cell only because it is not taken in this timing."""
    return row.reason is NoVerdict.NO_CELL and all(
        cell.reason is NoVerdict.NO_COMPLETE_BLOCK and phases_not_timed(cell) for cell in row.left_out
    )


def phases_not_timed(row: Comparison) -> bool:
    """Whether a block of a cell is missing because phases are not timed."""
    return any(isinstance(cause, PhasesNotTimed) for gap in row.gaps for cause in gap.causes)
