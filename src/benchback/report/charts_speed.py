"""Sections 2 and 3: forest plots, totals, pairs, two stores; the parts of a run are in `charts_parts`."""

from typing import Any

import altair as alt

from benchback.analysis.source import Source
from benchback.measure.metrics import METRICS
from benchback.report import charts_parts
from benchback.report.chart import APART, VERDICTS, WIDTH, Figure, chart, colour, log, tips
from benchback.report.charts_parts import NAMES
from benchback.report.rows import WORDED, height, line_at, row_axis, row_height, row_names, spread, spread_chart
from benchback.stats import MARGIN

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


WORDS = 310
"""Room for the words beside a row."""


def forest(source: Source) -> list[Figure]:
    """One forest plot for each metric."""
    made = []
    for name, words in METRICS.items():
        needs = "Needs runs with sync timing in unit phase." if name in ("rollout", "update") else ""
        caption = (
            f"How many times as long as the reference each variant takes: {words}. Left of the line at 1 is faster; "
            f"within the grey band of {MARGIN:.0%} nobody would notice. Bars are 95 % intervals of paired blocks; the "
            "mark is the verdict after correction for the number of comparisons; n counts blocks, and MDE is the "
            f"smallest effect that they find 8 times in 10.{_few(source)}"
        )
        title = f"{NAMES[name].capitalize()} against the reference: left of 1 is faster"
        missing = f"No comparison can be made by this metric. {needs}"
        where = {"figure": name, "twin": False}
        drawn = forest_chart("claims")
        made.append(Figure(f"forest_{name}", 2, title, caption, "claims", CLAIM_COLUMNS, drawn, where, missing=missing))
    return made


def _few(source: Source) -> str:
    """What to say of variants that are not shown at first."""
    count = sum(not cell.twin and cell.variant not in source.main for cell in source.cells.values())
    return f" {count} cells of variants measured in few groups are shown when modes are chosen." if count else ""


def forest_chart(data: str) -> Any:
    """Ratios with intervals on a logarithmic axis, the verdict as mark and in words."""
    label = (
        "datum.variant + (datum.env == '*' ? '' : ', ' + datum.env) + (datum.model == '*' ? '' : ', ' + datum.model)"
    )
    mde = "(isValid(datum.detectable) ? ', MDE ' + format(datum.detectable, '.1%') : '')"
    base = chart(data).transform_calculate(
        row=f"{label} + ', ' + datum.algorithm + ', ' + datum.timing",
        words=f"datum.text + ', n ' + datum.blocks + {mde}",
    )
    y = row_axis("row")
    x = alt.X("ratio:Q", scale=log(16), title="times as long as the reference")
    scale = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
    marks = alt.Shape("verdict:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
    once = base.transform_aggregate(n="count()")
    margin = once.mark_rect(opacity=0.15, color="#888").encode(
        x=alt.XDatum(1 / (1 + MARGIN)), x2=alt.X2Datum(1 + MARGIN)
    )
    bars = base.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour(None))
    about = tips("variant:N", "reference:N", "ratio:Q", "low:Q", "high:Q", "verdict:N", "cells:Q", "blocks:Q")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        y=y, x=x, color=colour(None), shape=marks, tooltip=about
    )
    narrow = alt.expr("narrow ? -7 : 0")
    text = base.mark_text(
        align="left", baseline=alt.expr("narrow ? 'bottom' : 'middle'"), dy=narrow, fontSize=11, limit=WORDS
    ).encode(y=y, x=alt.XValue(alt.expr("narrow ? 2 : width + 10")), text=alt.Text("words:N"))
    layers = (margin, line_at(base, 1.0), bars, dots, text, row_names(base, "row", 21))
    return alt.layer(*layers).properties(width=WIDTH - 200, height=height(26), usermeta=WORDED)


def durations(source: Source) -> list[Figure]:
    """Totals of runs, ratios of pairs, and the tables of benchback-rl."""
    models = source.models
    lanes = ", ".join(f"{model[0]} {model}" for model in models)
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "block": "block"}
    columns |= {"total_s": "total s", "cold_start_s": "cold start s", "steady_s": "steady iteration s"}
    columns |= {"complexity": "cost of the environment", "outcome": "outcome", "reason": "why a metric is missing"}
    caption = (
        "Seconds from starting the process to the end of training, a point per run; bars are the middle half of the "
        f"runs of a model, ticks the median. Each row has a lane for each model ({lanes}), and in a lane environments "
        "go down from cheap to costly: a slope in a lane is the cost of the environment, a step between lanes that of "
        f"the model. The cost of an environment is {source.complexity_from}."
    )
    drawn = spread_chart("runs", "total_s", "seconds, total", models)
    where = {"twin": False}
    total = Figure("total", 3, "Total duration by framework", caption, "runs", columns, drawn, where, APART)
    return [total, *pair_figures(models), published()]


def pair_figures(models: list[str]) -> list[Figure]:
    """Ratios of every pair of variants in every cell."""
    made = []
    columns = {"pair": "from → to", "env": "env", "model": "model", "timing": "timing", "text": "times as fast"}
    columns |= {"ratio": "speed-up", "low": "low", "high": "high", "blocks": "blocks", "detectable": "MDE"}
    for name in NAMES:
        x = alt.X("ratio:Q", scale=log(18), title="speed-up (times as fast)")
        drawn = spread("pairs", "ratio", x, models, row="pair", one=True)
        caption = (
            f"What moving from one variant to another gains in {NAMES[name]} time: a point per environment and model, "
            "the geometric mean of its blocks. Right of 1 the second of a pair is faster."
        )
        title = f"Pairwise speed-ups, {NAMES[name]}: right of 1 the second is faster"
        drawn = drawn.properties(width=WIDTH, height=height(max(10 * len(models), 18) + 6))
        missing = "No pair of variants has this metric in the same cell."
        where = {"figure": name}
        figure = Figure(f"pairs_{name}", 3, title, caption, "pairs", columns, drawn, where, APART, missing)
        made.append(figure)
    return made


def published() -> Figure:
    """The tables of benchback-rl, recomputed."""
    columns = {"figure": "metric", "timing": "timing", "pair": "from → to", "model": "model"}
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


def section(source: Source) -> list[Figure]:
    """Sections 2 and 3."""
    return [*forest(source), *durations(source), *charts_parts.section(source), machines(source.models)]


def machines(models: list[str]) -> Figure:
    """Two stores beside each other."""
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "figure": "metric"}
    columns |= {"before_s": "this store s", "after_s": "other store s", "ratio": "other / this"}
    x = alt.X("ratio:Q", scale=log(18), title="times as long in the other store")
    drawn = spread("machines", "ratio", x, models, one=True).properties(width=WIDTH, height=row_height(models))
    return Figure(
        "machines",
        3,
        "The same cells in another store: right of 1 the other is slower",
        "Total time of every cell in another store: another machine, operating system, version or commit. A point per "
        "environment and model; intervals and verdicts, and the other metrics, are in the tables and in "
        "`benchback compare`.",
        "machines",
        columns | {"low": "low", "high": "high", "verdict": "verdict"},
        drawn,
        {"figure": "total"},
        APART,
        "This report is about one store; `benchback report STORE --against OTHER` puts two side by side.",
    )
