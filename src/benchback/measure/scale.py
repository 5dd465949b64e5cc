"""How far a backend scales: throughput and memory over the number of environments, the width and the threads.

A study like any other: from a common base one axis is varied at a time, and every point is a fresh process in each
block. Its summary and drawing are made from the store. Importing this imports no framework.
"""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchback import registry
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.record import Attempt, Cell, Record
from benchback.measure.results import failure, latest
from benchback.measure.store import Store
from benchback.measure.study import Product, Study

AXES = {"envs": (1, 4, 16, 64, 256, 1024, 4096), "width": (16, 64, 256, 1024), "threads": (1, 2, 4, 8, 16, 32, 64)}
"""The axes and their values; thread counts up to this process's processors."""
BASE = {"envs": 64, "width": 64, "threads": 1}
ITERATIONS = 6
WARM_UP_CALLS = 2
TIMEOUT_S = 900.0
KNEE = 0.8
"""The knee is the smallest value that gives this part of the best throughput: beyond it returns diminish."""
FIXED = {"num_steps": 64, "num_epochs": 4, "num_minibatches": 4, "num_iterations": ITERATIONS, "timing": "sync"}
FIGURES = ("steps_per_s", "rollout_steps_per_s", "update_steps_per_s", "peak_rss_bytes")


def study_for(
    *,
    backends: Sequence[str] = (),
    axes: Sequence[str] = (),
    env: str = "CartPole-v1",
    largest: int | None = None,
    blocks: int = 3,
) -> Study:
    """A study with a product for each axis, labelled with it; the base is run once for all axes that hold it."""
    if blocks < 1:
        raise InputError(f"blocks={blocks} must be at least 1")
    for axis in axes:
        registry.choose("axis", axis, AXES)
    products = [
        Product(label=axis, fixed=FIXED, axes={"point": [fields_at(name, env, BASE | {axis: x}) for name, x in points]})
        for axis in axes or AXES
        if (points := points_on(axis, backends or registry.one_of_each_family(), largest))
    ]
    if not products:
        raise InputError(f"largest={largest} leaves no value on any axis; choose a larger one")
    options = {"timeout_s": TIMEOUT_S, "aa": False, "rerun_noisy": False}
    # Cells do different work: there is nobody to take turns with.
    return Study("scale", tuple(products), min_blocks=blocks, max_blocks=blocks, protocol="runs", **options)


def points_on(axis: str, backends: Sequence[str], largest: int | None) -> list[tuple[str, int]]:
    """Backends and the values of an axis that can be run here."""
    values = [value for value in values_on(axis) if largest is None or value <= largest]
    return [(name, value) for name in backends for value in values]


def values_on(axis: str) -> list[int]:
    """The values of an axis that can be run here."""
    most = len(machine.allowed_processors()) if axis == "threads" else max(AXES[axis])
    return [value for value in AXES[axis] if value <= most]


def fields_at(backend: str, env: str, at: Mapping[str, int]) -> dict[str, Any]:
    """PPO with the given number of environments, width and threads; torch uses its own environment."""
    registry.choose("backend", backend, registry.BACKENDS)
    suite = "torch" if registry.BACKENDS[backend].family == "torch" else "gymnax"
    fields = {"backend": backend, "env": f"{suite}/{env}", "num_envs": at["envs"], "threads": at["threads"]}
    return fields | {"hidden_sizes": [at["width"]] * 2}


def value_at(cell: Cell, axis: str) -> int:
    """The value of a cell on an axis."""
    return {"envs": cell.run["num_envs"], "width": cell.run["hidden_sizes"][0], "threads": cell.threads}[axis]


def rows(store: Store, study: Study) -> list[dict[str, Any]]:
    """One row per run and axis: value, throughput and memory, or why it failed."""
    tried: dict[str, list[tuple[int, Attempt]]] = {}
    for slot, attempt in latest(store):
        tried.setdefault(slot.cell, []).append((slot.block, attempt))
    return [
        {"backend": entry.cell.run["backend"], "axis": entry.label, "value": value_at(entry.cell, entry.label)}
        | {"block": block, "error": failure(attempt)}
        | (measured(attempt.record) if attempt.record else {})
        for entry in study.entries
        for block, attempt in tried.get(entry.cell.id, [])
    ]


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


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per point: medians over blocks with their range, and whether it is the knee."""
    lines = []
    for backend, axis in dict.fromkeys((row["backend"], row["axis"]) for row in rows):
        mine = sorted((r for r in rows if (r["backend"], r["axis"]) == (backend, axis)), key=lambda r: r["value"])
        values = dict.fromkeys(row["value"] for row in mine)
        points = [line_of(backend, axis, value, [r for r in mine if r["value"] == value]) for value in values]
        knee_value = knee(points)
        lines += [line | {"knee": line["value"] == knee_value} for line in points]
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


def write(lines: Sequence[dict[str, Any]], out: Path) -> None:
    """scale.csv, scale.png and scale.svg in the folder, replaced if they are there."""
    out.mkdir(parents=True, exist_ok=True)
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
