"""Tables of a store: the columns that all have, a row per run, and runs by cell. Nothing is left out silently."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from benchback import stats
from benchback.analysis.groups import env_of, model_of
from benchback.analysis.source import Sampled, SlotRun, Source
from benchback.analysis.wording import missing_text, variant_name
from benchback.measure.metrics import METRICS, PhasesNotTimed
from benchback.measure.record import Cell
from benchback.stats import Missing


def keys(cell: Cell) -> dict[str, Any]:
    """The columns by which every table can be filtered, and who the row is about."""
    shown = {
        "algorithm": str(cell.run["algorithm"]),
        "env": env_of(cell),
        "model": model_of(cell),
        "backend": str(cell.run["backend"]),
    }
    shown |= {"mode": str(cell.run["mode"]), "device": cell.device, "timing": cell.timing, "agents": str(cell.members)}
    return shown | {"variant": cell.variant, "name": variant_name(cell), "unit": str(cell.run["unit"])}


def runs_table(source: Source) -> pl.DataFrame:
    """A row per slot, with every metric or the reason why there is none. Copies of an A/A pair are marked."""
    return frame([_run_row(source, run) for run in source.runs])


def _run_row(source: Source, run: SlotRun) -> dict[str, Any]:
    row = keys(run.cell) | {"run": run.slot.id, "block": run.slot.block, "order": run.slot.order, "twin": run.cell.twin}
    row["complexity"] = source.complexity.get(env_of(run.cell))
    row["place"] = source.place(run.cell)
    row["outcome"] = run.attempt.outcome if run.attempt else "not run"
    row["tags"] = " ".join(run.attempt.tags) if run.attempt else ""
    reasons = []
    for name in METRICS:
        value = run.outcome.metrics[name]
        row[f"{name}_s"] = value if isinstance(value, float) else None
        if isinstance(value, Missing) and not isinstance(value, PhasesNotTimed):
            reasons.append(missing_text(value))
    row |= _details(run.sampled)
    row["reason"] = "; ".join(dict.fromkeys(reasons))
    return row


def _details(sampled: Sampled | None) -> dict[str, Any]:
    names = ("iteration_0_s", "warmup_s", "settled_s", "steady_start", "final_return", "peak_mb", "device_mb")
    if sampled is None:
        return dict.fromkeys(names)
    windows = stats.windows(sampled.seconds)
    known = sampled.returns[~np.isnan(sampled.returns)]
    device = sampled.peaks.get("peak_device_bytes")
    return {
        "iteration_0_s": sampled.marks["first_call"],
        "warmup_s": windows["1:7"],
        "settled_s": windows["7:"],
        "steady_start": sampled.segment.start if sampled.segment.found else None,
        "final_return": float(known[-1]) if len(known) else None,
        "peak_mb": sampled.peaks.get("peak_rss_bytes", np.nan) / 1e6,
        "device_mb": None if device is None else device / 1e6,
    }


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a table; NaN, which says nothing, is null."""
    if not rows:
        return pl.DataFrame()
    made = pl.DataFrame(rows, infer_schema_length=None)
    return made.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))


def by_cell(source: Source, twins: bool = False) -> Iterator[tuple[Cell, list[SlotRun]]]:
    """Every cell with its runs that have a result, in order of mention; copies of A/A pairs only if asked for."""
    found: dict[str, list[SlotRun]] = {}
    for run in source.runs:
        if run.sampled is not None:
            found.setdefault(run.cell.id, []).append(run)
    for id, cell in source.cells.items():
        if id in found and (twins or not cell.twin):
            yield cell, sorted(found[id], key=lambda run: run.slot.block)
