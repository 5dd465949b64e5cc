"""How speed and memory grow as one HTML file, Markdown, CSV and drawings: knees, exponents, and every point."""

import csv
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from benchback.analysis.wording import machine_name, missing_text
from benchback.measure.scale import AXES, OF_REPLAY, POINT
from benchback.measure.store import Store
from benchback.registry import BACKENDS
from benchback.report.chart import chart, with_data
from benchback.report.document import document, figure, table
from benchback.report.drawing import Drawing, draw
from benchback.stats import Fitted, Growth, Missing
from benchback.stats.growth import KNEE
from benchback.training.checkpoint import write_atomically

Lines = Sequence[Mapping[str, Any]]
"""Of `scale.summarise`."""
Fits = Mapping[tuple[str, str], Growth]
"""Of `scale.fits`."""
HEADING = "How speed and memory grow"
FIT_COLUMNS = ("axis", "side", "knee", "exponent up to the knee", "exponent from the knee on")
COLUMNS = ("value", "side", "blocks", "env steps/s", "range", "µs a step", "rollout", "update", "peak MB")
MEASURES = {
    "steps_per_s": ("environment steps / s", "~s", alt.Scale(type="log")),
    "step_us": ("µs a step", ",.3~r", alt.Scale(type="log")),
    "memory_mb": ("peak memory, MB", ",.0f", alt.Scale()),
}
PLACES = "datum.value < 10000 ? format(datum.value, ',') : format(datum.value, '.3~s')"
"""How values of an axis are written: 4,096 and 16.4k."""
WIDTH, HEIGHT = 190, 130
"""Of a panel; three stand beside each other."""
OTHERS = ("#8c564b", "#555555", "#e15759", "#76b7b2", "#b6992d", "#9c755f", "#79706e")
"""Colours of sides that are no backends, in order."""


