"""Training over time: seconds of each iteration, what they add up to, who overtakes whom, and what is learnt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchback import stats
from benchback.analysis.claims import ALL
from benchback.analysis.groups import Group, Outcome, env_of, model_of
from benchback.analysis.source import Sampled, SlotRun, Source
from benchback.analysis.table import by_cell, frame, keys
from benchback.analysis.wording import missing_text, no_break_even_text
from benchback.measure.record import Cell

MOST_POINTS = 48
"""Of a line in a chart; places are spread evenly on the logarithm of the iteration."""
CHANGE, STEADY = "change point", "steady from here"
CURVE_POINTS = 30
RESAMPLES = 500
REACHED = 0.9
"""Share of the way from the first to the best return that counts as learnt."""


def places(count: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """At most so many of 0..count-1, dense at the beginning where compiling and warm-up are."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.round(np.geomspace(1, count, most)).astype(int) - 1)


def timeline_table(source: Source) -> pl.DataFrame:
    """Median over blocks of the seconds of an iteration and of those since the start, at some of the iterations.

    Change points are those of one run, the middle one by where it becomes steady.
    """
    rows = []
    for cell, runs in by_cell(source):
        series = [run.sampled for run in runs if run.sampled]
        length = series[0].ledger["iterations_per_call"]
        calls = min(len(x.seconds) for x in series)
        seconds = np.median([x.seconds[:calls] for x in series], axis=0) / length
        starts = zip(starts_s(series), series, strict=True)
        elapsed = np.median([_elapsed(start_s, x.seconds[:calls]) for start_s, x in starts], axis=0)
        marks, unsteady = _changes([x.segment for x in series])
        steady_from = next((at * length + 1 for at, words in marks.items() if words == STEADY), None)
        common = keys(cell) | {"panel": source.titles[cell.id], "example": cell.group in source.examples}
        common |= {"blocks": len(runs), "steady_from": steady_from}
        steps = cell.run["num_envs"] * cell.run["num_steps"] * length
        for at in sorted({*places(calls).tolist(), *(at for at in marks if at < calls)}):
            row = {"iteration": at * length + 1, "seconds": float(seconds[at]), "elapsed_s": float(elapsed[at])}
            row |= {"env_steps": (at + 1) * steps, "change": marks.get(at, "")}
            rows.append(common | row | {"note": unsteady if at == calls - 1 else ""})
    return frame(rows)


