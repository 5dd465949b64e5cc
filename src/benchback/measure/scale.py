"""How far a backend scales: throughput and memory over the number of environments, the width and the threads.

Every point is a fresh process, run once per block in an order shuffled anew; from a common base one axis is varied at
a time. Importing this imports no framework.
"""

import csv
import json
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchback import registry
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.process import run_cell
from benchback.measure.record import Cell, Record
from benchback.run import Run

AXES = {"envs": (1, 4, 16, 64, 256, 1024, 4096), "width": (16, 64, 256, 1024), "threads": (1, 2, 4, 8, 16, 32, 64)}
"""What can be varied; of the threads, those that this process has processors for."""
BASE = {"envs": 64, "width": 64, "threads": 1}
ITERATIONS = 6
WARM_UP_CALLS = 2
TIMEOUT_S = 900.0
KNEE = 0.8
"""The knee is the smallest value that gives this part of the best throughput: beyond it more buys little."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Point:
    """One value on one axis, for one backend."""

    backend: str
    axis: str
    value: int
    cell: Cell


def points_for(
    *, backends: Sequence[str] = (), axes: Sequence[str] = (), env: str = "CartPole-v1", largest: int | None = None
) -> list[Point]:
    """The points of the given choices; a torch backend uses torch's own environment where there is one."""
    for axis in axes:
        registry.choose("axis", axis, AXES)
    return [
        Point(name, axis, value, cell_for(name, env, BASE | {axis: value}))
        for name in backends or ("linen", "pytorch")
        for axis in axes or AXES
        for value in values_on(axis)
        if largest is None or value <= largest
    ]


def values_on(axis: str) -> list[int]:
    """The values of an axis that can be run here."""
    most = len(machine.allowed_processors()) if axis == "threads" else max(AXES[axis])
    return [value for value in AXES[axis] if value <= most]


def cell_for(backend: str, env: str, at: dict[str, int]) -> Cell:
    """PPO with the given number of environments, width and threads."""
    registry.choose("backend", backend, registry.BACKENDS)
    suite = "torch" if registry.BACKENDS[backend].family == "torch" else "gymnax"
    fields = {
        "backend": backend,
        "env": f"{suite}/{env}",
        "num_envs": at["envs"],
        "num_steps": 64,
        "num_epochs": 4,
        "num_minibatches": 4,
        "num_iterations": ITERATIONS,
        "hidden_sizes": [at["width"]] * 2,
    }
    run = Run.from_dict(fields).to_dict()
    return Cell({name: x for name, x in run.items() if name != "seed"}, "sync", at["threads"])


