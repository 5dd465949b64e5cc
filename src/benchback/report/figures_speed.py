"""Sections 2 and 3: forest plots, totals, pairs, overheads, phases and modes."""

from typing import Any

import altair as alt

from benchback.bench.figures import FIGURES
from benchback.report.figure import VERDICTS, WIDTH, Figure, chart, colour, shape, variant_axis
from benchback.report.table import Source

NAMES = {
    "total": "total",
    "cold_start": "cold start",
    "steady": "steady iteration",
    "rollout": "rollout",
    "update": "update",
}
CLAIM_COLUMNS = {
    "variant": "variant",
    "reference": "against",
    "env": "environments",
    "model": "models",
    "timing": "timing",
    "ratio": "times as long",
    "low": "low",
    "high": "high",
    "verdict": "verdict",
    "cells": "cells",
    "blocks": "blocks",
    "detectable": "smallest detectable effect",
    "reason": "remarks",
}


def forest(source: Source) -> list[Figure]:
    """One forest plot for each figure of a run."""
    made = []
    for name, words in FIGURES.items():
        needs = "Needs runs with sync timing in unit phase." if name in ("rollout", "update") else ""
        caption = (
            f"How many times as long as the reference each variant takes: {words}. Left of the line at 1 is faster. "
            "Bars are 95 % intervals of paired blocks; the mark is the verdict after correction for the number of "
            "comparisons; MDE is the smallest effect these blocks find 8 times in 10."
        )
        made.append(
            Figure(
                f"forest_{name}",
                2,
                f"Speed-up: {NAMES[name]}",
                caption,
                "claims",
                CLAIM_COLUMNS,
                forest_chart("claims"),
                {"figure": name, "twin": False},
                missing=f"No comparison of this figure can be made. {needs}",
            )
        )
    return made


def forest_chart(data: str) -> Any:
    """Ratios with intervals on a logarithmic axis, the verdict as mark and in words."""
    label = (
        "datum.variant + (datum.env == '*' ? '' : ', ' + datum.env) + (datum.model == '*' ? '' : ', ' + datum.model)"
    )
    base = chart(data).transform_calculate(row=f"{label} + ', ' + datum.timing")
    mde = "(isValid(datum.detectable) ? ', MDE ' + format(datum.detectable, '.1%') : '')"
    words = f"datum.text + ', n ' + datum.blocks + {mde}"
    base = base.transform_calculate(words=words)
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
    x = alt.X("ratio:Q", scale=alt.Scale(type="log", nice=False, padding=24), title="times as long as the reference")
    marks = alt.Shape(
        "verdict:N",
        scale=alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values())),
        legend=alt.Legend(title="verdict", orient="top"),
    )
    one = chart(data).mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(1.0))
    bars = base.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q"), x2="high:Q", color=colour(None))
    tips = [
        "variant:N",
        "reference:N",
        "ratio:Q",
        "low:Q",
        "high:Q",
        "verdict:N",
        "cells:Q",
        "blocks:Q",
        "detectable:Q",
    ]
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        y=y, x=x, color=colour(None), shape=marks, tooltip=tips
    )
    text = base.mark_text(align="left", baseline="bottom", dy=-5, fontSize=11).encode(
        y=y, x=alt.value(4), text="words:N"
    )
    return alt.layer(one, bars, dots, text).properties(width=WIDTH, height=alt.Step(38))


def durations(source: Source) -> list[Figure]:
    """Totals of runs, ratios of pairs, and the tables of benchback-rl."""
    models = source.models
    letters = ", ".join(f"{model[0]} {model}" for model in models)
    total = Figure(
        "total",
        3,
        "Total duration by framework",
        "Seconds from starting the process to the end of training, a point per run; the box is the distribution. "
        f"Within a variant, models stand side by side ({letters}), and environments within a model from cheap to "
        "costly: a slope within a letter is the cost of the environment, a step between letters that of the model.",
        "runs",
        {
            "variant": "variant",
            "env": "env",
            "model": "model",
            "timing": "timing",
            "block": "block",
            "total_s": "total s",
            "cold_start_s": "cold start s",
            "steady_s": "steady iteration s",
            "outcome": "outcome",
            "reason": "why a figure is missing",
        },
        spread_chart("runs", "total_s", "seconds", models),
        {"twin": False},
    )
    return [total, *pair_figures(models), published()]


