"""The section about machines: each variant's ratio on every machine, and over machines."""

from typing import Any

import altair as alt

from benchback.analysis.machines import OVER
from benchback.analysis.source import Source
from benchback.measure.metrics import METRICS
from benchback.report.chart import APART, VERDICTS, WIDTH, Figure, chart, colour, log, tips
from benchback.report.charts_parts import NAMES
from benchback.report.charts_speed import by_interest
from benchback.report.rows import height, line_at, plain, row_axis, row_names

SECTION = 13
COLUMNS = {
    "machine": "machine",
    "variant": "variant",
    "reference": "against",
    "env": "environments",
    "model": "models",
    "ratio": "times as long",
    "low": "low",
    "high": "high",
    "verdict": "verdict",
    "cells": "cells",
    "blocks": "blocks; machines",
    "machines_between": "sd between machines",
    "machines_q": "Q",
    "machines_p": "p of no difference",
    "machines_i_squared": "I²",
    "reason": "remarks",
}


def section(source: Source) -> list[Figure]:
    """Nothing where the store is of one machine."""
    if len(source.strata) < 2:
        return []
    return by_interest([_forest(name, words) for name, words in METRICS.items()])


def _forest(name: str, words: str) -> Figure:
    return Figure(
        f"fleet_{name}",
        SECTION,
        f"{NAMES[name].capitalize()} on every machine",
        f"How many times as long as the reference each variant takes on each machine: {words}. Ratios are taken within "
        f"a machine, over the cells that all machines have; intervals are 95 %. The row '{OVER}' takes the machines "
        "for a sample of machines (random effects): its interval is Student's t over them, and is wide where they are "
        "few. Q, p and I² say whether machines differ by more than the error of each explains.",
        "fleet",
        COLUMNS,
        forest_chart("fleet"),
        {"figure": name},
        APART,
        "No variant has this metric on two machines with the same software.",
        value=("ratio", "lowest"),
        family="Every variant on every machine",
        tab=NAMES[name],
    )


def forest_chart(data: str) -> Any:
    """A row per variant and machine: the ratio with its interval on a logarithmic axis."""
    place = "split(datum.machine, ': ')[0]"
    label = f"{plain('datum.variant')} + ', ' + {place}" + "".join(
        f" + (datum.{name} == '*' ? '' : ', ' + datum.{name})" for name in ("env", "model")
    )
    base = chart(data).transform_calculate(row=label)
    y = row_axis("row")
    scale = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
    marks = alt.Shape("verdict:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
    bars = base.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour(None))
    about = tips("variant:N", "machine:N", "reference:N", "ratio:Q", "low:Q", "high:Q", "text:N")
    x = alt.X("ratio:Q", scale=log(16), title="times as long as the reference")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        y=y, x=x, color=colour(None), shape=marks, tooltip=about
    )
    unlike = base.mark_rule(strokeWidth=7, opacity=0.45).encode(
        y=y, x=alt.X("lowest:Q"), x2=alt.X2("highest:Q"), color=colour(None), tooltip=about
    )
    layers = (line_at(base, 1.0), bars, unlike, dots, row_names(base, "row", 12))
    return alt.layer(*layers).properties(width=WIDTH - 200, height=height(26))
