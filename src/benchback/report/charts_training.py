"""Sections 4 and 5: iterations over time, break-even, and learning."""

from dataclasses import replace
from typing import Any

import altair as alt

from benchback.analysis.progress import CHANGE, STEADY
from benchback.analysis.source import Source
from benchback.report.chart import APART, WIDTH, Figure, backend_scale, chart, colour, log, shape, tips
from benchback.report.rows import WORDED, panels, row_axis, row_height, row_names, small_axis

PANEL = 300
"""Width of one of several panels; the page makes it fit."""
SMALL_PANEL = 200
NO_EPISODE = "No episode ended in these runs."
ABOUT = ("variant:N", "env:N", "model:N", "timing:N")
SOME = (
    "Drawn are the smallest and the largest model on the cheapest and the costliest environment; choose environments "
    "and models to see others."
)


def section(source: Source) -> list[Figure]:
    """Sections 4 and 5."""
    return [timeline(), cumulative(), breakeven(source.models), *curves(), thresholds(source.models), profiles()]


def facets(layered: Any) -> Any:
    """A panel for each group of cells."""
    return panels(layered, "panel").resolve_scale(x="independent", y="independent")


def timeline() -> Figure:
    """Seconds of each iteration."""
    base = chart("timeline")
    x = alt.X("iteration:Q", scale=alt.Scale(type="log", nice=False), title="iteration (1 is the first)")
    y = alt.Y("seconds:Q", scale=log(14), title="seconds")
    warm = (
        base.transform_aggregate(until="max(steady_from)", groupby=["panel"])
        .transform_calculate(one="1")
        .mark_rect(opacity=0.12, color="#888")
        .encode(x=alt.X("one:Q"), x2=alt.X2("until:Q"))
    )
    lines = base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour(), detail=alt.Detail("variant:N"))
    # Lines give no tooltips of their own points, these do.
    dots = base.mark_point(size=12, filled=True).encode(
        x=x, y=y, color=colour(), tooltip=tips(*ABOUT, "iteration:Q", "seconds:Q")
    )
    changes = base.transform_filter(f"datum.change == '{CHANGE}'")
    turns = changes.mark_point(shape="triangle-down", size=70, filled=True, opacity=1).encode(
        x=x, y=y, color=colour(), tooltip=tips(*ABOUT, "change:N", "iteration:Q", "seconds:Q")
    )
    starts = base.transform_filter(f"datum.change == '{STEADY}'")
    starts = starts.mark_rule(strokeDash=[3, 3], strokeWidth=1.5).encode(
        x=alt.X("iteration:Q"), color=colour(), tooltip=tips(*ABOUT, "change:N", "iteration:Q")
    )
    never = base.transform_filter("datum.note != ''").mark_text(align="right", baseline="bottom", dy=-6, fontSize=11)
    never = never.encode(x=x, y=y, text=alt.Text("note:N"))
    drawn = alt.layer(warm, lines, dots, starts, turns, never).properties(width=PANEL, height=230)
    columns = {"panel": "work", "variant": "variant", "iteration": "iteration", "seconds": "seconds"}
    columns |= {"change": "what begins here", "steady_from": "steady from iteration", "blocks": "blocks"}
    return Figure(
        "timeline",
        4,
        "Seconds of each iteration: compile spike, warm-up, steady state",
        "Seconds of each iteration, median over blocks, both axes logarithmic. The spike at 1 is compilation; the "
        "shaded part is warm-up; triangles are the change points found in the middle run, a dashed line the one from "
        f"which it is steady. Where there is no steady state, the line says so. {SOME}",
        "timeline",
        columns | {"note": "remarks"},
        facets(drawn),
        one=APART,
    )


def cumulative() -> Figure:
    """Seconds since the process was started."""
    steps = alt.X("env_steps:Q", scale=alt.Scale(type="log", nice=False), title="environment steps", axis=short_axis())
    drawn = (
        chart("timeline")
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=10))
        .encode(
            x=steps,
            y=alt.Y("elapsed_s:Q", scale=log(8), title="seconds since start"),
            color=colour(),
            detail=alt.Detail("variant:N"),
            tooltip=tips(*ABOUT, "env_steps:Q", "elapsed_s:Q"),
        )
        .properties(width=PANEL, height=230)
    )
    columns = {"panel": "work", "variant": "variant", "env_steps": "environment steps"}
    return Figure(
        "cumulative",
        4,
        "Cumulative time: where lines cross, a slow start has paid",
        "Seconds since the process was started, imports and compilation included, against environment steps. Where "
        f"two lines cross, the slower starter has made up for it. {SOME}",
        "timeline",
        columns | {"elapsed_s": "seconds since start", "blocks": "blocks"},
        facets(drawn),
        one=APART,
    )


