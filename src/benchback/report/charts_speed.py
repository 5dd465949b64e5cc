"""Sections 1 to 3: heat tables, forest plots, pairs, totals, two stores; parts of a run are in `charts_parts`."""

from typing import Any

import altair as alt

from benchback.analysis.source import Source
from benchback.measure.metrics import METRICS
from benchback.report import charts_parts
from benchback.report.chart import APART, VERDICTS, WIDTH, Figure, Matrix, chart, colour, log, tips
from benchback.report.charts_parts import NAMES
from benchback.report.rows import WORDED, height, line_at, plain, row_axis, row_height, row_names, spread, spread_chart
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


WORDS = 340
"""Room for the words beside a row."""


NEEDS_PHASES: dict[str, str] = {}
NEEDS_PHASES["rollout"] = NEEDS_PHASES["update"] = " Needs runs with sync timing in unit phase."


def heat() -> list[Figure]:
    """Ratios by variant and model size, a table for each metric: the answer at the top of the page."""
    made = []
    for name, words in METRICS.items():
        caption = (
            f"How many times as long as the reference each variant takes, by model size: {words}. Below each ratio its "
            "95 % interval; where environments differ by more than their intervals, the range over them. Hatched: a "
            "tie, equivalent within "
            f"{MARGIN:.0%} or not told apart."
        )
        figure = Figure(
            f"heat_{name}",
            1,
            f"{NAMES[name].capitalize()} by model size",
            caption,
            "claims",
            CLAIM_COLUMNS,
            where={"figure": name, "twin": False},
            one=APART,
            missing=f"No comparison can be made by this metric.{NEEDS_PHASES.get(name, '')}",
            value=("ratio", "lowest"),
            family="Times as long as the reference, by model size",
            tab=NAMES[name],
            matrix=Matrix("model"),
        )
        made.append(figure)
    return by_interest(made)


def by_interest(figures: list[Figure]) -> list[Figure]:
    """The steady iteration first: what is asked most often is shown first."""
    return sorted(figures, key=lambda figure: figure.tab != NAMES["steady"])


def forest(source: Source) -> list[Figure]:
    """One forest plot for each metric."""
    made = []
    for name, words in METRICS.items():
        caption = (
            f"How many times as long as the reference each variant takes: {words}. Within the grey band of "
            f"{MARGIN:.0%} nobody would notice. Thin bars are 95 % intervals of paired blocks; a broad one is the "
            "range of ratios that are too unlike for one number. The mark is the verdict after correction for the "
            "number of comparisons; n counts blocks, and MDE is the smallest effect that they find 8 times in 10."
            f"{_few(source)}"
        )
        figure = Figure(
            f"forest_{name}",
            2,
            f"{NAMES[name].capitalize()} against the reference",
            caption,
            "claims",
            CLAIM_COLUMNS,
            forest_chart("claims"),
            {"figure": name, "twin": False},
            APART,
            f"No comparison can be made by this metric.{NEEDS_PHASES.get(name, '')}",
            value=("ratio", "lowest"),
            family="Every variant against the reference",
            tab=NAMES[name],
        )
        made.append(figure)
    return by_interest(made)


def _few(source: Source) -> str:
    """What to say of variants that are not shown at first."""
    count = sum(not cell.twin and cell.variant not in source.main for cell in source.cells.values())
    return f" {count} cells of variants measured in few groups are shown when modes are chosen." if count else ""


