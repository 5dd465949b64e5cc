"""Charts with a row for each variant: names beside the rows, or above them where a page is narrow."""

from typing import Any

import altair as alt

from benchback.report.chart import WIDTH, chart, colour, log, shape, tips

Height = dict[str, Any]
ROW_GAP = 75
"""Between panels, for the axis of the upper and the title of the lower."""
WORDED = {"words": True}
"""Marks a chart with words beside its rows; on narrow pages they go above."""


def plain(value: str) -> str:
    """Expression for the plain name of a variant; what is none stays."""
    return f"(names[{value}] || {value})"


def row_axis(field: str = "variant") -> alt.Y:
    """The rows in order of mention."""
    axis = alt.Axis(
        labelExpr=f"narrow ? '' : {plain('datum.label')}", labelLimit=300, ticks=False, domain=False, labelPadding=20
    )
    return alt.Y(f"{field}:N", sort=None, title=None, axis=axis, scale=alt.Scale(paddingInner=0.3, paddingOuter=0.15))


def height(step: int) -> Height:
    """Height of a chart with so many pixels per row."""
    return {"step": step, "for": "position"}


def row_names(base: alt.Chart, field: str = "variant", up: int = 8, inner: alt.YOffset | None = None) -> alt.Chart:
    """The name above each row, on narrow pages only."""
    named = base.transform_aggregate(n="count()", groupby=[field]).transform_calculate(
        label=f"narrow ? {plain(f'datum.{field}')} : ''", place="0"
    )
    drawn = named.mark_text(align="left", baseline="bottom", dy=-up, fontSize=11, fontWeight="bold")
    drawn = drawn.encode(y=row_axis(field), x=alt.XValue(2), text=alt.Text("label:N"))
    return drawn if inner is None else drawn.encode(yOffset=inner)


def small_axis(models: list[str]) -> alt.YOffset:
    """Within a row: a lane for each model, and in it environments from cheap to costly."""
    return alt.YOffset("place:Q", scale=alt.Scale(domain=[0, len(models)]))


def line_at(base: alt.Chart, value: float) -> alt.Chart:
    """One dashed line across all rows."""
    once = base.transform_aggregate(n="count()")
    return once.mark_rule(strokeDash=[4, 3]).encode(x=alt.XDatum(value))


def spread(data: str, value: str, x: alt.X, models: list[str], row: str = "variant", one: bool = False) -> Any:
    """A point per run or cell on the small axis of its row; bars are the middle half of a model, ticks its median."""
    base = chart(data).transform_filter(f"isValid(datum.{value})")
    y, inner = row_axis(row), small_axis(models)
    parts = base.transform_aggregate(
        low=f"q1({value})",
        middle=f"median({value})",
        high=f"q3({value})",
        place="mean(place)",
        groupby=[row, "backend", "model"],
    )
    bars = parts.mark_rule(strokeWidth=10, opacity=0.25).encode(
        y=y, yOffset=inner, x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour(None)
    )
    middle = parts.mark_tick(thickness=2, size=13).encode(y=y, yOffset=inner, x=alt.X("middle:Q"), color=colour(None))
    about = tips(f"{row}:N", "env:N", "model:N", "timing:N", f"{value}:Q")
    dots = base.mark_point(size=26, opacity=0.8).encode(
        y=y, yOffset=inner, x=x, color=colour(None), shape=shape(models), tooltip=about
    )
    layers = [*([line_at(base, 1.0)] if one else []), bars, middle, dots, row_names(base, row, 1, inner)]
    return alt.layer(*layers, *([letters(base, row, inner)] if len(models) > 1 and row == "variant" else []))


def letters(base: alt.Chart, row: str, inner: alt.YOffset) -> alt.Chart:
    """The small axis: the first letter of each model before its lane."""
    named = base.transform_aggregate(place="mean(place)", groupby=[row, "model"])
    named = named.transform_calculate(letter="substring(datum.model, 0, 1)")
    return named.mark_text(align="right", fontSize=9, opacity=0.75).encode(
        y=row_axis(row), yOffset=inner, x=alt.XValue(-4), text=alt.Text("letter:N")
    )


def row_height(models: list[str]) -> Height:
    """Height of a chart with a lane for each model in every row."""
    return height(max(13 * len(models), 20) + 6)


def spread_chart(data: str, value: str, title: str, models: list[str]) -> Any:
    """Runs by variant, logarithmic."""
    x = alt.X(f"{value}:Q", scale=log(18), title=title)
    return spread(data, value, x, models).properties(width=WIDTH, height=row_height(models))


def by_part(inner: Any, field: str, models: list[str], *, columns: int = 1, room: int = 190, each: bool = True) -> Any:
    """A panel for each value of a field, one below the other; `room` is what names beside the rows need."""
    made = panels(inner.properties(width=WIDTH // columns, height=row_height(models)), field, columns, room)
    return made.resolve_scale(x="independent" if each else "shared")


def panels(inner: Any, field: str, columns: int = 2, room: int = 70) -> Any:
    """A panel for each value of a field, their plots aligned; `room` is what stands left of each."""
    header = alt.Header(title=None, labelLimit=0, labelAnchor="start")
    made = inner.facet(facet=alt.Facet(f"{field}:N", sort=None, header=header), columns=columns)
    return made.properties(usermeta={"room": room}, bounds="flush", spacing={"column": room, "row": ROW_GAP})
