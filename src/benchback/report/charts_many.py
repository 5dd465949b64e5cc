"""The section about many agents: the time of N of them, what each costs, and from how many on one program pays."""

from typing import Any

import altair as alt

from benchback.analysis.many import AFTER, BESIDE, TOGETHER, works
from benchback.analysis.source import Source
from benchback.report.chart import APART, WIDTH, Figure, chart, colour, log, tips

SECTION = 12
KINDS = {TOGETHER: [1, 0], AFTER: [7, 4], BESIDE: [2, 3]}
"""How agents are trained -> dashes of its line."""
ONE_WORK = tuple(name for name in APART if name != "agents")
VIEWS = {
    "total_s": ("whole training", "seconds for all agents"),
    "steady_s": ("an iteration", "seconds of an iteration of all agents"),
    "steps_per_s": ("steps per second", "environment steps per second of all agents"),
}


def section(source: Source) -> list[Figure]:
    """Nothing where no cell has several agents."""
    found = works(source)
    if not found:
        return []
    sizes = sorted({agents for work in found for curve in work.curves for agents in curve.sizes})
    iterations = found[0].best.cell.run["num_iterations"]
    return [*(_curve(value, sizes, iterations) for value in VIEWS), _cost(), _even(found[0].processors)]


def _curve(value: str, sizes: list[int], iterations: int) -> Figure:
    tab, title = VIEWS[value]
    columns = {"count": "agents", "variant": "variant", "kind": "how", "env": "env", "model": "model"}
    columns |= {"total_s": "whole training s", "steady_s": "iteration s", "steps_per_s": "agent steps/s"}
    included = (
        f" A training is {iterations:,} iterations, from the start of the process on, with imports and compilation: "
        "predicted from its start and its steady iterations."
        if value == "total_s"
        else ""
    )
    return Figure(
        f"many_{value}",
        SECTION,
        f"Time of many agents, {tab}" if value != "steps_per_s" else "Steps per second of many agents",
        f"{title[0].upper()}{title[1:]} by their number, both axes logarithmic.{included} Points and whole lines are "
        "measured, medians over blocks, in one process on its threads. Dashed and dotted lines are one agent alone, "
        "repeated: one process after another, for the backend that is fastest alone and for those that train one agent "
        "per program; and as many at a time as there are processors, an ideal in which they do not slow each other.",
        "many",
        columns | {"blocks": "blocks"},
        curve_chart(value, title, sizes),
        one=ONE_WORK,
        value=(value,),
        family="N agents: in one program, one after another, side by side",
        tab=tab,
    )


def curve_chart(value: str, title: str, sizes: list[int]) -> Any:
    """A line per backend over the number of agents, and dashed ones for agents that are not in one program."""
    base = chart("many").transform_filter(f"isValid(datum.{value})")
    x = alt.X("count:Q", scale=log(14), title="agents", axis=alt.Axis(values=sizes, format=",d", grid=False))
    y = alt.Y(f"{value}:Q", scale=log(10), title=title, axis=alt.Axis(format="~s", tickCount=6))
    dashes = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    dash = alt.StrokeDash(
        "kind:N", scale=dashes, legend=alt.Legend(title=None, orient="bottom", symbolSize=400, labelLimit=0, columns=1)
    )
    lines = base.mark_line(strokeWidth=2).encode(
        x=x, y=y, color=colour(), strokeDash=dash, detail=[alt.Detail("variant:N"), alt.Detail("kind:N")]
    )
    about = tips("variant:N", "kind:N", "count:Q", f"{value}:Q", "blocks:Q")
    dots = base.transform_filter(f"datum.kind == '{TOGETHER}'")
    dots = dots.mark_point(size=45, filled=True, opacity=1).encode(x=x, y=y, color=colour(), tooltip=about)
    return alt.layer(lines, dots).properties(width=WIDTH, height=340)


def _cost() -> Figure:
    columns = {"count": "agents", "variant": "variant", "each_ms": "ms per agent and iteration"}
    columns |= {"steps_per_s": "agent steps/s", "said": "times as long as alone", "compile_s": "compile s"}
    columns |= {"start_s": "start s", "peak_mb": "peak MB", "added_kb": "kB per added agent", "total_s": "training s"}
    return Figure(
        "many_cost",
        SECTION,
        "What an agent costs",
        "An iteration divided by the number of agents, against the same variant with one agent: Welch's interval of "
        "the blocks, the verdict corrected for the number of comparisons. The start ends with the first call; compile "
        "time is that call without a steady one. Memory is the most that the process held; per added agent it is that "
        "minus the most with one agent, over the agents added. That includes what the larger program of several agents "
        "takes once, so only large numbers of agents tell.",
        "agents",
        columns | {"blocks": "blocks"},
        one=ONE_WORK,
    )


def _even(processors: int) -> Figure:
    columns = {"variant": "one program of", "other": "against as many trainings of"}
    columns |= {"after_text": "one after another"}
    columns |= {"beside_text": f"{processors} at once, ideal"} if processors > 1 else {}
    return Figure(
        "many_even",
        SECTION,
        "Break-even: from how many agents on one program is done first",
        "Whole trainings with start and compilation: from how many agents on one program of the first is done before "
        "as many trainings of one agent each in the second, and stays so up to the largest number measured. Between "
        "measured numbers of agents its time is interpolated.",
        "even",
        columns,
        one=ONE_WORK,
        missing="No variant with one agent has a cold start and a steady state.",
    )