def short_axis() -> alt.Axis:
    """100k, 2M: numbers that fit a small panel."""
    return alt.Axis(format="~s", labelExpr="replace(datum.label, 'G', 'B')", tickCount=5)


def breakeven(models: list[str]) -> Figure:
    """Environment steps after which one overtakes another."""
    base = chart("breakeven")
    known = base.transform_filter("isValid(datum.env_steps)")
    y, inner = row_axis(), small_axis(models)
    x = alt.X("env_steps:Q", scale=log(18), title="environment steps until overtaken", axis=short_axis())
    bars = [bar.encode(y=y, yOffset=inner, color=colour(None)) for bar in intervals(known)]
    about = tips(*ABOUT, "reference:N", "overtakes:N", "env_steps:Q", "low:Q", "high:Q")
    filled = alt.condition("datum.overtakes == datum.variant", alt.value(1), alt.value(0))
    dots = known.mark_point(size=50).encode(
        y=y,
        yOffset=inner,
        x=x,
        color=colour(None),
        fill=alt.Fill("backend:N", scale=backend_scale(), legend=None),
        shape=shape(models),
        fillOpacity=filled,
        tooltip=about,
    )
    never = base.transform_filter("datum.overtakes == 'nobody'")
    never = never.transform_aggregate(n="count()", place="min(place)", groupby=["variant"])
    never = never.transform_calculate(words="'nobody overtakes in ' + datum.n + ' cell' + (datum.n > 1 ? 's' : '')")
    text = never.mark_text(align=alt.expr("narrow ? 'right' : 'left'"), fontSize=11).encode(
        y=y, yOffset=inner, x=alt.XValue(alt.expr("narrow ? width - 4 : width + 10")), text=alt.Text("words:N")
    )
    columns = {"variant": "variant", "reference": "reference", "env": "env", "model": "model", "timing": "timing"}
    columns |= {"overtakes": "who overtakes", "env_steps": "environment steps", "low": "low", "high": "high"}
    return Figure(
        "breakeven",
        4,
        "Break-even: how long training must be for a slow start to pay",
        "After how many environment steps the slower starter is ahead, with Fieller's 95 % interval, against the "
        "reference, a point per environment and model. Dotted: the interval has no end, since the two steady times, or "
        "the two starts, cannot be told apart. Filled: the variant overtakes the reference; hollow: the reference "
        "overtakes it. Train for fewer steps and the quick starter wins. Where nobody overtakes, the table "
        "says who is ahead throughout.",
        "breakeven",
        columns | {"blocks": "blocks", "reason": "why not"},
        alt.layer(*bars, dots, text, row_names(base, "variant", 1, inner)).properties(
            width=WIDTH - 150, height=row_height(models), usermeta=WORDED
        ),
        one=APART,
        value=("overtakes",),
        missing="No pair has both a cold start and a steady state in the same blocks.",
    )


def intervals(known: alt.Chart) -> list[alt.Chart]:
    """Rules from `low` to `high`, dotted and to the edge of the chart where an end is 0 or infinite."""
    whole, dotted = [1, 0], [2, 3]
    edge = alt.X2Value(alt.expr("width"))
    kinds = (
        ("datum.low > 0 && isValid(datum.high)", whole, alt.X("low:Q"), alt.X2("high:Q")),
        ("datum.low > 0 && datum.open_end", dotted, alt.X("low:Q"), edge),
        ("datum.low === 0 && isValid(datum.high)", dotted, alt.X("high:Q"), alt.X2Value(0)),
        ("datum.low === 0 && datum.open_end", dotted, alt.XValue(0), edge),
    )
    return [
        known.transform_filter(f"isValid(datum.low) && {kind}")
        .mark_rule(opacity=0.6, strokeDash=dash)
        .encode(x=x, x2=x2)
        for kind, dash, x, x2 in kinds
    ]


