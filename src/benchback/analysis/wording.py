"""The words for ratios, verdicts and reasons: one place, so that terminal, page, Markdown and JSON say the same."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from benchback.analysis.groups import Setting
from benchback.analysis.reasons import LedgersDiffer, ParityNotProven
from benchback.measure.flops import ExtraWork
from benchback.measure.metrics import Failed, NotRun, PhasesNotTimed
from benchback.measure.record import Cell
from benchback.measure.verify import Disagreement
from benchback.stats import (
    Comparison,
    Gap,
    Missing,
    NoBreakEven,
    NotPositive,
    NoVerdict,
    TooFewValues,
    Unsteady,
    UnsteadyCause,
)
from benchback.stats.steady import FEWEST

NO_VERDICT = "no verdict"


def ratio_text(ratio: float, low: float | None, high: float | None, widest: float = math.inf) -> str:
    """`1.02x [1.01, 1.03]`, with as many decimals as the interval deserves.

    `1.4x [?]` where the interval, end over end, is wider than `widest`.
    """
    if low is None or high is None:
        return f"{ratio:.3g}x"
    if high > widest * low:
        return f"{ratio:.2g}x [?]"
    decimals = min(max(-math.floor(math.log10(max(high - low, 1e-9))), 2), 3)
    return f"{ratio:.{decimals}f}x [{low:.{decimals}f}, {high:.{decimals}f}]"


def comparison_text(row: Comparison) -> str:
    """`1.02x [1.01, 1.03] slower`, or why there is no ratio."""
    if row.ratio is None:
        return reason_text(row)
    return f"{ratio_text(row.ratio, row.low, row.high)} {row.verdict or '(one block)'}"


def reason_text(row: Comparison) -> str:
    """Why a comparison has no verdict, with the first cause; empty where it has one."""
    match row.reason:
        case None:
            return ""
        case NoVerdict.NO_COMPLETE_BLOCK:
            return "no complete block" + (f": {gap_text(row.gaps[0])}" if row.gaps else "")
        case NoVerdict.ONE_BLOCK:
            return "one block gives a ratio without an interval"
        case NoVerdict.NO_CELL:
            causes = [_causes_text(cell.gaps[0].causes) for cell in row.left_out if cell.gaps]
            return "no cell has two complete blocks" + (f": {causes[0]}" if causes else "")
        case NoVerdict.NO_RUN:
            return _causes_text(row.gaps[0].causes) if row.gaps else "no run has a result"
        case NoVerdict.ONE_RUN:
            return "one run gives no interval"


def gap_text(gap: Gap) -> str:
    """`block 3: not run yet`."""
    return f"block {gap.block}: {_causes_text(gap.causes)}"


def _causes_text(causes: Sequence[Missing]) -> str:
    return "; ".join(map(missing_text, causes))


def missing_text(reason: Missing) -> str:
    """Why a value is missing."""
    match reason:
        case NotRun():
            return "not run yet"
        case Failed(outcome, detail):
            return f"{outcome}: {detail}"
        case PhasesNotTimed():
            return "phases are timed in unit phase with sync timing only"
        case Unsteady():
            return f"no steady state: {unsteady_text(reason)}"
        case ParityNotProven(implementation, verdict):
            return f"parity of {implementation}: {verdict}"
        case LedgersDiffer(fields):
            return f"ledgers differ in {', '.join(fields)}"
        case NotPositive(value):
            return f"{value} is no positive number"
        case TooFewValues(count):
            return f"{count} values are too few for a slope"
    raise TypeError(f"{type(reason).__name__} has no wording")


def unsteady_text(reason: Unsteady) -> str:
    """Why a run has no steady state."""
    match reason.cause:
        case UnsteadyCause.TOO_SHORT:
            return f"{reason.count} iterations are too few; at least {FEWEST + 1} are needed"
        case UnsteadyCause.NOT_POSITIVE:
            return "not every duration is a positive number"
        case UnsteadyCause.LAST_LEVEL:
            return f"the last level holds for {reason.amount:.0f} of {reason.count} iterations only"
        case UnsteadyCause.DRIFT:
            return f"drifts by {100 * reason.amount:+.1f} % over {reason.count} iterations"
        case UnsteadyCause.WANDER:
            return f"wanders by {100 * reason.amount:.1f} %"


def no_break_even_text(reason: NoBreakEven | None, a: Cell, b: Cell) -> str:
    """Why neither of two cells overtakes the other; empty where one does."""
    match reason:
        case None:
            return ""
        case NoBreakEven.NO_COMPLETE_BLOCK:
            return "no complete block"
        case NoBreakEven.SAME_TIME:
            return "both take the same time"
        case NoBreakEven.A_AHEAD | NoBreakEven.B_AHEAD:
            ahead = a if reason is NoBreakEven.A_AHEAD else b
            return f"{ahead.variant} is ahead from the start and stays so"


def disagreement_text(found: Disagreement) -> str:
    """`dtype is 'float32' and 'float64'`."""
    first, second = found.values
    return f"{found.field} is {first!r} and {second!r}"


def extra_work_text(found: ExtraWork | None) -> str:
    """`8192 more rows (2.1 % more FLOPs)`."""
    return f"{found.rows} more rows ({100 * found.share:.2g} % more FLOPs)" if found else "none"


def setting_text(setting: Setting) -> str:
    """`ppo, async, cpu, 1 thread`."""
    threads = f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
    return f"{setting.algorithm}, {setting.timing}, {setting.device}, {threads}"


def comparison_columns(row: Comparison) -> dict[str, Any]:
    """A comparison as columns of a table, with its words."""
    return {
        "ratio": row.ratio,
        "low": row.low,
        "high": row.high,
        "verdict": str(row.verdict or NO_VERDICT),
        "blocks": row.n,
        "cells": row.cells,
        "detectable": row.mde,
        "text": comparison_text(row),
        "reason": remarks_text(row),
    }


def remarks_text(row: Comparison) -> str:
    """Why there is no verdict, and how many blocks or cells are not in the ratio; empty where neither applies."""
    left_out = len(row.gaps) + len(row.left_out)
    return "; ".join(filter(None, (reason_text(row), f"{left_out} left out" if left_out else "")))


def comparison_record(row: Comparison) -> dict[str, Any]:
    """A comparison as JSON has it: all numbers, and reasons in words."""
    names = [x.name for x in fields(row) if x.name not in ("gaps", "left_out", "reason")]
    left_out = [f"{cell.name}: {reason_text(cell)}" for cell in row.left_out]
    words = {"missing": [*map(gap_text, row.gaps), *left_out], "reason": reason_text(row)}
    return {name: getattr(row, name) for name in names} | words
