"""Claims as typed records: how many times as long a variant takes as its reference, by one metric, block by block."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchback import stats
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
from benchback.analysis.reasons import LedgersDiffer, ParityNotProven
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
        """What is shown; None where `overall.reason` says why nothing is."""
        return self.overall.verdict


def claims_of(
    parity: Mapping[str, str], groups: Sequence[Group], metric: str, reference: str | None = None
) -> list[Claim]:
    """Every other variant of groups of one setting against the reference, in order of mention.

    A twin is compared with the cell of which it is the copy. `parity` has the verdict of every implementation.
    """
    reference = reference or reference_variant(groups)
    variants = {cell.variant: cell for group in groups for cell in group.cells}
    found = []
    for name, cell in variants.items():
        rival = original(cell).variant if cell.twin else reference
        if name == rival:
            continue
        pairs = [(group, group.cell(name), group.cell(rival)) for group in groups]
        both = [(group, mine, theirs) for group, mine, theirs in pairs if mine and theirs]
        if both:
            cells = {group.title: _paired(group, mine, theirs, metric, parity) for group, mine, theirs in both}
            pooled = stats.pool(f"{name} : {rival}", cells)
            _, mine, theirs = both[0]
            found.append(Claim(setting_of(mine), metric, mine, theirs, pooled.overall, pooled.cells))
    return found


def _paired(
    group: Group, mine: Cell, theirs: Cell, metric: str, parity: Mapping[str, str]
) -> tuple[list[Measured], list[Measured]]:
    """The metric of two cells in the blocks that are planned for both; a reason where they may not be compared."""
    a, b = group.outcomes[mine.id], group.outcomes[theirs.id]
    refused = _unproven(mine, parity) or _unproven(theirs, parity)
    blocks = sorted(a.keys() & b.keys())
    numerator: list[Measured] = []
    for block in blocks:
        reason = refused or _unequal(a[block], b[block])
        numerator.append(reason or a[block].metrics[metric])
    return numerator, [b[block].metrics[metric] for block in blocks]


def _unproven(cell: Cell, parity: Mapping[str, str]) -> ParityNotProven | None:
    """Why no speed may be claimed for a cell's backend; None where its parity was proven."""
    name = f"{cell.run['algorithm']}/{cell.run['backend']}"
    verdict = parity.get(name, "not measured")
    return None if verdict == "pass" else ParityNotProven(name, verdict)


def _unequal(a: Outcome, b: Outcome) -> LedgersDiffer | None:
    """What two runs did differently besides the compared axes; None if nothing, or if one of them has no result."""
    if not a.ledger or not b.ledger:
        return None
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
        for env, model, part in parts_of(groups):
            for metric in METRICS:
                for claim in claims_of(source.parity, part, metric, reference):
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
