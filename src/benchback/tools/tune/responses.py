"""Charts of a search: the return over each tuned field, over pairs of them, and the floats of evolving members."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from benchback.report.chart import FILE_FONT, config
from benchback.tools.tune.result import Line, text

DECADE = 10.0
"""Numbers whose ends are this factor apart are drawn on a logarithmic scale."""
FEWEST_IN_BAND = 12
"""Points below which there is no band."""
FEWEST_NEAR = 5
"""Points that each place of a band is made of, at least."""
PLACES = 40
MOST_PAIRS = 6
RETURN = "return at the end"
BLUE, GREY = "#0072b2", "#7f7f7f"

Chart = dict[str, Any]


def responses(lines: Sequence[Line], title: str) -> Chart | None:
    """A chart of the return over each tuned field; None if no point has a score."""
    known = [line for line in lines if line["score"] is not None]
    fields = tuned(known)
    if not fields:
        return None
    about = (
        "dot: a point's mean over seeds, bar: its 95 % interval, line and band: median and quartiles of nearby points"
    )
    if _unequal(known):
        about += "; faint: dropped early, judged then"
    parts = [_response(known, name) for name in fields]
    return _whole(title, about, {"concat": parts, "columns": 2})


def maps(lines: Sequence[Line], title: str) -> Chart | None:
    """A chart of the return over each pair of tuned fields, the best point ringed; None if fewer than two vary."""
    known = [line for line in lines if line["score"] is not None]
    pairs = list(combinations(tuned(known), 2))[:MOST_PAIRS]
    if not pairs:
        return None
    parts = [_map(known, *pair) for pair in pairs]
    return _whole(title, "colour: mean return of a point; ring: the best", {"concat": parts, "columns": 2})


def evolution(history: Sequence[Mapping[str, Any]], last: int, title: str) -> Chart:
    """The floats of every member over the iterations of population-based training."""
    fields = [name for name in history[0] if name not in ("program", "iteration", "member", "parent")]
    rows = _steps(history, last)
    parts = []
    for name in fields:
        y = {"field": name, "type": "quantitative", "scale": _scale([row[name] for row in rows])}
        x = {"field": "iteration", "type": "quantitative"}
        mark = {"type": "line", "interpolate": "step-after", "opacity": 0.5, "color": BLUE, "strokeWidth": 1}
        encoding = {"x": x, "y": y, "detail": [{"field": "program"}, {"field": "member"}]}
        parts.append({"data": {"values": rows}, "mark": mark, "encoding": encoding, "width": 300, "height": 200})
    about = "a line is a member; it jumps where it took over from a better one"
    return _whole(title, about, {"concat": parts, "columns": 2})


def tuned(lines: Sequence[Line]) -> list[str]:
    """The fields in which the points differ."""
    names = dict.fromkeys(name for line in lines for name in line["values"])
    return [name for name in names if len({text(line["values"].get(name)) for line in lines}) > 1]


def band(x: Sequence[float], y: Sequence[float], log: bool) -> list[dict[str, float]]:
    """Median and quartiles of y over the points that are nearest in x, at evenly spread places; none of few points."""
    if len(x) < FEWEST_IN_BAND:
        return []
    place = np.log(x) if log else np.asarray(x, float)
    near = max(FEWEST_NEAR, len(x) // 8)
    found = []
    for at in np.linspace(place.min(), place.max(), PLACES).tolist():
        nearest = np.argsort(np.abs(place - at), kind="stable")[:near]
        low, middle, high = np.quantile(np.asarray(y, float)[nearest], [0.25, 0.5, 0.75]).tolist()
        found.append({"at": math.exp(at) if log else at, "q25": low, "median": middle, "q75": high})
    return found


def _response(lines: Sequence[Line], name: str) -> Chart:
    values = [line["values"].get(name) for line in lines]
    most = max(line.get("iterations", 1) for line in lines)
    rows = [
        {"at": _shown(value), "score": line["score"], "low": line["low"], "high": line["high"]}
        | {"trained": max(0.15, line.get("iterations", most) / most)}
        for line, value in zip(lines, values, strict=True)
    ]
    x: Chart = {"field": "at", "title": name} | _axis(values)
    y: Chart = {"field": "score", "type": "quantitative", "title": RETURN, "scale": _around(lines)}
    faint = {"field": "trained", "type": "quantitative", "scale": None}
    layers: list[Chart] = [
        {
            "transform": [{"filter": "datum.low !== null"}],
            "mark": {"type": "rule", "color": GREY, "opacity": 0.35, "clip": True},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 28, "color": BLUE},
            "encoding": {"x": x, "y": y, "opacity": faint},
        },
    ]
    if x["type"] == "quantitative":
        near = band([float(v) for v in values], [line["score"] for line in lines], x["scale"].get("type") == "log")
        layers = _banded(near, x, y) + layers if near else layers
    return {"data": {"values": rows}, "layer": layers, "width": 300, "height": 220}


def _banded(near: list[dict[str, float]], x: Chart, y: Chart) -> list[Chart]:
    data = {"values": near}
    area = {"x": x, "y": y | {"field": "q25"}, "y2": {"field": "q75"}}
    line = {"x": x, "y": y | {"field": "median"}}
    return [
        {"data": data, "mark": {"type": "area", "color": BLUE, "opacity": 0.18}, "encoding": area},
        {"data": data, "mark": {"type": "line", "color": BLUE, "strokeWidth": 2}, "encoding": line},
    ]


def _map(lines: Sequence[Line], across: str, up: str) -> Chart:
    rows = [
        {"x": _shown(line["values"].get(across)), "y": _shown(line["values"].get(up)), "score": line["score"]}
        | {"best": place == 0}
        for place, line in enumerate(lines)
    ]
    place = {
        "x": {"field": "x", "title": across} | _axis([line["values"].get(across) for line in lines]),
        "y": {"field": "y", "title": up} | _axis([line["values"].get(up) for line in lines]),
    }
    legend = {"title": "return", "orient": "right"}
    colour = {"field": "score", "type": "quantitative", "scale": {"scheme": "viridis"}, "legend": legend}
    layers = [
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9}, "encoding": place | {"color": colour}},
        {
            "transform": [{"filter": "datum.best"}],
            "mark": {"type": "point", "size": 190, "strokeWidth": 2.5, "color": "#d55e00"},
            "encoding": place,
        },
    ]
    return {"data": {"values": rows}, "layer": layers, "width": 300, "height": 240}


def _axis(values: Sequence[Any]) -> Chart:
    """How the values of a field are placed: by number, or by name."""
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in values):
        return {"type": "quantitative", "scale": _scale([float(x) for x in values])}
    return {"type": "nominal", "sort": None}


def _scale(values: Sequence[float]) -> Chart:
    low, high = min(values), max(values)
    if low > 0 and high / low >= DECADE:
        return {"type": "log", "nice": False, "padding": 8}
    return {"zero": False, "padding": 8}


def _around(lines: Sequence[Line]) -> Chart:
    """As high as the means: intervals of few seeds would flatten them, and are cut off."""
    scores = [line["score"] for line in lines]
    room = 0.1 * (max(scores) - min(scores)) or 1.0
    return {"domain": [min(scores) - room, max(scores) + room], "nice": False}


def _shown(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number and math.isfinite(value) else text(value)


def _unequal(lines: Sequence[Line]) -> bool:
    return len({line.get("iterations") for line in lines}) > 1


def _steps(history: Sequence[Mapping[str, Any]], last: int) -> list[dict[str, Any]]:
    """The history with a further row for each member, at the last iteration."""
    ends = {(row["program"], row["member"]): row for row in history}
    return [dict(row) for row in history] + [{**row, "iteration": last} for row in ends.values()]


def _whole(title: str, about: str, parts: Chart) -> Chart:
    heading = {"text": title, "subtitle": about, "anchor": "start"}
    return parts | {"title": heading, "config": config(dark=False) | {"font": FILE_FONT}}
