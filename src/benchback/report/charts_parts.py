"""Section 3, the parts of a run: overheads, phases and ways to compile."""

from dataclasses import replace
from typing import Any

import altair as alt

from benchback.analysis.source import Source
from benchback.report.chart import APART, Figure, chart, colour, log, tips
from benchback.report.rows import by_part, height, row_axis, row_names, spread

NAMES = {
    "total": "total",
    "cold_start": "cold start",
    "steady": "steady iteration",
    "rollout": "rollout",
    "update": "update",
}
FIRST_WORDS = (
    "Iteration 0 counts from the start of the process; 1:7 is the mean of iterations 1 to 7, 7: that of 8 and later "
    "(names as published). "
)
TABS = {"seconds": "seconds", "ratio": "ratio to the reference", "difference_s": "difference from the reference"}
SYMLOG = {"type": "symlog", "constant": 0.1}
SYMLOG_TICKS = [sign * 10.0**power for sign in (-1, 1) for power in range(-1, 4)]


def section(source: Source) -> list[Figure]:
    """Overheads, phases, modes."""
    return [*overheads(source.models), *phases(source.models), *modes()]


def overheads(models: list[str]) -> list[Figure]:
    """Windows of a run: absolute, as ratio, and as difference."""
    columns = {"variant": "variant", "env": "env", "model": "model", "timing": "timing", "part": "iterations"}
    columns |= {"seconds": "seconds", "ratio": "ratio to reference", "difference_s": "difference s", "blocks": "blocks"}
    scales: dict[str, Any] = {
        "seconds": alt.X("seconds:Q", scale=log(18), title="seconds"),
        "ratio": alt.X("ratio:Q", scale=log(18), title="times as long as the reference"),
        "difference_s": alt.X(
            "difference_s:Q",
            scale=alt.Scale(nice=False, padding=18, **SYMLOG),
            title="seconds more than the reference",
            axis=alt.Axis(values=[0.0, *SYMLOG_TICKS], format="~g"),
        ),
    }
    words = {
        "seconds": (
            "Overheads: seconds",
            "Look for those that start slowly but run fast.",
        ),
        "ratio": (
            "Overheads: ratio to the reference",
            "Ratios near 1 in 7: with large ones in 0 mean that the difference is compilation, and fades.",
        ),
        "difference_s": (
            "Overheads: seconds more than the reference",
            "Linear below 0.1 s and logarithmic above: what a user waits longer, or less.",
        ),
    }
    made = []
    for field, x in scales.items():
        drawn = by_part(spread("overheads", field, x, models, one=field == "ratio"), "part", models)
        title, caption = words[field]
        made.append(
            Figure(
                f"overhead_{field}",
                3,
                title,
                FIRST_WORDS + caption,
                "overheads",
                columns,
                drawn,
                one=APART,
                value=(field,),
                family="Overheads: start, warm-up and settled iterations",
                tab=TABS[field],
            )
        )
    return made


def phases(models: list[str]) -> list[Figure]:
    """Rollout and update apart."""
    columns = {"variant": "variant", "env": "env", "model": "model", "part": "phase", "seconds": "seconds"}
    columns |= {"ratio": "ratio to reference", "blocks": "blocks"}
    missing = "Rollout and update are told apart in sync timing only, and this campaign has none."
    caption = (
        "Rollout is mostly environment, update only model: a backend that is slow in one of them alone shows where."
    )
    made = []
    for field, title, axis in (
        ("seconds", "Rollout and update: seconds in steady state", "seconds in steady state"),
        ("ratio", "Rollout and update: ratio to the reference", "times as long as the reference"),
    ):
        x = alt.X(f"{field}:Q", scale=log(18), title=axis)
        drawn = by_part(spread("phases", field, x, models, one=field == "ratio"), "part", models)
        figure = Figure(f"phases_{field}", 3, title, caption, "phases", columns, drawn, one=APART, missing=missing)
        made.append(replace(figure, family="Rollout and update", tab=TABS[field], value=(field,)))
    return made


def modes() -> list[Figure]:
    """Ways to compile, a panel for each backend."""
    columns = {"variant": "variant", "env": "env", "model": "model", "figure": "metric", "seconds": "seconds"}
    caption = (
        "Every mode and unit of a backend that was run in more than one: none is uncompiled, the unit says how much "
        "one program covers. The distance between points of a panel is what compiling buys; all panels share one axis."
    )
    made = []
    for name in ("steady", "total"):
        base = chart("modes")
        dots = base.mark_point(filled=True, size=60, opacity=0.9).encode(
            y=row_axis("way"),
            x=alt.X("seconds:Q", scale=log(), title=f"seconds, {NAMES[name]}"),
            color=colour(None),
            tooltip=tips("variant:N", "env:N", "model:N", "seconds:Q"),
        )
        drawn = by_part(alt.layer(dots, row_names(base, "way", 4)), "backend", [], columns=2, room=180, each=False)
        drawn.spec.height = height(18)
        drawn = drawn.resolve_scale(x="shared", y="independent")
        title = f"Compile modes: {NAMES[name]}"
        missing = "Every backend was run in one mode only; the study compile_modes compares them."
        made.append(
            Figure(
                f"modes_{name}",
                3,
                title,
                caption,
                "modes",
                columns | {"blocks": "blocks"},
                drawn,
                {"figure": name},
                APART,
                missing,
                family="Compile modes",
                tab=NAMES[name],
            )
        )
    return made