def curves() -> list[Figure]:
    """Returns by steps and by seconds."""
    made = []
    columns = {"panel": "work", "variant": "variant", "env_steps": "environment steps", "elapsed_s": "seconds"}
    columns |= {"mean": "interquartile mean", "low": "low", "high": "high", "runs": "runs"}
    first = (
        "Interquartile mean of the return over runs with a stratified bootstrap interval (95 %), a panel for each "
        "environment with the first model; choose models to see others. "
    )
    texts = {
        "env_steps": (
            "Learning curves by environment steps",
            "Runs that differ only in their backend should learn the same: lines that lie on each other are the proof "
            "that the same thing was timed.",
        ),
        "elapsed_s": (
            "Learning curves by seconds",
            "The same returns against seconds since the process was started (median over runs): what a user waits.",
        ),
    }
    for field, (title, caption) in texts.items():
        base = chart("curves")
        words = "environment steps" if field == "env_steps" else "seconds since start"
        axis = short_axis() if field == "env_steps" else alt.Axis(tickCount=5)
        x = alt.X(f"{field}:Q", title=words, axis=axis)
        y = alt.Y("mean:Q", title="return", scale=alt.Scale(zero=False))
        one = alt.Detail("variant:N")
        band = base.mark_area(opacity=0.12).encode(
            x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour(), detail=one
        )
        line = base.mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour(), detail=one)
        about = tips(*ABOUT, f"{field}:Q", "mean:Q", "low:Q", "high:Q")
        # Not seen: lines and bands give no tooltips of their points, these do.
        dots = base.mark_point(size=60, filled=True, opacity=0).encode(x=x, y=y, color=colour(), tooltip=about)
        drawn = alt.layer(band, line, dots).properties(width=SMALL_PANEL, height=150)
        drawn = panels(drawn, "panel", 3, 58).resolve_scale(x="independent", y="independent")
        apart = (*APART, "model")
        figure = Figure(f"curves_{field}", 5, title, first + caption, "curves", columns, drawn, {}, apart, NO_EPISODE)
        made.append(replace(figure, family="Learning curves", tab=f"by {words}", value=("mean",)))
    return made


def thresholds(models: list[str]) -> Figure:
    """Seconds until the return reaches its threshold."""
    base = chart("thresholds")
    known = base.transform_filter("isValid(datum.seconds)")
    y, inner = row_axis(), small_axis(models)
    x = alt.X("seconds:Q", scale=log(18), title="seconds to the threshold")
    bars = known.mark_rule(opacity=0.5).encode(
        y=y, yOffset=inner, x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour(None)
    )
    about = tips(*ABOUT, "threshold:Q", "seconds:Q", "reached:Q", "runs:Q")
    dots = known.mark_point(size=45).encode(
        y=y, yOffset=inner, x=x, color=colour(None), shape=shape(models), tooltip=about
    )
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "threshold": "threshold"}
    columns |= {"seconds": "median s", "low": "fastest s", "high": "slowest s", "reached": "reached", "runs": "runs"}
    return Figure(
        "thresholds",
        5,
        "Time to threshold",
        "Seconds until a run has gone 90 % of the way from the first return to the best of its group, at the last "
        "iteration that all its variants have, and stayed there for three points: median and range over runs, a point "
        "per environment and model. Where half of the runs or more did not get there, none is given.",
        "thresholds",
        columns | {"reason": "why not"},
        alt.layer(bars, dots, row_names(base, "variant", 1, inner)).properties(width=WIDTH, height=row_height(models)),
        one=APART,
        value=("seconds",),
        missing=NO_EPISODE,
    )


def profiles() -> Figure:
    """Fraction of runs beyond a score."""
    base = chart("profiles")
    x = alt.X("score:Q", title="share of the way to the group's best", axis=alt.Axis(format=".0%"))
    detail = [alt.Detail(name) for name in ABOUT]
    band = base.mark_area(opacity=0.1).encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour(), detail=detail)
    y = alt.Y("fraction:Q", title="runs beyond it", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1]))
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour(), detail=detail)
    columns = {"variant": "variant", "env": "environments", "model": "models", "timing": "timing", "score": "score"}
    columns |= {"fraction": "fraction of runs", "low": "low", "high": "high", "runs": "runs"}
    return Figure(
        "profiles",
        5,
        "Performance profiles: higher is better",
        "Fraction of runs whose return, at the last iteration that all variants of a group have, is beyond a share of "
        "the way from the first return to the best of the group, with a stratified bootstrap interval. Crossing lines "
        "mean that no variant is better throughout.",
        "profiles",
        columns,
        alt.layer(band, line).properties(width=WIDTH, height=280),
        one=APART,
        missing=NO_EPISODE,
    )
