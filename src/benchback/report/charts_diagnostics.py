"""Sections 6 to 11: memory, parity and ledgers, noise, failures, code size, provenance."""

from typing import Any

import altair as alt

from benchback.analysis.diagnostics import ledger_fields
from benchback.analysis.source import Source
from benchback.report.chart import APART, WIDTH, Figure, chart, colour, tips
from benchback.report.charts_parts import NAMES
from benchback.report.charts_speed import CLAIM_COLUMNS, forest_chart
from benchback.report.rows import height, panels, row_axis, row_names, spread_chart

PYTHON_ENVS = (
    " An environment that lives in Python is stepped outside of the program; beside are what crosses to it and back in "
    "a call, and its own share of the time of the calls after the first."
)


def section(source: Source) -> list[Figure]:
    """Sections 6 to 11."""
    return [*memory(source.models), *fairness(source), *noise(), failures(), *code_size(), provenance()]


def memory(models: list[str]) -> list[Figure]:
    """Peak memory and its growth."""
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "block": "block"}
    host = Figure(
        "memory_host",
        6,
        "Host memory",
        "Largest resident memory of a run's process, a point per run. The floor is what importing the framework costs.",
        "runs",
        columns | {"peak_mb": "peak MB"},
        spread_chart("runs", "peak_mb", "peak MB", models),
        {"twin": False},
        APART,
    )
    device = Figure(
        "memory_device",
        6,
        "Device memory",
        "Largest memory on the device during a run.",
        "device_memory",
        columns | {"device_mb": "peak MB"},
        spread_chart("device_memory", "device_mb", "peak MB", models),
        missing="The devices of this campaign do not tell their memory; CPUs never do.",
    )
    return [host, device, slopes()]


def slopes() -> Figure:
    """Growth of memory."""
    base = chart("memory")
    known = base.transform_filter("isValid(datum.slope)")
    x = alt.X("slope:Q", title="MB per 1000 iterations")
    bars = known.mark_rule().encode(y=row_axis(), x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour(None))
    about = tips("variant:N", "env:N", "model:N", "slope:Q", "low:Q", "high:Q", "leak:N")
    dots = known.mark_point(filled=True, size=45).encode(y=row_axis(), x=x, color=colour(None), tooltip=about)
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "peak_mb": "peak MB"}
    columns |= {"slope": "MB per 1000 iterations", "low": "low", "high": "high", "leak": "verdict"}
    return Figure(
        "memory_slope",
        6,
        "Growth of memory",
        "Growth of host memory over the last three quarters of a run (median of pairwise slopes, Sen's interval), a "
        "point per environment and model. An interval right of 0 is growth that does not stop: a leak, or a pool that "
        "still fills.",
        "memory",
        columns | {"reason": "why not"},
        alt.layer(bars, dots, row_names(base)).properties(width=WIDTH, height=height(24)),
        one=APART,
        value=("slope",),
    )


def fairness(source: Source) -> list[Figure]:
    """Parity and ledgers."""
    parity = Figure(
        "parity",
        7,
        "Parity",
        "Whether each program computes the same numbers as a float64 oracle, compiled in its own mode and unit. "
        "Without a pass no speed is claimed.",
        "parity",
        {"program": "program", "verdict": "verdict", "levels": "levels", "code": "code"},
    )
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing"}
    columns |= {name: name.replace("_", " ") for name in ledger_fields(source)}
    ledger = Figure(
        "ledger",
        7,
        "Fairness ledger",
        "What was done in every cell; FLOPs are those of matrix products in an iteration. Compared runs may differ in "
        "their axes and what follows from them, such as extra work; the last column must say nothing, or the pair is "
        "not compared." + PYTHON_ENVS * ("env_share" in columns),
        "ledger",
        columns | {"extra_work": "extra work", "differs": "differs in"},
    )
    return [parity, ledger]


