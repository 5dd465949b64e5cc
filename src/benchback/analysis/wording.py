"""The words for ratios, verdicts and reasons: one place, so that terminal, page, Markdown and JSON say the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from benchback.analysis.evidence import LIMIT, Evidence
from benchback.analysis.groups import Setting
from benchback.analysis.ranges import Range
from benchback.analysis.reasons import Deviates, LedgersDiffer, ParityNotProven
from benchback.measure.flops import ExtraWork
from benchback.measure.metrics import CachesNotEmpty, Failed, NotRun, PhasesNotTimed
from benchback.measure.record import Cell
from benchback.measure.verify import Disagreement
from benchback.registry import BACKENDS
from benchback.stats import (
    Comparison,
    Gap,
    Missing,
    NoBreakEven,
    NoCommonRound,
    NoFall,
    NotPositive,
    NoVerdict,
    StillRising,
    Together,
    TooFewPoints,
    TooFewValues,
    Unsteady,
    UnsteadyCause,
    Verdict,
)
from benchback.stats.steady import FEWEST

NO_VERDICT = "no verdict"
NEEDS_BLOCKS = "needs more blocks"
WIDEST_TIE = 1.0
"""A tie that leaves room for more than twice the time says no more than that blocks are missing."""


def variant_name(cell: Cell) -> str:
    """`Flax NNX, split` of `nnx/split/phase`; other units and suites, and reordered gradients, are said."""
    backend = str(cell.run["backend"])
    unit = "" if cell.unit == "phase" else f", unit {cell.unit}"
    reordered = ", reordered" if "reordered" in cell.variant.split("/") else ""
    suite = f", {cell.other_suite} environments" if cell.other_suite else ""
    copy = " (A/A copy)" if cell.twin else ""
    return f"{backend_name(backend)}, {cell.run['mode']}{unit}{reordered}{suite}{copy}"


def backend_name(backend: str) -> str:
    """`Flax NNX` of `nnx`."""
    return BACKENDS[backend].title if backend in BACKENDS else backend


def short_names(cells: Sequence[Cell]) -> dict[str, str]:
    """Variant -> the name of its backend, where no other variant here has the same; else with its mode."""
    backends = [cell.run["backend"] for cell in {cell.variant: cell for cell in cells}.values()]
    alone = {name for name in backends if backends.count(name) == 1}
    return {
        cell.variant: backend_name(cell.run["backend"]) if cell.run["backend"] in alone else variant_name(cell)
        for cell in cells
    }


def ratio_text(ratio: float, low: float | None, high: float | None, widest: float = math.inf) -> str:
    """`1.02x [1.01, 1.03]`, with as many decimals as the interval deserves.

    `1.4x [?]` where the interval, end over end, is wider than `widest`.
    """
    if low is not None and high is not None and high > widest * low:
        return f"{ratio:.2g}x [?]"
    return f"{number_text(ratio, low, high)}x {interval_text(low, high)}".rstrip()


def number_text(ratio: float, low: float | None, high: float | None) -> str:
    """`1.02`: with as many decimals as its interval deserves, two or three."""
    return f"{ratio:.{_decimals(low, high)}f}"


def interval_text(low: float | None, high: float | None) -> str:
    """`[1.01, 1.03]`; empty where there is none."""
    if low is None or high is None:
        return ""
    return f"[{low:.{_decimals(low, high)}f}, {high:.{_decimals(low, high)}f}]"


def _decimals(low: float | None, high: float | None) -> int:
    if low is None or high is None:
        return 2
    return min(max(-math.floor(math.log10(max(high - low, 1e-9))), 2), 3)


def range_text(found: Range) -> str:
    """`1.30x (large) to 8.50x (small)`, the smaller ratio first."""
    return " to ".join(f"{times_text(point.comparison)} ({point.value})" for point in (found.lowest, found.highest))


def times_text(row: Comparison) -> str:
    """`1.02x`, with the digits that it has everywhere; a dash where there is no ratio."""
    return "-" if row.ratio is None else f"{number_text(row.ratio, row.low, row.high)}x"


def comparison_text(row: Comparison, along: Range | None = None) -> str:
    """`1.02x [1.01, 1.03] slower`, the range along an axis, or why there is no ratio."""
    if along is not None:
        return f"{range_text(along)} {along.verdict or 'depending on it'}"
    if row.ratio is None:
        return reason_text(row)
    return f"{ratio_text(row.ratio, row.low, row.high)} {verdict_text(row) or '(one block)'}"


def verdict_text(row: Comparison) -> str:
    """`slower`, `faster`, `tie below 1.3 %`, `needs more blocks`; empty without a verdict."""
    if row.verdict in (None, Verdict.FASTER, Verdict.SLOWER):
        return str(row.verdict or "")
    return NEEDS_BLOCKS if row.at_most is None or row.at_most > WIDEST_TIE else f"tie below {percent(row.at_most)}"


def percent(share: float) -> str:
    """`1.3 %`, `25 %`: two digits, rounded up, as a bound must be."""
    decimals = max(0, 1 - math.floor(math.log10(max(100 * share, 0.1))))
    return f"{math.ceil(round(100 * share * 10**decimals, 6)) / 10**decimals:.{decimals}f} %"


def evidence_text(found: Evidence) -> str:
    """Whether the timed runs computed the same, in a sentence without its full stop."""
    if not found.pairs:
        return "Whether these very runs computed the same was not compared"
    pairs = f"{found.pairs} pair{'s' if found.pairs != 1 else ''}"
    if not found.largest:
        return f"These very runs computed the same: no deviation ({pairs})"
    where = f"{found.metric.replace('_', ' ')}, iteration {found.iteration + 1}, {pairs}"
    if found.deviating:
        many = f"{found.deviating} of {pairs} deviate by more than {LIMIT:.0%} and are not compared"
        return f"Not all of these runs computed the same: {many}; largest deviation {found.largest:.1g} ({where})"
    return f"These very runs computed the same: largest deviation {found.largest:.1g} ({where})"


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
        case NoVerdict.NO_COMMON_CELL:
            return "no cell has two complete blocks of every variant"
        case NoVerdict.DIFFERS:
            return "the ratio differs between cells by more than their intervals"
        case NoVerdict.NO_RUN:
            return _causes_text(row.gaps[0].causes) if row.gaps else "no run has a result"
        case NoVerdict.ONE_RUN:
            return "one run gives no interval"


def gap_text(gap: Gap) -> str:
    """`block 3: not run yet`."""
    return f"block {gap.block}: {_causes_text(gap.causes)}"


def _causes_text(causes: Sequence[Missing]) -> str:
    return "; ".join(dict.fromkeys(map(missing_text, causes)))


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
        case ParityNotProven(proof, verdict):
            return f"parity of {proof}: {verdict}"
        case LedgersDiffer(fields):
            return f"ledgers differ in {', '.join(fields)}"
        case Deviates(metric, iteration, deviation):
            words = f"{metric.replace('_', ' ')} of iteration {iteration + 1}"
            return f"did not compute the same: {words} deviates by {deviation:.1%}"
        case NotPositive(value):
            return f"{value} is no positive number"
        case NoCommonRound(rounds):
            return f"{rounds} common rounds are too few for a ratio"
        case CachesNotEmpty():
            return "compiled programs were loaded, so that this start is no cold one"
        case TooFewValues(count):
            return f"{count} values are too few for a slope"
        case TooFewPoints(count):
            return f"too few points ({count})"
        case StillRising(largest):
            return f"still rising at {largest:,g}"
        case NoFall(largest):
            return f"none up to {largest:,g}"
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


def even_text(found: Together) -> str:
    """`from 12 agents on`, or `not up to 1,024 agents`."""
    if found.agents is None:
        return f"not up to {found.most:,} agents"
    return f"from {found.agents:,} agent{'s' if found.agents > 1 else ''} on"


def disagreement_text(found: Disagreement) -> str:
    """`dtype is 'float32' and 'float64'`."""
    first, second = found.values
    return f"{found.field} is {first!r} and {second!r}"


def extra_work_text(found: ExtraWork | None) -> str:
    """`8192 more rows (2.1 % more FLOPs)`."""
    return f"{found.rows} more rows ({100 * found.share:.2g} % more FLOPs)" if found else "none"


def machine_name(fingerprint: Mapping[str, Any]) -> str:
    """`AMD EPYC, 2 CPUs, 25 GB, Linux 6.18, CPython 3.11.7`, of what is known."""
    cpus, memory = fingerprint.get("cpus_allowed", fingerprint.get("cpus")), fingerprint.get("memory_bytes")
    known = [fingerprint.get("cpu"), f"{cpus} CPU{'s' if cpus != 1 else ''}" if cpus else None, fingerprint.get("gpu")]
    known += [f"{memory / 1e9:.0f} GB" if memory else None, fingerprint.get("system"), fingerprint.get("python")]
    return ", ".join(str(x) for x in known if x)


def setting_text(setting: Setting) -> str:
    """`ppo, async, cpu, 1 thread`, and `64 agents` where there are several."""
    threads = f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
    agents = f", {setting.agents} agents" if setting.agents > 1 else ""
    return f"{setting.algorithm}, {setting.timing}, {setting.device}, {threads}{agents}"


def comparison_columns(row: Comparison, along: Range | None = None) -> dict[str, Any]:
    """A comparison as columns of a table, with its words; of a range both ends, and no ratio."""
    verdict = along.verdict if along else row.verdict
    ends = [None, None] if along is None else [x.comparison.ratio for x in (along.lowest, along.highest)]
    return {
        "ratio": row.ratio,
        "low": row.low,
        "high": row.high,
        "along": along.axis if along else "",
        "lowest": ends[0],
        "highest": ends[1],
        "verdict": str(verdict or NO_VERDICT),
        "blocks": row.n,
        "cells": row.cells,
        "half_width": row.half_width,
        "detectable": row.mde,
        "text": comparison_text(row, along),
        "reason": remarks_text(row),
        **printed(row, along),
    }


def printed(row: Comparison, along: Range | None = None, inverse: bool = False) -> dict[str, str]:
    """A ratio as tables of the page print it: its lower and upper end, which are the same of one number, its interval.

    With `inverse`, that of the other variant to this one. The digits are rounded here: the page, whose numbers are
    rounded for it, would round them a second time.
    """
    rows = [row, row] if along is None else [along.lowest.comparison, along.highest.comparison]
    found = [(x.ratio, x.low, x.high) for x in rows]
    if inverse:
        found = [(_over(ratio), _over(high), _over(low)) for ratio, low, high in reversed(found)]
    least, most = ("" if ratio is None else number_text(ratio, low, high) for ratio, low, high in found)
    span = "" if along or least == "" else interval_text(*found[0][1:])
    names = ("inverse_least", "inverse_most", "inverse_span") if inverse else ("least", "most", "span")
    return dict(zip(names, (least, most, span), strict=True))


def _over(value: float | None) -> float | None:
    return None if value is None else 1 / value


def remarks_text(row: Comparison) -> str:
    """Why there is no verdict, and how many blocks or cells are not in the ratio; empty where neither applies."""
    left_out = len(row.gaps) + len(row.left_out)
    return "; ".join(filter(None, (reason_text(row), f"{left_out} left out" if left_out else "")))


def comparison_record(row: Comparison) -> dict[str, Any]:
    """A comparison as JSON has it: all numbers, and reasons in words."""
    names = [x.name for x in fields(row) if x.name not in ("gaps", "left_out", "reason", "estimate")]
    left_out = [f"{cell.name}: {reason_text(cell) or 'another variant has no result in it'}" for cell in row.left_out]
    words = {"missing": [*map(gap_text, row.gaps), *left_out], "reason": reason_text(row)}
    return {name: getattr(row, name) for name in names} | {"half_width": row.half_width} | words


def range_record(found: Range | None) -> dict[str, Any] | None:
    """A range as JSON has it."""
    if found is None:
        return None
    points = [{"value": point.value} | comparison_record(point.comparison) for point in found.points]
    return {"axis": found.axis, "verdict": found.verdict, "points": points}
