"""From log ratios to a word: faster, slower, equivalent or inconclusive, or the reason why nothing can be said."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchback.stats.ratios import Estimate, combine, detectable, estimate, interval

Verdict = Literal["faster", "slower", "equivalent", "inconclusive"]
Measured = float | str
"""What a run came to, or why it came to nothing: "failed: signal 9", "no steady state: drifts by +4.1 %"."""

MARGIN = 0.02
"""Ratios from 1/1.02 to 1.02 make no difference that anybody would change backend for."""
ALPHA = 0.05


@dataclass(frozen=True)
class Comparison:
    """One row: how many times the denominator's value the numerator's is. What cannot be computed is None."""

    name: str
    n: int
    """Complete blocks."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % confidence interval."""
    p: float | None = None
    """Of no difference (two-sided paired t)."""
    p_equivalence: float | None = None
    """Of a difference beyond the margin (two one-sided tests)."""
    p_holm: float | None = None
    p_equivalence_holm: float | None = None
    """Both adjusted for the number of comparisons in the claim; the verdict rests on them."""
    verdict: Verdict | None = None
    mde: float | None = None
    """Minimum detectable effect at 80 % power, as a ratio - 1."""
    cells: int = 1
    missing: tuple[str, ...] = ()
    """Why blocks, or cells of a claim, are not in the figures."""
    reason: str = ""
    """Why there is no verdict; empty where there is one."""


@dataclass(frozen=True)
class Claim:
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
    """Equivalence first: a difference too small to matter is none, however surely it is there."""
    if p_equivalence < alpha:
        return "equivalent"
    if p < alpha:
        return "faster" if (ratio < 1) == lower_is_better else "slower"
    return "inconclusive"


def compare(
    name: str,
    numerator: Sequence[Measured],
    denominator: Sequence[Measured],
    *,
    margin: float = MARGIN,
    lower_is_better: bool = True,
) -> Comparison:
    """The row of one cell. The sequences go through the same blocks; a text is the reason why a run gives no value."""
    log_ratio, missing = _paired(numerator, denominator)
    if len(log_ratio) > 1:
        return _row(name, [log_ratio], missing, margin, lower_is_better)
    if len(log_ratio) == 1:
        reason = "one block gives a ratio without an interval"
        return Comparison(name, 1, ratio=math.exp(log_ratio[0]), missing=missing, reason=reason)
    reason = "no complete block" + (f": {missing[0]}" if missing else "")
    return Comparison(name, 0, missing=missing, reason=reason)


def claim(
    name: str,
    cells: Mapping[str, tuple[Sequence[Measured], Sequence[Measured]]],
    *,
    margin: float = MARGIN,
    lower_is_better: bool = True,
) -> Claim:
    """All cells of a claim, adjusted by Holm for their number, and their combination (see `combine`).

    Cells without two complete blocks cannot be combined; `overall.missing` names them with the reason.
    """
    options = {"margin": margin, "lower_is_better": lower_is_better}
    rows = [compare(cell, *pair, **options) for cell, pair in cells.items()]
    missing = tuple(f"{row.name}: {row.reason}" for row in rows if row.reason)
    good = [_paired(*cells[row.name])[0] for row in rows if not row.reason]
    overall = (
        _row(name, good, missing, margin, lower_is_better)
        if good
        else Comparison(name, 0, cells=0, missing=missing, reason=_nothing(rows))
    )
    return Claim(overall, adjust(rows, lower_is_better=lower_is_better))


def _nothing(rows: Sequence[Comparison]) -> str:
    """Why no cell of a claim can be used, with the first cell's own reason."""
    causes = [text.partition(": ")[2] for row in rows for text in row.missing[:1]]
    return "no cell has two complete blocks" + (f": {causes[0]}" if causes else "")


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
    """P(t > distance / error); a distance without any error is certain."""
    from scipy.special import stdtr

    if not found.error:
        return 0.0 if distance > 0 else 0.5 if distance == 0 else 1.0
    return float(stdtr(found.freedom, -distance / found.error))


def _paired(numerator: Sequence[Measured], denominator: Sequence[Measured]) -> tuple[list[float], tuple[str, ...]]:
    """Log ratios of complete blocks, and why the others are not."""
    log_ratio, missing = [], []
    for block, pair in enumerate(zip(numerator, denominator, strict=True)):
        wrong = list(filter(None, map(_wrong, pair)))
        if wrong:
            missing.append(f"block {block}: {'; '.join(wrong)}")
        else:
            log_ratio.append(math.log(pair[0] / pair[1]))  # pyright: ignore[reportOperatorIssue]
    return log_ratio, tuple(missing)


def _wrong(value: Measured) -> str:
    if isinstance(value, str):
        return value or "no value"
    return "" if math.isfinite(value) and value > 0 else f"{value} is no positive number"


def _row(
    name: str, cells: Sequence[Sequence[float]], missing: tuple[str, ...], margin: float, lower_is_better: bool
) -> Comparison:
    found = combine(cells)
    low, high = interval(found)
    row = Comparison(
        name,
        n=sum(map(len, cells)),
        ratio=math.exp(found.mean),
        low=low,
        high=high,
        p=p_difference(found),
        p_equivalence=p_equivalence(found, margin),
        mde=detectable(found),
        cells=len(cells),
        missing=missing,
    )
    return adjust([row], lower_is_better=lower_is_better)[0]