def noise() -> list[Figure]:
    """The machine: noise, canary, A/A."""
    tagged = alt.Color(
        "tagged:N",
        scale=alt.Scale(domain=[False, True], range=["#4c78a8", "#d55e00"]),
        legend=alt.Legend(title="tagged", orient="top"),
    )
    x = alt.X("order:Q", title="place in the schedule")
    y = alt.Y("value:Q", title="share", axis=alt.Axis(tickCount=4))
    about = tips("run:N", "variant:N", "kind:N", "value:Q", "tags:N")
    dots = chart("noise").mark_point(size=16, filled=True, opacity=0.7).encode(x=x, y=y, color=tagged, tooltip=about)
    drawn = panels(dots.properties(width=WIDTH // 2, height=130), "kind").resolve_scale(y="independent")
    columns = {"order": "place", "run": "run", "variant": "variant", "kind": "kind", "value": "value", "tags": "tags"}
    loud = Figure(
        "noise",
        8,
        "Noise",
        "What else the machine did during each run that speaks for its slot: load of others, pressure, "
        "stolen and throttled "
        "time, as shares. Tagged runs were beyond a limit.",
        "noise",
        columns,
        drawn,
    )
    return [loud, canary(), same("aa", "steady"), same("aa_total", "total")]


def same(id: str, metric: str) -> Figure:
    """Two copies of one cell compared by one metric."""
    return Figure(
        id,
        8,
        f"A/A: the same against itself, {NAMES[metric]}",
        "Two copies of one cell, compared like any other pair. They must come out equivalent or inconclusive; "
        "faster or slower here means that the instrument sees differences that are not there.",
        "claims",
        CLAIM_COLUMNS,
        forest_chart("claims"),
        {"figure": metric, "twin": True},
        missing="This campaign has no A/A pair.",
        value=("ratio", "lowest"),
        family="A/A: the same against itself",
        tab=NAMES[metric],
    )


def canary() -> Figure:
    """Times of the canary, a fixed piece of work, in order."""
    drawn = (
        chart("canary")
        .mark_line(point=alt.OverlayMarkDef(size=14), strokeWidth=1, opacity=0.8)
        .encode(
            x=alt.X("order:Q", title="measurement"),
            y=alt.Y("relative:Q", title="times the median", scale=alt.Scale(zero=False)),
            color=alt.Color("kind:N", scale=alt.Scale(range=["#0072b2", "#d55e00"]), legend=alt.Legend(orient="top")),
            tooltip=tips("order:Q", "kind:N", "seconds:Q", "relative:Q"),
        )
        .properties(width=WIDTH, height=200)
    )
    return Figure(
        "canary",
        8,
        "Canary",
        "A fixed piece of arithmetic and of copying, around every block. A trend is the machine's, not a "
        "backend's; blocks are "
        "paired so that it cancels. The filters do not apply: no backend is involved.",
        "canary",
        {"order": "measurement", "kind": "kind", "seconds": "seconds", "relative": "times the median"},
        drawn,
        missing="No canary was measured.",
    )


WHOLE = "datum.value % 1 ? '' : format(datum.value, 'd')"
"""Labels at whole numbers only."""


def failures() -> Figure:
    """Failed and repeated attempts."""
    drawn = (
        chart("failures")
        .mark_bar()
        .encode(
            y=row_axis(),
            x=alt.X("count():Q", title="attempts", axis=alt.Axis(tickMinStep=1, labelExpr=WHOLE)),
            color=alt.Color(
                "outcome:N", scale=alt.Scale(scheme="tableau10"), legend=alt.Legend(title=None, orient="top")
            ),
            tooltip=tips("variant:N", "outcome:N", "count():Q"),
        )
    )
    drawn = alt.layer(drawn, row_names(chart("failures"))).properties(width=WIDTH, height=height(24))
    columns = {"run": "run", "attempt": "attempt", "variant": "variant", "env": "env", "model": "model"}
    columns |= {"timing": "timing", "outcome": "outcome", "tags": "tags", "detail": "detail", "log": "end of the log"}
    return Figure(
        "failures",
        9,
        "Failures and re-runs",
        "Attempts that crashed, ran out of time or memory, or were tagged and made again. Cells without "
        "results are left out of "
        "the claims that cannot use them, and named there.",
        "failures",
        columns,
        drawn,
        missing="No attempt failed or was tagged.",
    )


def code_size() -> list[Figure]:
    """Lines, names of the framework, and seconds to the first iteration."""
    columns = {"algorithm": "algorithm", "backend": "backend", "lines": "lines of code"}
    columns |= {"concepts": "framework concepts", "import_s": "import s", "first_step_s": "import to first step s"}
    columns |= {"recompiles": "later compilations"}
    size = Figure(
        "code_size",
        10,
        "Code size",
        "Lines of code (no blank lines, comments or docstrings) and distinct names of the framework in each "
        "implementation of the same algorithm. Fewer lines are less to write, fewer names less to know.",
        "code_size",
        columns | {"names": "concepts"},
        _bars("lines", "lines of code", "datum.lines + ' lines, ' + datum.concepts + ' names'"),
    )
    wait = Figure(
        "first_step",
        10,
        "Time to the first iteration",
        "Seconds from having imported the framework to the end of the first iteration, compiled modes, median over "
        "runs. The table also counts compilations after the first iteration, which should be 0.",
        "code_size",
        columns,
        _bars("first_step_s", "seconds to the end of the first iteration", "format(datum.first_step_s, '.3~g') + ' s'"),
        missing="No compiled run has a result.",
        value=("first_step_s",),
    )
    return [size, wait]


def _bars(field: str, title: str, words: str) -> Any:
    """A bar for each implementation with words at its end."""
    base = chart("code_size").transform_filter(f"isValid(datum.{field})").transform_calculate(words=words)
    axis = alt.Axis(ticks=False, domain=False, labelExpr="titles[datum.label] || datum.label", labelLimit=200)
    y = alt.Y("implementation:N", sort=None, title=None, axis=axis)
    x = alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=6))
    about = tips("algorithm:N", "backend:N", "lines:Q", "concepts:Q", "first_step_s:Q", "recompiles:Q")
    bars = base.mark_bar(size=16).encode(y=y, x=x, color=colour(None), tooltip=about)
    text = base.mark_text(align="left", dx=4, fontSize=10).encode(y=y, x=x, text=alt.Text("words:N"))
    return alt.layer(bars, text).properties(width=WIDTH - 150, height=alt.Step(24))


def provenance() -> Figure:
    """Campaign, machine and versions."""
    return Figure(
        "provenance",
        11,
        "Provenance",
        "The campaign, the machine and the versions behind every number on this page.",
        "provenance",
        {"what": "what", "value": "value"},
    )
