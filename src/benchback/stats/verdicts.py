"""From log ratios to a verdict: faster, slower, equivalent or inconclusive, or the reason why there is none."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchback.stats.missing import Measured, Missing, NotPositive
from benchback.stats.ratios import Estimate, detectable, difference, estimate, interval, mean_of, welch_estimate

MARGIN = 0.02
"""Margin of equivalence: ratios from 1/1.02 to 1.02 are too close to matter in the choice of a backend."""
ALPHA = 0.05
LARGEST_DETECTABLE = 1.0
"""A minimum detectable effect beyond this says no more than that blocks are missing, and is left out."""


class Verdict(StrEnum):
    """Verdict of a comparison on the numerator."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class NoVerdict(Enum):
    """Reasons why a comparison has no verdict."""

    NO_COMPLETE_BLOCK = auto()
    ONE_BLOCK = auto()
    """A ratio without an interval."""
    NO_CELL = auto()
    """No cell of a claim has two complete blocks."""
    NO_COMMON_CELL = auto()
    """Some cells have two complete blocks, but none has them for all variants that are compared."""
    DIFFERS = auto()
    """The ratios of the cells differ by more than their intervals: one number would stand for none of them."""
    NO_RUN = auto()
    """One of two independent samples is empty."""
    ONE_RUN = auto()
    """One of two independent samples has a single value: a ratio without an interval."""


@dataclass(frozen=True)
class Gap:
    """A block (of independent samples: a run) that is not in a comparison."""

    block: int
    causes: tuple[Missing, ...]
    """One reason for each side that has no value."""


@dataclass(frozen=True)
class Comparison:
    """One row: how many times the denominator's value the numerator's is. Values that cannot be computed are None."""

    name: str
    n: int
    """Complete blocks."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % confidence interval."""
    p: float | None = None
    """p-value of no difference (two-sided paired t)."""
    p_equivalence: float | None = None
    """p-value of a difference beyond the margin (two one-sided tests)."""
    p_holm: float | None = None
    p_equivalence_holm: float | None = None
    """Both adjusted for the number of comparisons in the claim; the verdict rests on them."""
    verdict: Verdict | None = None
    mde: float | None = None
    """Minimum detectable effect at 80 % power, as a ratio - 1; None where more blocks are needed to have one."""
    cells: int = 1
    gaps: tuple[Gap, ...] = ()
    """Blocks that are not in the ratio."""
    left_out: tuple["Comparison", ...] = ()
    """Cells that are not in the ratio of a comparison over cells: without two complete blocks here, or elsewhere."""
    reason: NoVerdict | None = None
    """Why there is no verdict; None where there is one."""
    estimate: Estimate | None = None
    """The mean log ratio with its error, from which comparisons over cells are made."""

    @property
    def half_width(self) -> float | None:
        """Half the interval as a ratio - 1: 0.013 is +-1.3 %."""
        return None if self.low is None or self.high is None else math.sqrt(self.high / self.low) - 1

    @property
    def at_most(self) -> float | None:
        """The largest difference, as a ratio - 1, that the interval does not exclude."""
        return None if self.low is None or self.high is None else max(self.high, 1 / self.low) - 1


@dataclass(frozen=True)
class Pooled:
    """A comparison over all its cells, and in each."""

    overall: Comparison
    cells: tuple[Comparison, ...]


def p_difference(found: Estimate) -> float:
    """Two-sided p-value of no difference."""
    return min(1.0, 2 * _upper_tail(abs(found.mean), found))


def p_equivalence(found: Estimate, margin: float = MARGIN) -> float:
    """p-value of a difference beyond the margin (a ratio - 1): the larger of two one-sided tests (Schuirmann 1987)."""
    limit = math.log1p(margin)
    return max(_upper_tail(found.mean + limit, found), _upper_tail(limit - found.mean, found))


