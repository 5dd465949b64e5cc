"""Sections 4 and 5: iterations over time, break-even, and learning."""

from typing import Any

import altair as alt

from benchback.report.figure import WIDTH, Figure, backend_scale, chart, colour, shape
from benchback.report.table import Source

PANEL = 300
"""Width of one of several panels; the page makes it fit."""


def section(source: Source) -> list[Figure]:
    """Sections 4 and 5."""
    return [timeline(), cumulative(), breakeven(source.models), *curves(), thresholds(source.models), profiles()]


def line_keys(*extra: Any) -> list[Any]:
    """What a tooltip of a line says."""
    return ["variant:N", "env:N", "model:N", "timing:N", *extra]


def facets(layered: Any) -> alt.FacetChart:
    """A panel for each group of cells."""
    header = alt.Header(title=None, labelLimit=0)
    return layered.facet(facet=alt.Facet("panel:N", sort=None, header=header), columns=2).resolve_scale(
        x="independent", y="independent"
    )


def timeline() -> Figure:
    """Seconds of each iteration."""
    base = chart("timeline")
    x = alt.X("iteration:Q", scale=alt.Scale(type="log", nice=False), title="iteration (1 is the first)")
    y = alt.Y("seconds:Q", scale=alt.Scale(type="log", nice=False, padding=8), title="seconds")
    warm = (
        base.transform_aggregate(until="max(steady_from)", groupby=["panel"])
        .transform_calculate(one="1")
        .mark_rect(opacity=0.12, color="#888")
        .encode(x=alt.X("one:Q"), x2="until:Q")
    )
    lines = base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour(), detail=["variant:N"])
    # Lines give no tooltips of their own points, these do.
    dots = base.mark_point(size=14, filled=True).encode(
        x=x, y=y, color=colour(), tooltip=line_keys("iteration:Q", alt.Tooltip("seconds:Q", format=".4g"))
    )
    starts = (
        base.transform_aggregate(start="max(steady_from)", groupby=["panel", "variant", "backend"])
        .transform_filter("isValid(datum.start)")
        .mark_rule(strokeDash=[3, 3], strokeWidth=1.5)
        .encode(x="start:Q", color=colour(), tooltip=["variant:N", "start:Q"])
    )
    drawn = alt.layer(warm, lines, dots, starts).properties(width=PANEL, height=230)
    columns = {"panel": "work", "variant": "variant", "iteration": "iteration", "seconds": "seconds"}
    columns |= {"steady_from": "steady from iteration", "blocks": "blocks"}
    return Figure(
        "timeline",
        4,
        "Iteration timeline",
        "Seconds of each iteration, median over blocks, both axes logarithmic. The spike at 1 is "
        "compilation; the shaded part "
        "is warm-up; a dashed line is the change point from which a variant is steady (none where it never "
        "is). One group "
        "of cells is drawn; choose environments and models to see others.",
        "timeline",
        columns,
        facets(drawn),
    )


def cumulative() -> Figure:
    """Seconds since the process was started."""
    drawn = (
        chart("timeline")
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=10))
        .encode(
            x=alt.X("env_steps:Q", scale=alt.Scale(type="log", nice=False), title="environment steps"),
            y=alt.Y("elapsed_s:Q", scale=alt.Scale(type="log", nice=False, padding=8), title="seconds since start"),
            color=colour(),
            detail=["variant:N"],
            tooltip=line_keys("env_steps:Q", alt.Tooltip("elapsed_s:Q", format=".4g")),
        )
        .properties(width=PANEL, height=230)
    )
    columns = {
        "panel": "work",
        "variant": "variant",
        "env_steps": "environment steps",
        "elapsed_s": "seconds since start",
    }
    return Figure(
        "cumulative",
        4,
        "Cumulative time",
        "Seconds since the process was started, imports and compilation included, against environment steps. "
        "Where two lines "
        "cross, the slower starter has made up for it.",
        "timeline",
        columns | {"blocks": "blocks"},
        facets(drawn),
    )


