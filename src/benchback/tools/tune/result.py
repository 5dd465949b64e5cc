"""Results of a tuning: a line per point, best first, and its files. The score is the mean return at the end."""

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from benchback.analysis.reader import accepted_attempts, stored_attempts
from benchback.measure.record import Record
from benchback.measure.store import Store
from benchback.measure.study import Study
from benchback.report.drawing import draw
from benchback.stats.ratios import bounds, estimate
from benchback.training.checkpoint import write_atomically

LAST = 0.1
"""Part of the iterations, from the end, whose episodes are scored."""
MOST_DRAWN = 40
NO_EPISODE = "no episode ended"

Line = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A finished tuning."""

    name: str
    lines: list[Line]
    """Best first."""
    seeds: int
    best: dict[str, Any] | None = None
    """The run of the best point, of full length; None if no point has a score."""
    scale: float = 1.0
    method: str = "runs"


def score(record: Record) -> float | None:
    """Mean return of the episodes that ended in the last tenth of the iterations; None if none did."""
    returns = record.samples.get("episode_return", [])
    last = [x for x in returns[len(returns) - math.ceil(LAST * len(returns)) :] if x is not None]
    return statistics.fmean(last) if last else None


def lines_of(store: Store, tuning: Study) -> list[Line]:
    """A line per point, best mean first; points that lack a seed come after those that have all."""
    stratum = len(store.strata()) - 1
    found: dict[str, dict[int, float | None]] = {}
    for slot, _, attempt in accepted_attempts(store, stratum):
        if attempt.record is not None:
            found.setdefault(slot.cell, {})[slot.block] = score(attempt.record)
    errors = {slot.cell: attempt.detail for slot, _, attempt in stored_attempts(store) if attempt.outcome != "ok"}
    varied = list(tuning.products[0].rows())
    lines = [
        _line(entry.index, _set_by(tuning, varied[entry.index]), found.get(entry.cell.id, {}))
        | {"error": errors.get(entry.cell.id, "") if len(found.get(entry.cell.id, {})) < tuning.min_blocks else ""}
        for entry in tuning.entries
    ]
    return ranked(lines, tuning.min_blocks)


def lines_from(rows: Sequence[Mapping[str, Any]], seeds: int) -> list[Line]:
    """A line for each row of a search: those trained longest first, then by mean, those that lack a seed last."""
    lines = [
        _line(row["point"], row["values"], dict(enumerate(row["scores"])))
        | {"iterations": row["iterations"], "error": "" if any(x is not None for x in row["scores"]) else NO_EPISODE}
        for row in rows
    ]
    return ranked(lines, seeds)


def ranked(lines: Sequence[Line], seeds: int) -> list[Line]:
    """The lines, best first, with their ranks: one more than the number of those whose whole interval lies above.

    Points that lack a seed come last, and those that were trained longer before others. A line without an interval has
    its place as its rank.
    """

    def place_of(line: Line) -> tuple[Any, ...]:
        return (line["seeds"] < seeds, -line.get("iterations", 0), -_or_worst(line["score"]), line["point"])

    found: list[Line] = []
    for _, alike in groupby(sorted(lines, key=place_of), lambda line: place_of(line)[:2]):
        together = list(alike)
        lows = [x["low"] for x in together if x["low"] is not None]
        first = len(found) + 1
        for place, line in enumerate(together):
            above = place if line["low"] is None else sum(low > line["high"] for low in lows)
            found.append(line | {"rank": first + above})
    return found


def outcome_of(lines: list[Line], tuning: Study) -> Outcome:
    """The outcome of a tuning through the harness."""
    return Outcome(tuning.name, lines, tuning.min_blocks, best_run(lines, tuning), tuning.scale)


def _set_by(tuning: Study, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a point sets, without those that all share."""
    point = tuning.products[0].axes["point"]
    return {name: row.get(name) for name in dict.fromkeys(name for values in point for name in values)}


def _line(index: int, values: Mapping[str, Any], scores: Mapping[int, float | None]) -> Line:
    known = [x for _, x in sorted(scores.items()) if x is not None]
    low, high = bounds(estimate(known)) if len(known) > 1 else (None, None)
    return {
        "point": index,
        "values": dict(values),
        "score": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
        "low": low,
        "high": high,
        "seeds": len(known),
        "scores": known,
    }


