"""What a cell costs, part by part: starting, warming up, settled iterations, phases, memory; medians over blocks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from benchback import stats
from benchback.analysis.source import WINDOWS, SlotRun, Source
from benchback.analysis.table import by_cell, frame, keys
from benchback.analysis.wording import missing_text
from benchback.measure.record import Cell


def overheads_table(source: Source) -> pl.DataFrame:
    """Seconds of the published windows in every cell, also as ratio and difference to the reference."""

    def windows(run: SlotRun) -> dict[str, float]:
        assert run.sampled is not None
        found = stats.windows(run.sampled.seconds) | {"0": run.sampled.start_s}
        return {words: found[name] for name, words in WINDOWS.items()}

    return _against_reference(source, windows)


def phases_table(source: Source) -> pl.DataFrame:
    """Steady seconds of rollout and update in every cell that tells them apart."""

    def phases(run: SlotRun) -> dict[str, float]:
        return _known(run, ("rollout", "update"))

    return _against_reference(source, phases)


def _against_reference(source: Source, parts: Callable[[SlotRun], dict[str, float]]) -> pl.DataFrame:
    medians = {cell.id: _medians([parts(run) for run in runs]) for cell, runs in by_cell(source)}
    rows = []
    for cell, runs in by_cell(source):
        rival = _reference(source, cell)
        for part, seconds in medians[cell.id].items():
            other = medians.get(rival.id, {}).get(part) if rival else None
            row = keys(cell) | {"place": source.place(cell), "part": part, "seconds": seconds, "blocks": len(runs)}
            same = rival is None or rival.id == cell.id
            row |= {"reference": rival.variant if rival else None}
            row["ratio"] = None if same or other is None else seconds / other
            row["difference_s"] = None if same or other is None else seconds - other
            rows.append(row)
    return frame(rows)


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in found for name in row)
    values = {name: [row[name] for row in found if name in row and np.isfinite(row[name])] for name in names}
    return {name: float(np.median(x)) for name, x in values.items() if x}


def _reference(source: Source, cell: Cell) -> Cell | None:
    name = source.references[cell.group]
    same = (c for c in source.cells.values() if c.group == cell.group and c.variant == name)
    return next(same, None)


def modes_table(source: Source) -> pl.DataFrame:
    """Steady and total seconds of backends that were run in more than one mode or unit."""
    ways: dict[str, set[str]] = {}
    for cell, _ in by_cell(source):
        ways.setdefault(cell.run["backend"], set()).add(cell.variant)
    rows = []
    for cell, runs in by_cell(source):
        if len(ways[cell.run["backend"]]) > 1 and _has_siblings(source, cell):
            found = _medians([_known(run, ("steady", "total")) for run in runs])
            way = cell.variant.removeprefix(f"{cell.run['backend']}/")
            rows += [
                keys(cell) | {"way": way, "figure": name, "seconds": value, "blocks": len(runs)}
                for name, value in found.items()
            ]
    return frame(rows)


def _has_siblings(source: Source, cell: Cell) -> bool:
    """Whether the group has another way to run the same backend."""
    mine = (c for c in source.cells.values() if c.group == cell.group and c.run["backend"] == cell.run["backend"])
    return sum(not c.twin for c in mine) > 1


def _known(run: SlotRun, names: Sequence[str]) -> dict[str, float]:
    found = {name: run.outcome.metrics[name] for name in names}
    return {name: value for name, value in found.items() if isinstance(value, float)}


def memory_table(source: Source) -> pl.DataFrame:
    """Growth of host memory after warm-up in every cell, from the run whose slope is the middle one."""
    return frame(list(_memory_rows(source)))


def _memory_rows(source: Source) -> Iterator[dict[str, Any]]:
    for cell, runs in by_cell(source):
        slopes = [_slope(run) for run in runs]
        known = sorted((s for s in slopes if not s.reason), key=lambda s: s.per_iteration)
        peaks = [run.sampled.peaks.get("peak_rss_bytes", np.nan) for run in runs if run.sampled]
        row = keys(cell) | {"peak_mb": float(np.median(peaks)) / 1e6, "blocks": len(runs)}
        if not known:
            reason = missing_text(slopes[0].reason) if slopes[0].reason else ""
            yield row | {"slope": None, "low": None, "high": None, "leak": "unknown", "reason": reason}
            continue
        middle = known[(len(known) - 1) // 2]
        scale = 1000 / 1e6
        leak = "grows" if middle.grows else "flat"
        row |= {"slope": middle.per_iteration * scale, "low": middle.low * scale, "high": middle.high * scale}
        yield row | {"leak": leak, "reason": ""}


def _slope(run: SlotRun) -> stats.Slope:
    """Bytes per iteration once the allocator has filled its pools: the last three quarters of the run."""
    assert run.sampled is not None
    memory = run.sampled.memory
    found = stats.robust_slope(memory[len(memory) // 4 :])
    length = run.sampled.ledger["iterations_per_call"]
    return stats.Slope(found.per_iteration / length, found.low / length, found.high / length, found.reason)