def run(
    points: Sequence[Point],
    blocks: int,
    progress: Progress = lambda what, done, total: None,
    keep: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """One row per run: where, how fast, how much memory, or why not; each is given to `keep` as soon as it is there."""
    if blocks < 1:
        raise InputError(f"blocks={blocks} must be at least 1")
    order, rows = random.Random(0), []
    for block in range(blocks):
        shuffled = list(points)
        order.shuffle(shuffled)
        for done, point in enumerate(shuffled):
            what = f"{point.backend} {point.axis} {point.value}"
            progress(what, block * len(points) + done, blocks * len(points))
            rows.append(run_point(point, block))
            keep(rows[-1])
    progress("done", blocks * len(points), blocks * len(points))
    return rows


def run_point(point: Point, block: int) -> dict[str, Any]:
    """The row of one run."""
    ended = run_cell(point.cell, block, TIMEOUT_S)
    place = {"backend": point.backend, "axis": point.axis, "value": point.value, "block": block}
    if ended.outcome == "ok":
        return place | measured(Record.from_dict(ended.messages[0]["record"])) | {"error": ""}
    return place | {"error": f"{ended.outcome}: {ended.detail}"}


def measured(record: Record) -> dict[str, float]:
    """Throughput of whole iterations, rollouts and updates after warm-up, and the memory they took."""
    steps = record.ledger["env_steps_per_call"]

    def rate(name: str) -> float:
        return steps / statistics.median(x for x in record.samples[name][WARM_UP_CALLS:] if x is not None)

    return {
        "steps_per_s": rate("total_s"),
        "rollout_steps_per_s": rate("rollout_s"),
        "update_steps_per_s": rate("update_s"),
        "peak_rss_bytes": record.memory["peak_rss_bytes"],
    }


FIGURES = ("steps_per_s", "rollout_steps_per_s", "update_steps_per_s", "peak_rss_bytes")


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per point: medians over blocks with their range, and whether the knee lies there."""
    lines = []
    for backend, axis in dict.fromkeys((row["backend"], row["axis"]) for row in rows):
        mine = sorted((r for r in rows if (r["backend"], r["axis"]) == (backend, axis)), key=lambda r: r["value"])
        values = dict.fromkeys(row["value"] for row in mine)
        points = [line_of(backend, axis, value, [r for r in mine if r["value"] == value]) for value in values]
        bend = knee(points)
        lines += [line | {"knee": line["value"] == bend} for line in points]
    return lines


def line_of(backend: str, axis: str, value: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One point over all its blocks."""
    good = [row for row in rows if not row["error"]]
    line: dict[str, Any] = {"backend": backend, "axis": axis, "value": value, "blocks": len(good)}
    for name in FIGURES:
        line[name] = statistics.median(row[name] for row in good) if good else None
    speeds = [row["steps_per_s"] for row in good]
    line |= {"slowest": min(speeds, default=None), "fastest": max(speeds, default=None)}
    return line | {"error": next((row["error"] for row in rows if row["error"]), "")}


def knee(lines: Sequence[dict[str, Any]]) -> int | None:
    """The smallest value with at least KNEE of the best throughput."""
    known = [line for line in lines if line["steps_per_s"]]
    if len(known) < 2:
        return None
    best = max(line["steps_per_s"] for line in known)
    return min(line["value"] for line in known if line["steps_per_s"] >= KNEE * best)


def keeper(out: Path) -> Callable[[dict[str, Any]], None]:
    """Adds rows to runs.jsonl in a folder that the first one makes: a measurement that is broken off loses none."""
    if out.exists():
        raise InputError(f"{out} exists; choose another --out or remove it")

    def keep(row: dict[str, Any]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "runs.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    return keep


def write(lines: Sequence[dict[str, Any]], out: Path) -> None:
    """scale.csv, scale.png and scale.svg in the folder."""
    with (out / "scale.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    if any(line["steps_per_s"] for line in lines):
        for kind in ("png", "svg"):
            draw(lines, out / f"scale.{kind}")


def draw(lines: Sequence[dict[str, Any]], out: Path) -> None:
    """Throughput and memory over each axis, as PNG or SVG by the suffix of `out`."""
    import altair as alt

    known = [line | {"memory_gb": line["peak_rss_bytes"] / 1e9} for line in lines if line["steps_per_s"]]
    titles = {"envs": "environments", "width": "units per hidden layer", "threads": "threads"}
    panels = []
    for axis in dict.fromkeys(line["axis"] for line in known):
        data = alt.Data(values=[line for line in known if line["axis"] == axis])
        at = sorted({line["value"] for line in known if line["axis"] == axis})
        x = alt.X("value:Q", title=titles[axis]).scale(type="log", base=2).axis(values=at)
        color = alt.Color("backend:N").scale(scheme="tableau10")
        base = alt.Chart(data).encode(x=x, color=color)
        speed = alt.Y("steps_per_s:Q", title="environment steps / s").scale(type="log")
        ranges = base.mark_rule().encode(y=alt.Y("slowest:Q"), y2="fastest:Q")
        knees = base.transform_filter("datum.knee").mark_point(size=160, shape="diamond").encode(y=speed)
        lines_over = base.mark_line(point=True).encode(y=speed) + ranges + knees
        memory = base.mark_line(point=True).encode(y=alt.Y("memory_gb:Q", title="peak memory, GB"))
        panels.append(lines_over.properties(width=260, height=200) & memory.properties(width=260, height=110))
    title = alt.Title("Scaling of PPO on CartPole", subtitle="median of blocks, bar: range, diamond: knee")
    alt.hconcat(*panels, title=title).save(str(out), scale_factor=2)
