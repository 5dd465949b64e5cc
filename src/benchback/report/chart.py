"""Shared by all charts: data, caption, colours, and the rows that are shown before anything is chosen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import polars as pl

from benchback.analysis.claims import ALL
from benchback.registry import BACKENDS

VERDICTS = {
    "faster": "triangle-left",
    "slower": "triangle-right",
    "equivalent": "circle",
    "inconclusive": "diamond",
    "no verdict": "cross",
}
WIDTH = 640
"""Width of a chart as a file; on the page it is as wide as the page."""
FILE_FONT = "sans-serif"
"""The one that vl-convert brings along: the same on every machine, and four times as fast as those it must find."""
APART = ("algorithm", "device", "timing", "agents")
"""What is never mixed in a chart that does not name it."""
FILTERS = ("algorithm", "env", "model", "backend", "mode", "device", "timing", "agents")


@dataclass(frozen=True)
class Matrix:
    """A table of ratios with a row for each variant; the page colours it."""

    column: str
    """What its columns are: `model`, or `other` for the variants themselves."""


@dataclass(frozen=True)
class Figure:
    """A chart, or a table without one, with all that is said about it."""

    id: str
    section: int
    title: str
    caption: str
    """What it shows and what to look for."""
    data: str
    """Name of its table."""
    columns: Mapping[str, str]
    """Column -> heading of the table beside it."""
    chart: Any = None
    where: Mapping[str, Any] = field(default_factory=dict)
    """Rows it is about: column -> value."""
    one: tuple[str, ...] = ()
    """Axes whose values must not be mixed in it: the first value is shown until some are chosen."""
    missing: str = "Nothing of this kind was measured in this campaign."
    """What to say where no row is left."""
    value: tuple[str, ...] = ()
    """Columns of which a row needs one to be shown; any row is shown where there are none."""
    family: str = ""
    """Title of the block that it shares with others, one of which is shown at a time."""
    tab: str = ""
    """Its name within the family."""
    matrix: Matrix | None = None
    """How the page shows its rows where it has no chart."""


def rows_of(figure: Figure, table: pl.DataFrame) -> pl.DataFrame:
    """The rows a figure is about, whatever is chosen."""
    for column, value in figure.where.items():
        if column not in table.columns:
            return pl.DataFrame()
        table = table.filter(pl.col(column) == value)
    return table


def has_something(figure: Figure, table: pl.DataFrame) -> bool:
    """Whether any row of a figure can be shown, whatever is chosen."""
    rows = rows_of(figure, table)
    known = [rows[name].is_not_null().any() for name in figure.value if name in rows.columns]
    return not rows.is_empty() and (not figure.value or any(known))


def unfiltered(figure: Figure, table: pl.DataFrame) -> pl.DataFrame:
    """The rows that are shown before anything is chosen: those of `rows_of` that sum over environments and models
    (but along the columns of a matrix), one timing where timings do not mix, variants of many cells, examples."""
    for column in ("env", "model"):
        if column in table.columns and (table[column] == ALL).any():
            along = figure.matrix is not None and figure.matrix.column == column
            table = table.filter((pl.col(column) == ALL) != along)
    for column in figure.one:
        if column in table.columns and not table.is_empty():
            table = table.filter(pl.col(column) == table[column][0])
    for column in ("main", "example"):
        if column in table.columns and table[column].any():
            table = table.filter(pl.col(column))
    return table


def has_value(figure: Figure, table: pl.DataFrame) -> bool:
    """Whether a row of the table would be seen in the chart: one that has a value, where the chart needs one."""
    needed = [table[name].is_not_null().any() for name in figure.value if name in table.columns]
    return any(needed) if needed else not table.is_empty()


def chart(data: str) -> alt.Chart:
    """A chart of the table of that name."""
    return alt.Chart(alt.NamedData(name=data))


def colour(title: str | None = "backend") -> alt.Color:
    """The backend's colour, always the same one."""
    named = "titles[datum.label] || datum.label"
    legend = None
    if title is not None:
        legend = alt.Legend(title=title, orient="top", symbolLimit=12, symbolOpacity=1, labelExpr=named)
    return alt.Color("backend:N", scale=backend_scale(), legend=legend)


def backend_scale() -> alt.Scale:
    """From backend to colour."""
    return alt.Scale(domain=list(BACKENDS), range=[spec.colour for spec in BACKENDS.values()])


def shape(models: list[str]) -> alt.Shape:
    """A marker for each model."""
    scale = alt.Scale(domain=models, range=["circle", "square", "triangle-up", "diamond", "cross", "stroke"])
    return alt.Shape("model:N", scale=scale, legend=alt.Legend(title="model", orient="top"))


def tips(*names: str) -> list[alt.Tooltip]:
    """What is said of a mark under the pointer; numbers have four digits."""
    return [alt.Tooltip(name, format=".4g") if name.endswith(":Q") else alt.Tooltip(name) for name in names]


def log(padding: int = 12) -> alt.Scale:
    """A logarithmic scale with room at its ends."""
    return alt.Scale(type="log", nice=False, padding=padding)


def specification(figure: Figure, orders: Mapping[str, list[str]], names: Mapping[str, str]) -> dict[str, Any]:
    """The chart as Vega-Lite, without its data; the values of some fields stand in a given order whatever is chosen.

    Its parameter `narrow` is set by the page where there is no room for labels beside a chart; `names` has the plain
    name of every variant, `titles` that of every backend.
    """
    made = figure.chart.to_dict(validate=False)
    made.pop("datasets", None)
    _put_in_order(made, orders)
    return with_params(made, names)


def with_params(made: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A specification with the parameters that charts refer to; see `specification`."""
    titles = {name: spec.title for name, spec in BACKENDS.items()}
    given = {"narrow": False, "names": dict(names), "titles": titles}
    params = [*made.get("params", []), *({"name": name, "value": value} for name, value in given.items())]
    return made | {"params": params}


def _put_in_order(part: Any, orders: Mapping[str, list[str]]) -> None:
    if isinstance(part, list):
        for x in part:
            _put_in_order(x, orders)
    elif isinstance(part, dict):
        if part.get("field") in orders and "sort" in part:
            part["sort"] = orders[part["field"]]
        for x in part.values():
            _put_in_order(x, orders)


def with_data(specification: Mapping[str, Any], name: str, table: pl.DataFrame) -> dict[str, Any]:
    """The chart complete, for a file, with the columns that it mentions."""
    mentioned = json.dumps(specification)
    rows = table.select(column for column in table.columns if column in mentioned).to_dicts()
    return {**specification, "datasets": {name: rows}, "config": config(dark=False) | {"font": FILE_FONT}}


def config(*, dark: bool) -> dict[str, Any]:
    """How charts look on a light or a dark page."""
    ink, faint, background = ("#e8e8e8", "#4a4a4a", "#15181c") if dark else ("#1b1f24", "#d8d8d8", "#ffffff")
    text = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": background,
        "aria": False,
        "font": "system-ui, 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "axis": text | {"gridColor": faint, "gridOpacity": 0.6, "domainColor": ink, "tickColor": ink},
        # Labels closer than this are left out; those at the ends stay below their ticks, away from their neighbours.
        "axisQuantitative": {"labelSeparation": 8, "labelFlush": False},
        "legend": text
        | {"symbolStrokeWidth": 2, "columns": 6, "symbolBaseFillColor": ink, "symbolBaseStrokeColor": ink},
        "header": text | {"labelFontWeight": "bold"},
        "text": {"color": ink, "fill": ink},
        "rule": {"color": ink},
    }