def write(lines: Lines, fits: Fits, provenance: str, folder: Path) -> list[Path]:
    """index.html, scale.md, scale.csv, knees.csv and, if anything was measured, scale.png and scale.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(specification(lines, fits)) if any(line["steps_per_s"] for line in lines) else None
    files: dict[str, str | bytes] = {
        "index.html": page(lines, fits, provenance, drawn),
        "scale.md": markdown(lines, fits, provenance),
        "scale.csv": csv_text(lines),
        "knees.csv": csv_text([fit_record(*place, found) for place, found in fits.items()]),
    }
    if drawn:
        files |= {"scale.svg": drawn[0], "scale.png": drawn[1]}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def provenance(store: Store) -> str:
    """Machine, code and runs, and how busy the machine was."""
    attempts, stratum = list(store.attempts()), store.strata()[-1]
    noisy = sum(bool(attempt.tags) for attempt in attempts)
    loads = sorted(x for attempt in attempts if (x := attempt.noise.get("other_load")) is not None)
    busy = f" Other programs kept {loads[len(loads) // 2]:.1f} processors busy (median of the runs)." if loads else ""
    commit = f", commit {stratum['git_commit'][:10]}" if stratum.get("git_commit") else ""
    return f"{machine_name(stratum)}{commit}: {len(attempts)} runs, {noisy} of them noisy.{busy}"


def page(lines: Lines, fits: Fits, provenance: str, drawn: Drawing | None) -> str:
    """The whole file."""
    shown = figure(drawn[0], HEADING, CAPTION) if drawn else ""
    parts = "".join(
        f'<h2 id="{axis}">{escape(AXES[axis].title.capitalize())}</h2>{table(COLUMNS, rows)}'
        for axis, rows in rows_by_axis(lines).items()
    )
    body = (
        f"<p>{escape(point_text())}</p>{shown}<h2>Knees and exponents</h2>{table(FIT_COLUMNS, fit_rows(lines, fits))}"
        f"<p>{escape(MEANING)}</p>{parts}<h2>How it was measured</h2><p>{escape(METHOD)}</p><p>{escape(provenance)}</p>"
    )
    return document(HEADING, body)


def point_text() -> str:
    """What is held while one axis is varied."""
    point, replay = POINT.config, OF_REPLAY.config
    layers, others = ("-".join(map(str, x.hidden_sizes)) for x in (point, replay))
    return (
        f"{POINT.algorithm.upper()} on {POINT.env}: {point.num_envs} environments, {point.num_steps} steps, "
        f"{point.num_epochs} epochs, {point.num_minibatches} minibatches, layers {layers}, one agent, one thread; one "
        f"axis is varied at a time. Of the replay: {OF_REPLAY.algorithm.upper()}, {replay.num_envs} environments, "
        f"minibatches of {replay.minibatch_size}, layers {others}; its first "
        f"{replay.batch_size * replay.num_iterations:,} transitions are filled."
    )


CAPTION = (
    "Environment steps a second, time of a step and peak memory over each axis: medians of the blocks, a bar from the "
    f"slowest to the fastest, a diamond at the knee, where the speed is {KNEE:.0%} of the best. Squares are peers."
)
MEANING = (
    f"The knee is where the speed is {KNEE:.0%} of the best, by a straight line in logarithms between two values: of "
    "environments, threads and agents the first such place, beyond which more buys little; of width, depth and replay "
    "the end of what is nearly free. The exponent is the slope of the logarithm of the time of an environment step "
    "over that of the axis, by least squares through three points at least: -1 where a call costs the same whatever it "
    "holds, 0 where every environment or agent costs the same, 2 where all time goes into products of square layers. "
    "Intervals are of 95 % over blocks, where there are several."
)
METHOD = (
    "Every point of every side is a process of its own in each block. Ours are timed by phase, iteration by iteration, "
    "after warm-up, and the clock waits for each phase, which costs most where iterations are short; peers run a whole "
    "training, one program by its second execution. On one thread the time in which other programs had the processor "
    "is left out, where the side can tell."
)


def rows_by_axis(lines: Lines) -> dict[str, list[tuple[str, ...]]]:
    """Axis -> the cells of its points, sides beside each other."""
    order = list(AXES)
    found: dict[str, list[tuple[str, ...]]] = {}
    for line in sorted(lines, key=lambda line: (order.index(line["axis"]), line["value"])):
        found.setdefault(line["axis"], []).append(point_cells(line))
    return found


def point_cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    """A point in words, in the order of COLUMNS."""
    head = (f"{line['value']:,}", line["side"], str(line["blocks"]))
    if line["steps_per_s"] is None:
        return (*head, line["error"], *[""] * (len(COLUMNS) - len(head) - 1))
    rates = (f"{line[name]:,.0f}" if line[name] else "" for name in ("rollout_steps_per_s", "update_steps_per_s"))
    span = f"{line['slowest']:,.0f} - {line['fastest']:,.0f}" if line["blocks"] > 1 else ""
    memory = f"{line['peak_rss_bytes'] / 1e6:,.0f}"
    return (*head, f"{line['steps_per_s']:,.0f}", span, f"{line['step_us']:.3g}", *rates, memory)


def fit_rows(lines: Lines, fits: Fits) -> list[tuple[str, ...]]:
    """Knees and exponents in words, in the order of FIT_COLUMNS."""
    rows = []
    for (axis, side), found in sorted(fits.items(), key=lambda item: list(AXES).index(item[0][0])):
        smallest = min(line["value"] for line in lines if (line["axis"], line["side"]) == (axis, side))
        exponents = (exponent_text(x) for x in (found.below, found.beyond))
        rows.append((AXES[axis].title, side, knee_text(found.knee, smallest), *exponents))
    return rows


def knee_text(found: Fitted | Missing, smallest: float) -> str:
    """`51`, `51 [40, 66]`, `at most 16` where the smallest value is it, or why there is none."""
    if isinstance(found, Missing):
        return missing_text(found)
    if found.value <= smallest:
        return f"at most {_rounded(found.value)}"
    interval = "" if found.low != found.low else f" [{_rounded(found.low)}, {_rounded(found.high)}]"
    return f"{_rounded(found.value)}{interval}"


def _rounded(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.2f}".rstrip("0").rstrip(".")


def exponent_text(found: Fitted | Missing) -> str:
    """`-0.98`, `-0.98 [-1.02, -0.94]`, or why there is none."""
    if isinstance(found, Missing):
        return missing_text(found)
    interval = "" if found.low != found.low else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}{interval}"


def fit_record(axis: str, side: str, found: Growth) -> dict[str, Any]:
    """A row of knees.csv, and of JSON; empty where a value is missing, with the reason."""
    row: dict[str, Any] = {"axis": axis, "side": side}
    for name in ("knee", "below", "beyond"):
        part = getattr(found, name)
        values = (None, None, None) if isinstance(part, Missing) else (part.value, part.low, part.high)
        row |= {f"{name}{end}": None if x != x else x for end, x in zip(("", "_low", "_high"), values, strict=True)}
        row[f"{name}_reason"] = missing_text(part) if isinstance(part, Missing) else ""
    return row


def markdown(lines: Lines, fits: Fits, provenance: str) -> str:
    """The same tables."""
    parts = [f"# {HEADING}", point_text(), _markdown(FIT_COLUMNS, fit_rows(lines, fits)), MEANING]
    for axis, rows in rows_by_axis(lines).items():
        parts += [f"## {AXES[axis].title.capitalize()}", _markdown(COLUMNS, rows)]
    return "\n\n".join([*parts, METHOD, provenance]) + "\n"


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in cells)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows with a line of names; empty of none."""
    text = StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def specification(lines: Lines, fits: Fits) -> dict[str, Any]:
    """The chart as Vega-Lite, with its data: a row of three panels for each axis."""
    known = [line for line in lines if line["steps_per_s"]]
    rows = [dict(line) | {"memory_mb": line["peak_rss_bytes"] / 1e6, "what": what(line["side"])} for line in known]
    rows += [row for place, found in fits.items() if (row := knee_point(place, found, known))]
    colours = colours_of(list(dict.fromkeys(line["side"] for line in known)))
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    colour = alt.Color(
        "side:N", scale=scale, legend=alt.Legend(title=None, orient="top", columns=4, columnPadding=24, labelLimit=240)
    )
    axes = sorted({line["axis"] for line in known}, key=list(AXES).index)
    panels = [panel(axis, measure, known).encode(colour) for axis in axes for measure in MEASURES]
    made = alt.concat(*panels, columns=len(MEASURES)).to_dict(validate=False)
    made.pop("datasets", None)
    return with_data(made, "scale", pl.DataFrame(rows, infer_schema_length=None))