def spread_chart(data: str, value: str, title: str, models: list[str]) -> Any:
    """Points by variant, within it by model and cost of the environment, over their distribution."""
    base = chart(data).transform_filter(f"isValid(datum.{value})")
    y = alt.Y(f"{value}:Q", scale=alt.Scale(type="log", nice=False, padding=12), title=title)
    inner = alt.XOffset("place:Q", scale=alt.Scale(domain=[0, len(models)]))
    box = base.mark_boxplot(opacity=0.35, size=24, outliers=False, color="#888").encode(x=variant_axis(), y=y)
    tips = ["variant:N", "env:N", "model:N", "timing:N", "block:Q", alt.Tooltip(f"{value}:Q", format=".4g")]
    dots = base.mark_point(size=28, opacity=0.75).encode(
        x=variant_axis(), xOffset=inner, y=y, color=colour(), shape=shape(models), tooltip=tips
    )
    letters = (
        base.transform_aggregate(place="mean(place)", groupby=["variant", "model"])
        .transform_calculate(letter="substring(datum.model, 0, 1)")
        .mark_text(baseline="bottom", fontSize=11)
        .encode(x=variant_axis(), xOffset=inner, y=alt.value(298), text="letter:N")
    )
    return alt.layer(box, dots, letters).properties(width=WIDTH, height=300)


def pair_figures(models: list[str]) -> list[Figure]:
    """Ratios of every pair of variants in every cell."""
    made = []
    columns = {"pair": "from → to", "env": "env", "model": "model", "timing": "timing", "text": "times as fast"}
    columns |= {"ratio": "speed-up", "low": "low", "high": "high", "blocks": "blocks", "detectable": "MDE"}
    for name in NAMES:
        base = chart("pairs")
        y = alt.Y("ratio:Q", scale=alt.Scale(type="log", nice=False, padding=12), title="speed-up (times as fast)")
        axis = alt.Axis(labelAngle=-40, labelLimit=260, labelOverlap=False)
        x = alt.X("pair:N", sort=None, title=None, axis=axis)
        inner = alt.XOffset("place:Q", scale=alt.Scale(domain=[0, len(models)]))
        one = base.mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(1.0))
        box = base.mark_boxplot(opacity=0.35, size=18, outliers=False, color="#888").encode(x=x, y=y)
        tips = ["pair:N", "env:N", "model:N", "text:N", "blocks:Q"]
        dots = base.mark_point(size=30, opacity=0.85).encode(
            x=x, xOffset=inner, y=y, shape=shape(models), color=colour("from"), tooltip=tips
        )
        caption = (
            f"What moving from one variant to another gains in {NAMES[name]} time: a point per environment "
            "and model, the "
            "geometric mean of its blocks. Above 1 the second of a pair is faster."
        )
        figure = Figure(
            f"pairs_{name}",
            3,
            f"Pairwise speed-ups: {NAMES[name]}",
            caption,
            "pairs",
            columns,
            alt.layer(one, box, dots).properties(width=WIDTH, height=280),
            {"figure": name},
            missing="No pair of variants has this figure in the same cell.",
        )
        made.append(figure)
    return made


def published() -> Figure:
    """The tables of benchback-rl, recomputed."""
    columns = {"figure": "figure", "timing": "timing", "pair": "from → to", "model": "model"}
    columns |= {
        "geometric_mean": "geometric mean",
        "median": "median",
        "pairs": "pairs of runs",
        "ours": "of paired blocks",
    }
    return Figure(
        "published",
        3,
        "Geometric mean and median speed-up by model size, as published (all pairs)",
        "The formulas of benchback-rl: every run of the one over every run of the other. Their number says "
        "nothing about "
        "certainty, so they have no interval; the last column is the estimate of paired blocks, as elsewhere "
        "on this page.",
        "published",
        columns,
    )


def overheads(models: list[str]) -> list[Figure]:
    """Windows of a run: absolute, as ratio, and as difference."""
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "part": "iterations"}
    columns |= {"seconds": "seconds", "ratio": "ratio to reference", "difference_s": "difference s", "blocks": "blocks"}
    specs: list[tuple[str, str, str, dict[str, Any]]] = [
        ("seconds", "Overheads: absolute", "seconds", {"type": "log"}),
        ("ratio", "Overheads: ratio to the reference", "times the reference", {"type": "log"}),
        ("difference_s", "Overheads: difference to the reference", "seconds more", {"type": "symlog", "constant": 0.1}),
    ]
    caption = (
        "Iteration 0 counts from the start of the process; 1:7 is the mean of iterations 1 to 7, 7: that of "
        "8 and later "
        "(names as published). "
    )
    extra = {
        "seconds": "Look for frameworks that start slowly but run fast.",
        "ratio": "Ratios near 1 in 7: with large ones in 0 mean that the difference is compilation, and fades.",
        "difference_s": "Linear below 0.1 s and logarithmic above: what a user waits longer in seconds.",
    }
    made = []
    for field, title, axis, scale in specs:
        made.append(
            Figure(
                f"overhead_{field}",
                3,
                title,
                caption + extra[field],
                "overheads",
                columns,
                part_chart(field, axis, scale, models),
            )
        )
    return made