def _changes(segments: Sequence[stats.Segment]) -> tuple[dict[int, str], str]:
    """Calls at which the level changes, in words, of the middle run; and why there is no steady state, if so."""
    found = sorted((x for x in segments if x.found), key=lambda x: x.start)
    middle = found[(len(found) - 1) // 2] if found else segments[0]
    marks = dict.fromkeys(middle.changes, CHANGE)
    if middle.reason is None:
        return marks | {middle.start: STEADY}, ""
    return marks, missing_text(middle.reason)


def starts_s(series: Sequence[Sampled]) -> list[float]:
    """Seconds to the end of the first call of each run; of one that loaded its programs, what the others took."""
    compiled = [x.start_s for x in series if not np.isnan(x.start_s)]
    if not compiled:
        return [x.marks["first_call"] for x in series]
    return [float(np.median(compiled)) if np.isnan(x.start_s) else x.start_s for x in series]


def _elapsed(first_call: float, seconds: NDArray) -> NDArray:
    """Seconds since the process was started at the end of every call."""
    return first_call + np.concatenate([[0.0], np.cumsum(seconds[1:])])


def breakeven_table(source: Source) -> pl.DataFrame:
    """After how many environment steps one of two variants has made up for its slower start, in every group."""
    rows = []
    for group in source.groups:
        reference = source.references[group.cells[0].group]
        rival = next((c for c in group.cells if c.variant == reference and not c.twin), None)
        for cell in group.cells:
            if rival is not None and cell.id != rival.id and not cell.twin:
                row = _breakeven_row(group.outcomes[cell.id], group.outcomes[rival.id], cell, rival)
                rows.append(row | {"place": source.place(cell)})
    return frame(rows)


def overtaking(groups: Sequence[Group], slow: str, quick: str) -> list[float]:
    """Environment steps after which the slow starter overtakes the quick one, in every group where that is known."""
    found = []
    for group in groups:
        cells = {cell.variant: cell for cell in group.cells}
        if slow in cells and quick in cells:
            mine, theirs = cells[slow], cells[quick]
            row = _breakeven_row(group.outcomes[mine.id], group.outcomes[theirs.id], mine, theirs)
            if row["overtakes"] == slow and row["low"] is not None and row["high"] is not None:
                found.append(row["env_steps"])
    return found


def _breakeven_row(
    mine: Mapping[int, Outcome], theirs: Mapping[int, Outcome], cell: Cell, rival: Cell
) -> dict[str, Any]:
    found: dict[str, list[float]] = {"cold_a": [], "steady_a": [], "cold_b": [], "steady_b": []}
    for block in sorted(mine.keys() & theirs.keys()):
        measured = [side[block].metrics[name] for side in (mine, theirs) for name in ("cold_start", "steady")]
        values = [x for x in measured if isinstance(x, float)]
        if len(values) == len(found):
            for name, value in zip(found, values, strict=True):
                found[name].append(value)
    even = stats.break_even(found["cold_a"], found["steady_a"], found["cold_b"], found["steady_b"])
    steps = cell.run["num_envs"] * cell.run["num_steps"]
    row = keys(cell) | {"reference": rival.variant, "blocks": len(found["cold_a"])}
    scaled = {"env_steps": even.iterations, "low": even.low, "high": even.high}
    row |= {k: None if x is None or not np.isfinite(x) else x * steps for k, x in scaled.items()}
    row["open_end"] = even.high is not None and not np.isfinite(even.high)
    who = {"a": cell.variant, "b": rival.variant}
    row["overtakes"] = who[even.overtakes] if even.overtakes else "nobody"
    row["who"] = {"a": "this overtakes the reference", "b": "the reference overtakes this"}.get(
        even.overtakes or "", ""
    )
    return row | {"reason": no_break_even_text(even.reason, cell, rival)}


def filled(runs: Sequence[SlotRun]) -> NDArray[np.float64] | None:
    """Returns of every run at every call, the last known one where no episode ended; None where there are none."""
    calls = min(len(run.sampled.returns) for run in runs if run.sampled)
    curves = np.array([run.sampled.returns[:calls] for run in runs if run.sampled])
    if not calls or np.isnan(curves).all(axis=1).any():
        return None
    last = np.maximum.accumulate(np.where(np.isnan(curves), -1, np.arange(calls)), axis=1)
    found = np.take_along_axis(curves, np.maximum(last, 0), axis=1)
    first = int((last < 0).sum(axis=1).max())
    found[:, :first] = np.nan
    return found


def curves_table(source: Source) -> pl.DataFrame:
    """Interquartile mean of the returns of a cell's runs with its bootstrap interval, by steps and by seconds."""
    rows = []
    for cell, runs in by_cell(source):
        curves = filled(runs)
        if curves is None:
            continue
        rows += list(_curve_rows(source, cell, runs, curves))
    return frame(rows)


def _curve_rows(source: Source, cell: Cell, runs: Sequence[SlotRun], curves: NDArray) -> Iterator[dict[str, Any]]:
    calls = curves.shape[1]
    known = np.flatnonzero(~np.isnan(curves).any(axis=0))
    at = known[np.unique(np.linspace(0, len(known) - 1, min(CURVE_POINTS, len(known))).astype(int))]
    band = stats.stratified_bootstrap(
        [curves[:, at]], stats.interquartile_mean, source.generator("curve", cell.id), resamples=RESAMPLES
    )
    series = [run.sampled for run in runs if run.sampled]
    times = [_elapsed(start_s, x.seconds[:calls]) for start_s, x in zip(starts_s(series), series, strict=True)]
    elapsed = np.median(times, axis=0)
    steps = cell.run["num_envs"] * cell.run["num_steps"] * runs[0].sampled.ledger["iterations_per_call"]  # pyright: ignore
    common = keys(cell) | {"panel": source.titles[cell.id]}
    common |= {"example": cell.group in source.examples, "runs": len(runs)}
    for place, *values in zip(at, band.estimate, band.low, band.high, strict=True):
        row = {"env_steps": int(place + 1) * steps, "elapsed_s": float(elapsed[place])}
        yield common | row | dict(zip(("mean", "low", "high"), map(float, values), strict=True))


def thresholds_table(source: Source) -> pl.DataFrame:
    """Seconds until a run has gone 90 % of the way from its group's first return to the best: median over runs."""
    rows = []
    for cells, goal in _goals(source):
        for cell, runs, curves in cells:
            times, series = [], [run.sampled for run in runs if run.sampled]
            for sampled, start_s, curve in zip(series, starts_s(series), curves, strict=True):
                elapsed = _elapsed(start_s, sampled.seconds[: len(curve)])
                times.append(stats.time_to_threshold(elapsed, curve, goal, hold=min(3, len(curve))))
            reached = [x for x in times if x is not None]
            row = keys(cell) | {
                "place": source.place(cell),
                "threshold": goal,
                "reached": len(reached),
                "runs": len(times),
            }
            row["seconds"] = float(np.median(reached)) if len(reached) * 2 > len(times) else None
            row |= {"low": min(reached, default=None), "high": max(reached, default=None)}
            row["reason"] = "" if row["seconds"] is not None else f"{len(reached)} of {len(times)} runs got there"
            rows.append(row)
    return frame(rows)


Learnt = list[tuple[Cell, list[SlotRun], NDArray[np.float64]]]


def _learnt(source: Source) -> Iterator[Learnt]:
    """The cells of each group that have returns, as far as all of them were trained: longer training is no merit."""
    found: dict[str, Learnt] = {}
    for cell, runs in by_cell(source):
        curves = filled(runs)
        if curves is not None:
            found.setdefault(cell.group, []).append((cell, runs, curves))
    yield from filter(None, map(in_common, found.values()))


def in_common(cells: Learnt) -> Learnt:
    """The curves of a group up to the iterations that all its cells have; without those that are unknown so far."""
    lengths = [runs[0].sampled.ledger["iterations_per_call"] if runs[0].sampled else 1 for _, runs, _ in cells]
    iterations = min(curves.shape[1] * length for (_, _, curves), length in zip(cells, lengths, strict=True))
    cut = [
        (cell, runs, curves[:, : max(1, iterations // length)])
        for (cell, runs, curves), length in zip(cells, lengths, strict=True)
    ]
    return [(cell, runs, curves) for cell, runs, curves in cut if not np.isnan(curves[:, -1]).any()]


def ends(cells: Learnt) -> tuple[float, float]:
    """The first return of a group, and the best interquartile mean that one of its cells ends with."""
    first = float(np.median(np.concatenate([curves[:, np.isnan(curves).any(axis=0).sum()] for _, _, curves in cells])))
    best = max(float(stats.interquartile_mean(curves[:, -1])) for _, _, curves in cells)
    return first, best


def _goals(source: Source) -> Iterator[tuple[Learnt, float]]:
    for cells in _learnt(source):
        first, best = ends(cells)
        yield cells, first + REACHED * (best - first)


def profiles_table(source: Source) -> pl.DataFrame:
    """Fraction of runs whose last return is beyond a share of the way to the group's best, with its interval."""
    scores: dict[tuple[Any, ...], dict[str, tuple[Cell, list[NDArray]]]] = {}
    for cells in _learnt(source):
        first, best = ends(cells)
        for cell, _, curves in cells:
            score = (curves[:, -1] - first) / ((best - first) or 1.0)
            for env in (ALL, env_of(cell)):
                for model in (ALL, model_of(cell)):
                    part = scores.setdefault((env, model, cell.timing, cell.device, cell.members), {})
                    part.setdefault(cell.variant, (cell, []))[1].append(score)
    levels = np.linspace(0, 1.2, 25)
    rows = []
    for (env, model, timing, *_), part in scores.items():
        for variant, (cell, strata) in part.items():
            generator = source.generator("profile", env, model, timing, variant)
            band = stats.profile_band(strata, levels, generator, resamples=RESAMPLES)
            common = keys(cell) | {"env": env, "model": model, "runs": sum(map(len, strata))}
            for level, *values in zip(levels, band.estimate, band.low, band.high, strict=True):
                row = dict(zip(("fraction", "low", "high"), map(float, values), strict=True))
                rows.append(common | {"score": float(level)} | row)
    return frame(rows)