def breakeven(models: list[str]) -> Figure:
    """Environment steps after which one overtakes another."""
    base = chart("breakeven").transform_filter("isValid(datum.env_steps)")
    y = alt.Y("variant:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
    x = alt.X(
        "env_steps:Q", scale=alt.Scale(type="log", nice=False, padding=12), title="environment steps until overtaken"
    )
    bars = (
        base.transform_filter("isValid(datum.low) && isValid(datum.high) && datum.low > 0")
        .mark_rule(opacity=0.6)
        .encode(y=y, x="low:Q", x2="high:Q", color=colour(None))
    )
    tips = ["variant:N", "reference:N", "overtakes:N", "env:N", "model:N", "timing:N", "env_steps:Q", "low:Q", "high:Q"]
    filled = alt.condition("datum.who == 'this overtakes the reference'", alt.value(1), alt.value(0))
    dots = base.mark_point(size=50).encode(
        y=y,
        x=x,
        color=colour(None),
        fill=alt.Fill("backend:N", scale=backend_scale(), legend=None),
        shape=shape(models),
        fillOpacity=filled,
        tooltip=tips,
    )
    columns = {"variant": "variant", "reference": "reference", "env": "env", "model": "model", "timing": "timing"}
    columns |= {"overtakes": "who overtakes", "env_steps": "environment steps", "low": "low", "high": "high"}
    return Figure(
        "breakeven",
        4,
        "Break-even",
        "After how many environment steps the slower starter is ahead, with Fieller's 95 % interval, against "
        "the reference. "
        "Filled: the variant overtakes the reference; hollow: the reference overtakes it. Train for fewer "
        "steps and the quick "
        "starter wins. Where nobody overtakes, the table says who is ahead throughout.",
        "breakeven",
        columns | {"blocks": "blocks", "reason": "why not"},
        alt.layer(bars, dots).properties(width=WIDTH, height=alt.Step(26)),
        missing="No pair has both a cold start and a steady state in the same blocks.",
    )


def curves() -> list[Figure]:
    """Returns by steps and by seconds."""
    made = []
    columns = {"panel": "work", "variant": "variant", "env_steps": "environment steps", "elapsed_s": "seconds"}
    columns |= {"mean": "interquartile mean", "low": "low", "high": "high", "runs": "runs"}
    for field, words in (("env_steps", "environment steps"), ("elapsed_s", "seconds")):
        base = chart("curves")
        x = alt.X(f"{field}:Q", title=words if field == "env_steps" else "seconds since start")
        y = alt.Y("mean:Q", title="return", scale=alt.Scale(zero=False))
        band = base.mark_area(opacity=0.15).encode(
            x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour(), detail="variant:N"
        )
        line = base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour(), detail="variant:N")
        dots = base.mark_point(size=12, filled=True).encode(
            x=x, y=y, color=colour(), tooltip=line_keys("mean:Q", "low:Q", "high:Q")
        )
        caption = {
            "env_steps": "Runs that differ only in their backend should learn the same: lines that lie on "
            "each other are the "
            "proof that the same thing was timed.",
            "elapsed_s": "The same returns against seconds since the process was started (median over runs): "
            "what a user waits.",
        }[field]
        figure = Figure(
            f"curves_{field}",
            5,
            f"Learning curves by {words}",
            "Interquartile mean of the return over runs with a stratified bootstrap interval (95 %). " + caption,
            "curves",
            columns,
            facets(alt.layer(band, line, dots).properties(width=PANEL, height=220)),
            missing="No episode ended in these runs.",
        )
        made.append(figure)
    return made


def thresholds(models: list[str]) -> Figure:
    """Seconds until it is learnt."""
    base = chart("thresholds").transform_filter("isValid(datum.seconds)")
    y = alt.Y("variant:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
    x = alt.X("seconds:Q", scale=alt.Scale(type="log", nice=False, padding=12), title="seconds to the threshold")
    bars = base.mark_rule(opacity=0.5).encode(y=y, x="low:Q", x2="high:Q", color=colour(None))
    dots = base.mark_point(size=50).encode(
        y=y,
        x=x,
        color=colour(None),
        shape=shape(models),
        tooltip=line_keys("threshold:Q", "seconds:Q", "reached:Q", "runs:Q"),
    )
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "threshold": "threshold"}
    columns |= {"seconds": "median s", "low": "fastest s", "high": "slowest s", "reached": "reached", "runs": "runs"}
    return Figure(
        "thresholds",
        5,
        "Time to threshold",
        "Seconds until a run has gone 90 % of the way from the first return to the best of its group and "
        "stayed there for "
        "three points: median and range over runs. Where half of the runs or more did not get there, none is given.",
        "thresholds",
        columns | {"reason": "why not"},
        alt.layer(bars, dots).properties(width=WIDTH, height=alt.Step(24)),
        missing="No episode ended in these runs.",
    )


def profiles() -> Figure:
    """Fraction of runs beyond a score."""
    base = chart("profiles")
    x = alt.X("score:Q", title="share of the way to the group's best", axis=alt.Axis(format=".0%"))
    detail = ["variant:N", "env:N", "model:N", "timing:N"]
    band = base.mark_area(opacity=0.12).encode(x=x, y="low:Q", y2="high:Q", color=colour(), detail=detail)
    y = alt.Y("fraction:Q", title="runs beyond it", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1]))
    line = base.mark_line(strokeWidth=2).encode(
        x=x, y=y, color=colour(), detail=detail, strokeDash=alt.StrokeDash("timing:N", legend=None)
    )
    columns = {"variant": "variant", "env": "environments", "model": "models", "timing": "timing", "score": "score"}
    columns |= {"fraction": "fraction of runs", "low": "low", "high": "high", "runs": "runs"}
    return Figure(
        "profiles",
        5,
        "Performance profiles",
        "Fraction of runs whose last return is beyond a share of the way from the first return to the best "
        "of the group, with "
        "a stratified bootstrap interval. Higher is better; crossing lines mean that no variant is better throughout.",
        "profiles",
        columns,
        alt.layer(band, line).properties(width=WIDTH, height=280),
        missing="No episode ended in these runs.",
    )