def _or_worst(value: float | None) -> float:
    return -math.inf if value is None else value


def best_run(lines: Sequence[Line], tuning: Study) -> dict[str, Any] | None:
    """The run of the best point, of full length also where the tuning was scaled; None if no point has a score."""
    if not lines or lines[0]["score"] is None:
        return None
    full = replace(tuning, scale=1.0)
    return dict(next(entry.cell.run for entry in full.entries if entry.index == lines[0]["point"]))


def write(outcome: Outcome, out: Path) -> list[Path]:
    """results.csv, best.yaml, scores.png and scores.svg in the folder of the tuning, replaced if they are there."""
    paths, lines = [out / "results.csv"], outcome.lines
    _write_csv(outcome, paths[0])
    if outcome.best is not None:
        paths += [out / "best.yaml", out / "scores.svg", out / "scores.png"]
        write_atomically(paths[1], _heading(outcome) + yaml.safe_dump(outcome.best, sort_keys=False))
        for path, drawn in zip(paths[2:], draw(specification(lines, outcome.name)), strict=True):
            write_atomically(path, drawn)
    return paths


def _heading(outcome: Outcome) -> str:
    line = outcome.lines[0]
    spread = "" if line["std"] is None else f" +- {line['std']:.4g}"
    scaled = "" if outcome.scale == 1.0 else f", tuned with its iterations times {outcome.scale:g}"
    got = f"return {line['score']:.4g}{spread} over {line['seeds']} seeds{scaled}"
    return f"# {outcome.name}, point {line['point']}: {got}\n"


def _write_csv(outcome: Outcome, path: Path) -> None:
    lines, seeds = outcome.lines, [f"score_{i}" for i in range(outcome.seeds)]
    trained = ["iterations"] if "iterations" in lines[0] else []
    fields = [*lines[0]["values"], *("score", "std", "low", "high", "seeds"), *trained, *seeds, "error"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=["rank", "point", *fields], extrasaction="ignore")
        writer.writeheader()
        for line in lines:
            values = {name: text(x) for name, x in line["values"].items()}
            writer.writerow(values | line | dict(zip(seeds, line["scores"], strict=False)))


def text(value: Any) -> str:
    """A value as it is given on the command line."""
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def label(values: Mapping[str, Any]) -> str:
    """The fields that a point sets, in one line."""
    return " ".join(f"{name}={text(x)}" for name, x in values.items())


def labels(tuning: Study) -> dict[str, str]:
    """Cell -> the fields that its point sets, in one line."""
    varied = list(tuning.products[0].rows())
    return {entry.cell.id: label(_set_by(tuning, varied[entry.index])) for entry in tuning.entries}


def specification(lines: Sequence[Line], title: str) -> dict[str, Any]:
    """A row per point, best on top: every seed a tick, the mean a dot, a standard deviation to either side a bar."""
    rows = []
    for line in (x for x in lines[:MOST_DRAWN] if x["score"] is not None):
        std = line["std"] or 0.0
        place = {"at": f"{label(line['values'])} ({line['point']})", "score": line["score"]}
        rows.append(place | {"low": line["score"] - std, "high": line["score"] + std, "seed": None})
        rows += [place | {"seed": x} for x in line["scores"]]
    y = {"field": "at", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 420}}
    x = {"type": "quantitative", "scale": {"zero": False}, "title": "return in the last tenth of training"}

    def layer(mark: dict[str, Any], keep: str, **encoding: Any) -> dict[str, Any]:
        return {"transform": [{"filter": keep}], "mark": mark, "encoding": {"y": y} | encoding}

    mean, seed = "datum.seed === null", "datum.seed !== null"
    low, high = {"field": "low"} | x, {"field": "high"}
    layers = [
        layer({"type": "rule", "strokeWidth": 2, "color": "#0072b2"}, mean, x=low, x2=high),
        layer({"type": "tick", "color": "#7f7f7f"}, seed, x={"field": "seed"} | x),
        layer({"type": "point", "filled": True, "size": 60, "color": "#0072b2"}, mean, x={"field": "score"} | x),
    ]
    about = {"text": title, "subtitle": "dot: mean, bar: standard deviation, ticks: seeds", "anchor": "start"}
    return {"data": {"values": rows}, "title": about, "width": 420, "height": {"step": 18}, "layer": layers}