def forest_chart(data: str) -> Any:
    """Ratios with intervals on a logarithmic axis, the verdict as mark and in words."""
    label = plain("datum.variant") + "".join(
        f" + (datum.{name} == '*' ? '' : ', ' + datum.{name})" for name in ("env", "model")
    )
    # What is the same in all rows need not be said in each.
    words = dict.fromkeys(APART, "") | {"agents": " + (datum.agents == '1' ? ' agent' : ' agents')"}
    label += "".join(f" + (datum.{name}s > 1 ? ', ' + datum.{name}{word} : '')" for name, word in words.items())
    mde = "(isValid(datum.detectable) ? ', MDE ' + format(datum.detectable, '.1%') : '')"
    counted = [alt.JoinAggregateFieldDef(op="distinct", field=name, **{"as": f"{name}s"}) for name in APART]
    base = chart(data).transform_joinaggregate(counted)
    base = base.transform_calculate(row=label, words=f"datum.text + ', n ' + datum.blocks + {mde}")
    y = row_axis("row")
    x = alt.X("ratio:Q", scale=log(16), title="times as long as the reference")
    scale = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
    marks = alt.Shape("verdict:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
    once = base.transform_aggregate(n="count()")
    margin = once.mark_rect(opacity=0.15, color="#888").encode(
        x=alt.XDatum(1 / (1 + MARGIN)), x2=alt.X2Datum(1 + MARGIN)
    )
    bars = base.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour(None))
    # Ratios that are too unlike for one number: from the lowest to the highest.
    unlike = base.mark_rule(strokeWidth=7, opacity=0.45).encode(
        y=y, x=alt.X("lowest:Q"), x2=alt.X2("highest:Q"), color=colour(None), tooltip=tips("variant:N", "text:N")
    )
    about = tips("variant:N", "reference:N", "ratio:Q", "low:Q", "high:Q", "verdict:N", "cells:Q", "blocks:Q")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        y=y, x=x, color=colour(None), shape=marks, tooltip=about
    )
    narrow = alt.expr("narrow ? -7 : 0")
    text = base.mark_text(
        align="left", baseline=alt.expr("narrow ? 'bottom' : 'middle'"), dy=narrow, fontSize=11, limit=WORDS
    ).encode(y=y, x=alt.XValue(alt.expr("narrow ? 2 : width + 10")), text=alt.Text("words:N"))
    layers = (margin, line_at(base, 1.0), bars, unlike, dots, text, row_names(base, "row", 21))
    return alt.layer(*layers).properties(width=WIDTH - 200, height=height(26), usermeta=WORDED)


def durations(source: Source) -> list[Figure]:
    """Totals of runs, and the tables of benchback-rl."""
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
    return [total, published()]


def pair_figures() -> list[Figure]:
    """Each variant against each other, as a matrix for each metric."""
    made = []
    columns = {"variant": "variant", "other": "against", "env": "environments", "model": "models", "timing": "timing"}
    columns |= {"ratio": "times as long", "low": "low", "high": "high", "verdict": "verdict", "blocks": "blocks"}
    for name in NAMES:
        figure = Figure(
            f"pairs_{name}",
            2,
            f"Every pair of variants, {NAMES[name]}",
            "How many times as long the variant of the row takes as the one of the column, with its 95 % interval. "
            "Hatched: a tie. Choose an environment and a model to see that cell alone.",
            "pairs",
            columns | {"detectable": "smallest detectable effect", "reason": "remarks"},
            where={"figure": name},
            one=APART,
            missing=f"No pair of variants has this metric in the same cell.{NEEDS_PHASES.get(name, '')}",
            value=("ratio", "lowest"),
            family="Every pair of variants",
            tab=NAMES[name],
            matrix=Matrix("other"),
        )
        made.append(figure)
    return by_interest(made)


def published() -> Figure:
    """The tables of benchback-rl, recomputed."""
    columns = {"figure": "metric", "timing": "timing", "pair": "first : second", "model": "model"}
    columns |= {
        "geometric_mean": "geometric mean",
        "median": "median",
        "pairs": "pairs of runs",
        "ours": "of paired blocks",
    }
    return Figure(
        "published",
        3,
        "Geometric mean and median ratio by model size, as published (all pairs)",
        "The formulas of benchback-rl: seconds of every run of the first over those of every run of the second. Their "
        "number says nothing about certainty, so they have no interval; the last column is the estimate of paired "
        "blocks, as elsewhere on this page.",
        "published",
        columns,
    )


def section(source: Source) -> list[Figure]:
    """Sections 1 to 3."""
    compared = [*heat(), *forest(source), *pair_figures()]
    return [*compared, *durations(source), *charts_parts.section(source), machines(source.models)]


def machines(models: list[str]) -> Figure:
    """Two stores beside each other."""
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "figure": "metric"}
    columns |= {"before_s": "this store s", "after_s": "other store s", "ratio": "other / this"}
    x = alt.X("ratio:Q", scale=log(18), title="times as long in the other store")
    drawn = spread("machines", "ratio", x, models, one=True).properties(width=WIDTH, height=row_height(models))
    return Figure(
        "machines",
        3,
        "The same cells in another store",
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