def part_chart(field: str, title: str, scale: dict[str, Any], models: list[str]) -> alt.Chart:
    """Cells by part of the run, the variants side by side."""
    base = chart("overheads").transform_filter(f"isValid(datum.{field})")
    return (
        base.mark_point(size=34, opacity=0.85)
        .encode(
            x=alt.X("part:N", sort=None, title=None, axis=alt.Axis(labelAngle=0, labelLimit=240)),
            xOffset=alt.XOffset("variant:N", sort=None),
            y=alt.Y(f"{field}:Q", scale=alt.Scale(nice=False, padding=12, **scale), title=title),
            color=colour(),
            shape=shape(models),
            tooltip=["variant:N", "env:N", "model:N", "part:N", alt.Tooltip(f"{field}:Q", format=".4g")],
        )
        .properties(width=WIDTH, height=280)
    )


def phases(models: list[str]) -> list[Figure]:
    """Rollout and update apart."""
    columns = {"variant": "variant", "env": "env", "model": "model", "part": "phase", "seconds": "seconds"}
    columns |= {"ratio": "ratio to reference", "blocks": "blocks"}
    missing = "Rollout and update are told apart in sync timing only, and this campaign has none."
    made = []
    for field, title, axis in (
        ("seconds", "Rollout and update: duration", "seconds in steady state"),
        ("ratio", "Rollout and update: ratio to the reference", "times the reference"),
    ):
        base = chart("phases").transform_filter(f"isValid(datum.{field})")
        drawn = base.mark_point(size=38, opacity=0.85).encode(
            x=alt.X("part:N", title=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("variant:N", sort=None),
            y=alt.Y(f"{field}:Q", scale=alt.Scale(type="log", nice=False, padding=12), title=axis),
            color=colour(),
            shape=shape(models),
            tooltip=["variant:N", "env:N", "model:N", "part:N", alt.Tooltip(f"{field}:Q", format=".4g")],
        )
        caption = (
            "Rollout is mostly environment, update only model: a backend that is slow in one of them alone shows where."
        )
        drawn = drawn.properties(width=WIDTH, height=280)
        made.append(Figure(f"phases_{field}", 3, title, caption, "phases", columns, drawn, missing=missing))
    return made


def modes() -> list[Figure]:
    """Ways to compile."""
    columns = {"variant": "variant", "env": "env", "model": "model", "figure": "figure", "seconds": "seconds"}
    made = []
    for name in ("steady", "total"):
        drawn = (
            chart("modes")
            .mark_point(filled=True, size=60, opacity=0.9)
            .encode(
                y=alt.Y("variant:N", sort=None, title=None, axis=alt.Axis(labelLimit=300)),
                x=alt.X("seconds:Q", scale=alt.Scale(type="log", nice=False, padding=12), title="seconds"),
                color=colour(),
                tooltip=["variant:N", "env:N", "model:N", alt.Tooltip("seconds:Q", format=".4g")],
            )
            .properties(width=WIDTH, height=alt.Step(16))
        )
        caption = (
            "Every mode and unit of a backend that was run in more than one: none is uncompiled, unit says "
            "how much one "
            "program covers. The distance between points of one colour is what compiling buys."
        )
        figure = Figure(
            f"modes_{name}",
            3,
            f"Compile modes: {NAMES[name]}",
            caption,
            "modes",
            columns | {"blocks": "blocks"},
            drawn,
            {"figure": name},
            missing="Every backend was run in one mode only; the study compile_modes compares them.",
        )
        made.append(figure)
    return made


def section(source: Source) -> list[Figure]:
    """Sections 2 and 3."""
    models = source.models
    return [*forest(source), *durations(source), *overheads(models), *phases(models), *modes(), machines()]


def machines() -> Figure:
    """Two stores beside each other."""
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "figure": "figure"}
    columns |= {"before_s": "this store s", "after_s": "other store s", "ratio": "other / this", "verdict": "verdict"}
    base = chart("machines")
    one = base.mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(1.0))
    x = alt.X("ratio:Q", scale=alt.Scale(type="log", nice=False, padding=16), title="times as long in the other store")
    y = alt.Y("variant:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
    bars = base.mark_rule().encode(y=y, x="low:Q", x2="high:Q", color=colour(None))
    dots = base.mark_point(filled=True, size=50).encode(
        y=y, x=x, color=colour(None), tooltip=["env:N", "model:N", "text:N"]
    )
    return Figure(
        "machines",
        3,
        "Machine or operating system against another",
        "The same cells in another store: another machine, operating system, version or commit. Right of 1 "
        "the other is slower.",
        "machines",
        columns,
        alt.layer(one, bars, dots).properties(width=WIDTH, height=alt.Step(20)),
        {"figure": "total"},
        missing="This report is about one store; `benchback report STORE --against OTHER` puts two side by side.",
    )
