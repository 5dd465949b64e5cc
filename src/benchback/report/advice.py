"""The answer to `advise` as one HTML file: the table, time over steps, and nothing that comes from elsewhere."""

from collections.abc import Sequence
from html import escape
from typing import Any

import altair as alt
import polars as pl

from benchback.analysis.advice import Answer, Ranked
from benchback.analysis.advice_wording import COLUMNS, count_text, name, remarks, sentence, table_rows, title
from benchback.report.chart import WIDTH, chart, colour, log, tips, with_data, with_params
from benchback.report.document import document, figure, table
from benchback.report.drawing import draw

POINTS = 60
REACH = 10
"""The chart ends at so many times the steps that were asked about."""
HEIGHT = 340
MANY = "many agents"
"""What is called where a program has several agents."""


def page(answer: Answer) -> str:
    """The whole file."""
    said = "".join(f"<li>{escape(text)}</li>" for text in remarks(answer))
    heading = title(answer)
    body = (
        f'<p class="recommendation">{escape(sentence(answer))}</p>{table(COLUMNS, table_rows(answer))}'
        f"{_figure(answer)}<h2>What would change the answer</h2><ul>{said}</ul><p>{escape(_provenance(answer))}</p>"
    )
    return document(heading, body, f"benchback: {heading}")


def _figure(answer: Answer) -> str:
    svg, _ = draw(specification(answer))
    caption = (
        "Predicted time of the whole project over the steps of one training, both logarithmic; bands are 95 % "
        "intervals, dashed lines call several iterations at once, dotted ones train many agents in one program, "
        "diamonds are where the first candidate's line "
        f"crosses another's. The vertical line is at the {count_text(answer.question.steps)} steps asked about."
    )
    return figure(svg, "Time over steps", caption, "Time over steps")


def _provenance(answer: Answer) -> str:
    rounds = max(row.forecast.rounds for row in answer.ranked)
    relays = f"{answer.relays} relay{'s' if answer.relays > 1 else ''}"
    return f"Measured in {answer.spent_s:.0f} s: {relays}, up to {rounds} rounds of a candidate."


def specification(answer: Answer) -> dict[str, Any]:
    """The chart of time over steps as Vega-Lite, with its data."""
    axis = alt.Axis(format="~s", labelOverlap=True)
    x = alt.X("steps:Q", scale=log(), axis=axis, title="environment steps of one training")
    y = alt.Y("total_s:Q", scale=log(), title="seconds of the whole project")
    dashes = alt.Scale(domain=["phase", "chunk", MANY], range=[[1, 0], [5, 3], [1, 2]])
    dash = alt.StrokeDash("calls:N", scale=dashes, legend=alt.Legend(title="calls", orient="top"))
    lines = chart("advice").transform_filter("datum.kind == 'line'")
    by_candidate = {"detail": "candidate:N", "color": colour()}
    layers = [
        lines.mark_area(opacity=0.12).encode(x, alt.Y("low_s:Q", scale=log()), alt.Y2("high_s"), **by_candidate),
        lines.mark_line().encode(x, y, strokeDash=dash, tooltip=tips("candidate:N"), **by_candidate),
        chart("advice").transform_filter("datum.kind == 'asked'").mark_rule(strokeDash=[2, 2]).encode(x),
        chart("advice")
        .transform_filter("datum.kind == 'crossing'")
        .mark_point(shape="diamond", size=120, filled=True)
        .encode(x, y, color=colour()),
    ]
    made = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT).to_dict(validate=False)
    made.pop("datasets", None)
    return with_data(with_params(made, {}), "advice", pl.DataFrame(chart_rows(answer)))


def chart_rows(answer: Answer) -> list[dict[str, Any]]:
    """Points of each candidate's line and band, the steps asked about, and the crossings."""
    rows = [point for row in answer.ranked for point in _line(row, answer)]
    rows.append(_row("asked", answer.question.steps))
    found = {row.forecast.cell.id: row for row in answer.ranked}
    for crossing in answer.crossings:
        if crossing.steps is not None and crossing.steps <= REACH * answer.question.steps:
            row = found[crossing.other.id]
            iterations = round(crossing.steps / answer.question.config.batch_size)
            total = row.forecast.total(iterations, answer.question.seeds).value
            rows.append(_row("crossing", crossing.steps, row, total, total, total))
    return rows


def _line(row: Ranked, answer: Answer) -> list[dict[str, Any]]:
    question = answer.question
    found = []
    for iterations in _iterations(question.iterations):
        total = row.forecast.total(iterations, question.seeds)
        steps = iterations * question.config.batch_size
        found.append(_row("line", steps, row, total.value, max(total.low, total.value / 10), total.high))
    return found


def _iterations(asked: int) -> Sequence[int]:
    """Numbers of iterations from one to several times those asked about, evenly spaced in logarithms."""
    most = REACH * asked
    return sorted({round(most ** (i / (POINTS - 1))) for i in range(POINTS)})


def _row(
    kind: str,
    steps: int | float,
    row: Ranked | None = None,
    total_s: float | None = None,
    low_s: float | None = None,
    high_s: float | None = None,
) -> dict[str, Any]:
    cell = row.forecast.cell if row else None
    return {
        "kind": kind,
        "steps": float(steps),
        "candidate": name(cell) if cell else "",
        "backend": cell.run["backend"] if cell else None,
        "calls": None if cell is None else MANY if cell.members > 1 else cell.run["unit"],
        "total_s": total_s,
        "low_s": low_s,
        "high_s": high_s,
    }