def panel(axis: str, measure: str, lines: Lines) -> Any:
    """One measure over one axis; of the speed with its range, and the knee."""
    values = sorted({line["value"] for line in lines if line["axis"] == axis})
    title, form, scale = MEASURES[measure]
    ticks = alt.Axis(values=values, labelExpr=PLACES, labelOverlap=True)
    x = alt.X("value:Q", title=AXES[axis].title, axis=ticks, scale=alt.Scale(type="log", base=2, nice=False, padding=8))
    y = alt.Y(f"{measure}:Q", title=title, axis=alt.Axis(format=form, tickCount=4), scale=scale)
    base = chart("scale").transform_filter(f"datum.axis == '{axis}'")
    points = base.transform_filter("datum.what != 'knee'")
    shape = alt.Shape("what:N", legend=None, scale=alt.Scale(domain=["ours", "peer"], range=["circle", "square"]))
    layers = [points.mark_line().encode(x, y), points.mark_point(filled=True, size=36).encode(x, y, shape)]
    if measure == "steps_per_s":
        layers.append(points.mark_rule().encode(x, alt.Y("slowest:Q"), alt.Y2("fastest")))
        knees = base.transform_filter("datum.what == 'knee'")
        layers.append(knees.mark_point(shape="diamond", size=150, strokeWidth=2).encode(x, y))
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)


def what(side: str) -> str:
    """Whether a side is one of our backends; peers have no mode."""
    return "ours" if "/" in side else "peer"


def colours_of(sides: Sequence[str]) -> dict[str, str]:
    """Side -> colour: that of its backend, or the next of others."""
    others = cycle(OTHERS)
    return {
        side: BACKENDS[backend].colour
        if (backend := side.partition("/")[0]) in BACKENDS and "/" in side
        else next(others)
        for side in sides
    }


def knee_point(place: tuple[str, str], found: Growth, lines: Lines) -> dict[str, Any] | None:
    """The knee as a row of the chart, at its share of the best speed or at its value; None if there is none."""
    if isinstance(found.knee, Missing):
        return None
    axis, side = place
    speeds = {line["value"]: line["steps_per_s"] for line in lines if (line["axis"], line["side"]) == place}
    speed = speeds.get(found.knee.value, KNEE * max(speeds.values()))
    return {"axis": axis, "side": side, "value": found.knee.value, "steps_per_s": speed, "what": "knee"}