def p_beyond(found: Estimate, margin: float) -> float:
    """One-sided p-value of a ratio of at most 1 + margin: small where the ratio is shown to be larger."""
    return _upper_tail(found.mean - math.log1p(margin), found)


def tost(log_ratio: ArrayLike, margin: float = MARGIN) -> float:
    """p-value of non-equivalence of blocks' log ratios: small where they prove that the ratio is within the margin."""
    return p_equivalence(estimate(log_ratio), margin)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values, in the same order, that control the family-wise error (Holm 1979).

    p_(i) -> max over j <= i of min(1, (m - j) p_(j)), counting from 0.
    """
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]), 1.0)
    return adjusted


def verdict(
    ratio: float, p: float, p_equivalence: float, *, alpha: float = ALPHA, lower_is_better: bool = True
) -> Verdict:
    """The verdict of two p-values, equivalence first: differences within the margin do not count."""
    if p_equivalence < alpha:
        return Verdict.EQUIVALENT
    if p < alpha:
        return Verdict.FASTER if (ratio < 1) == lower_is_better else Verdict.SLOWER
    return Verdict.INCONCLUSIVE


def compare(
    name: str,
    numerator: Sequence[Measured],
    denominator: Sequence[Measured],
    *,
    margin: float = MARGIN,
    lower_is_better: bool = True,
) -> Comparison:
    """The row of one cell. The sequences go through the same blocks; a reason replaces a missing value."""
    log_ratio, gaps = _paired(numerator, denominator)
    if len(log_ratio) > 1:
        found = replace(_row(name, estimate(log_ratio), len(log_ratio), margin), gaps=gaps)
        return adjust([found], lower_is_better=lower_is_better)[0]
    if len(log_ratio) == 1:
        return Comparison(name, 1, ratio=math.exp(log_ratio[0]), gaps=gaps, reason=NoVerdict.ONE_BLOCK)
    return Comparison(name, 0, gaps=gaps, reason=NoVerdict.NO_COMPLETE_BLOCK)


def pool(
    name: str,
    rows: Sequence[Comparison],
    among: Collection[str] | None = None,
    *,
    margin: float = MARGIN,
    lower_is_better: bool = True,
) -> Pooled:
    """Every cell, adjusted by Holm for their number, and their combination (see `mean_of`).

    Only the cells named in `among` are combined, all by default, and of those only the ones with two complete blocks.
    Variants that are set side by side need the same cells: averaged over cells of its own, a variant whose slow cells
    are missing would look fast. `overall.left_out` has the others with the reason. A single cell with one block is as
    much as is known: a ratio without an interval.
    """
    if len(rows) == 1 and rows[0].reason is NoVerdict.ONE_BLOCK:
        return Pooled(replace(rows[0], name=name), (rows[0],))
    used = [row for row in rows if row.estimate and (among is None or row.name in among)]
    left_out = tuple(row for row in rows if row not in used)
    if used:
        found = _row(name, mean_of([row.estimate for row in used if row.estimate]), sum(x.n for x in used), margin)
        found = replace(found, cells=len(used), left_out=left_out)
        overall = adjust([found], lower_is_better=lower_is_better)[0]
    else:
        some = any(row.estimate for row in rows)
        reason = NoVerdict.NO_COMMON_CELL if some else NoVerdict.NO_CELL
        overall = Comparison(name, 0, cells=0, left_out=left_out, reason=reason)
    return Pooled(overall, adjust(rows, lower_is_better=lower_is_better))


def from_estimate(name: str, found: Estimate, blocks: int, *, margin: float = MARGIN) -> Comparison:
    """The row of an estimate by itself, with its verdict."""
    return adjust([_row(name, found, blocks, margin)])[0]


def differ(estimates: Sequence[Estimate], *, margin: float = MARGIN, alpha: float = ALPHA) -> bool:
    """Whether log ratios differ by more than their errors explain, so that they must not be pooled.

    Every two of them are compared by Welch's t, corrected by Bonferroni for the number of pairs; a difference within
    the margin, which nobody would notice, does not count.
    """
    pairs = [difference(a, b) for a, b in combinations(estimates, 2)]
    limit = math.log1p(margin)
    return any(abs(pair.mean) > limit and p_difference(pair) * len(pairs) < alpha for pair in pairs)


def compare_unpaired(
    name: str, numerator: Sequence[Measured], denominator: Sequence[Measured], margin: float = MARGIN
) -> Comparison:
    """The row of two independent samples (Welch's t of their logarithms), not adjusted and so without a verdict."""
    sides = (numerator, denominator)
    logs = [np.log([x for x in side if isinstance(x, float) and x > 0]) for side in sides]
    gaps = tuple(Gap(run, (x,)) for side in sides for run, x in enumerate(side) if isinstance(x, Missing))
    least = min(map(len, logs))
    if not least:
        return Comparison(name, 0, gaps=gaps, reason=NoVerdict.NO_RUN)
    if least < 2:
        ratio = math.exp(float(logs[0].mean() - logs[1].mean()))
        return Comparison(name, least, ratio=ratio, gaps=gaps, reason=NoVerdict.ONE_RUN)
    return replace(_row(name, welch_estimate(*logs), least, margin), gaps=gaps)


def adjust(family: Sequence[Comparison], *, lower_is_better: bool = True) -> tuple[Comparison, ...]:
    """The same rows with p-values adjusted by Holm within the family, and the verdicts that follow from them.

    Differences and equivalences are adjusted apart: each kind of error is controlled by itself. Rows without
    p-values stay as they are and do not count.
    """
    able = [row for row in family if row.p is not None]
    differ, equal = (holm([getattr(row, name) for row in able]) for name in ("p", "p_equivalence"))
    adjusted = iter(
        replace(
            row,
            p_holm=float(p),
            p_equivalence_holm=float(q),
            verdict=verdict(row.ratio or math.nan, float(p), float(q), lower_is_better=lower_is_better),
        )
        for row, p, q in zip(able, differ, equal, strict=True)
    )
    return tuple(next(adjusted) if row.p is not None else row for row in family)


def _upper_tail(distance: float, found: Estimate) -> float:
    """P(t > distance / error); 0, 0.5 or 1 by the sign of the distance if the error is zero."""
    from scipy.special import stdtr

    if not found.error:
        return 0.0 if distance > 0 else 0.5 if distance == 0 else 1.0
    return float(stdtr(found.freedom, -distance / found.error))


def _paired(numerator: Sequence[Measured], denominator: Sequence[Measured]) -> tuple[list[float], tuple[Gap, ...]]:
    """Log ratios of complete blocks, and why the others are not."""
    log_ratio, gaps = [], []
    for block, pair in enumerate(zip(numerator, denominator, strict=True)):
        causes = tuple(reason for value in pair if (reason := _missing(value)))
        if causes:
            gaps.append(Gap(block, causes))
        else:
            log_ratio.append(math.log(pair[0] / pair[1]))  # pyright: ignore[reportOperatorIssue]
    return log_ratio, tuple(gaps)


def _missing(value: Measured) -> Missing | None:
    if isinstance(value, Missing):
        return value
    return None if math.isfinite(value) and value > 0 else NotPositive(value)


def _row(name: str, found: Estimate, blocks: int, margin: float) -> Comparison:
    """The row of an estimate: its interval, its tests and the minimum detectable effect."""
    low, high = interval(found)
    # With one degree of freedom the t distribution is so wide that the smallest effect would be thousands of percent.
    mde = detectable(found) if found.freedom >= 2 else math.inf
    return Comparison(
        name,
        n=blocks,
        ratio=math.exp(found.mean),
        low=low,
        high=high,
        p=p_difference(found),
        p_equivalence=p_equivalence(found, margin),
        mde=mde if mde <= LARGEST_DETECTABLE else None,
        estimate=found,
    )
