"""Figures of a search: how fitness went, and what the objective found does, beside PPO's clip and DPO.

Charts are Vega-Lite specifications as plain data. Gradients are those of the NumPy oracle, which imports no framework.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchback.algorithms.ppo.config import Config
from benchback.parity.ppo import oracle
from benchback.tools.discover.search import Row, environments

RATIOS = np.linspace(0.4, 1.6, 49)
ADVANTAGES = np.linspace(-2.5, 2.5, 41)
COLOURS = {"result": "#d55e00", "start": "#7f7f7f", "tried": "#0072b2"}
LABELS = {"result": "where it has come to", "start": "where it began", "tried": "mean of those tried"}


def fitness(history: Sequence[Row], title: str) -> dict[str, Any]:
    """Return at the end of training by generation: of the result, of the start on the same seeds, of those tried."""
    rows = [
        {"generation": generation, "env": env, "of": LABELS[name], "return": _known(found[name])}
        | {"low": _known(found["tried"] - found["tried_std"]), "high": _known(found["tried"] + found["tried_std"])}
        for generation, row in enumerate(history, 1)
        for env, found in environments(row).items()
        for name in LABELS
    ]
    x = {"field": "generation", "type": "quantitative", "axis": {"tickMinStep": 1, "format": "d"}}
    y = {"type": "quantitative", "scale": {"zero": False}, "title": "return at the end of training"}
    colour = {"field": "of", "type": "nominal", "title": None, "legend": {"orient": "bottom"}}
    colour["scale"] = {"domain": list(LABELS.values()), "range": list(COLOURS.values())}
    band = {
        "transform": [{"filter": f"datum.of === '{LABELS['tried']}'"}],
        "mark": {"type": "area", "opacity": 0.2, "color": COLOURS["tried"]},
        "encoding": {"x": x, "y": {"field": "low"} | y, "y2": {"field": "high"}},
    }
    line = {"mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": {"field": "return"} | y}}
    line["encoding"]["color"] = colour
    return {
        "data": {"values": rows},
        "title": {"text": title, "subtitle": "band: standard deviation over those tried", "anchor": "start"},
        "facet": {"field": "env", "type": "nominal", "title": None},
        "columns": 2,
        "resolve": {"scale": {"y": "independent"}},
        "spec": {"width": 420, "height": 240, "layer": [band, line]},
    }


def objectives(config: Config, weights: Sequence[float]) -> Mapping[str, Config]:
    """The objectives that are drawn side by side."""
    return {
        "PPO's clip": replace(config, surrogate="clip", objective=()),
        "DPO": replace(config, surrogate="drift", objective=()),
        "discovered": replace(config, surrogate="learned", objective=tuple(weights)),
    }


def gradients(config: Config, weights: Sequence[float]) -> dict[str, Any]:
    """Derivative of each objective by the ratio, over ratio and advantage: where it pushes the ratio, and how hard."""
    rows = []
    ratio, advantage = (x.ravel() for x in np.meshgrid(RATIOS, ADVANTAGES))
    for name, chosen in objectives(config, weights).items():
        _, slope = oracle.SURROGATES[chosen.surrogate](np.log(ratio), advantage, chosen)
        by_ratio = slope / ratio
        rows += [
            {
                "objective": name,
                "ratio": round(float(r), 4),
                "advantage": round(float(a), 4),
                "slope": round(float(s), 4),
            }
            for r, a, s in zip(ratio, advantage, by_ratio, strict=True)
        ]
    limit = float(np.abs(ADVANTAGES).max())
    colour = {"domain": [-limit, limit], "clamp": True, "scheme": "redblue", "reverse": True}
    return {
        "data": {"values": rows},
        "title": {
            "text": "Gradient of the objective by the ratio",
            "subtitle": "red: the ratio is raised, blue: lowered, white: left alone",
            "anchor": "start",
        },
        "facet": {"field": "objective", "type": "nominal", "title": None, "sort": list(objectives(config, weights))},
        "columns": 3,
        "spec": {
            "width": 245,
            "height": 205,
            "mark": "rect",
            "encoding": {
                "x": {"field": "ratio", "type": "ordinal", "axis": _axis(RATIOS)},
                "y": {"field": "advantage", "type": "ordinal", "sort": "descending", "axis": _axis(ADVANTAGES)},
                "color": {"field": "slope", "type": "quantitative", "scale": colour, "title": "gradient"},
            },
        },
    }


def schedule(name: str, start: Sequence[float], found: Sequence[float]) -> dict[str, Any]:
    """A schedule over the training, where it began and where it has come to."""
    shares = np.linspace(0, 1, len(found))
    rows = [
        {"share": float(share), "value": float(x), "of": LABELS[of]}
        for of, values in (("start", start), ("result", found))
        for share, x in zip(shares, values, strict=True)
    ]
    colour = {"field": "of", "type": "nominal", "title": None, "legend": {"orient": "bottom"}}
    colour["scale"] = {"domain": [LABELS["start"], LABELS["result"]], "range": [COLOURS["start"], COLOURS["result"]]}
    return {
        "data": {"values": rows},
        "title": {"text": f"{name} over the training", "anchor": "start"},
        "width": 420,
        "height": 240,
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "share", "type": "quantitative", "title": "part of the training", "axis": {"format": "%"}},
            "y": {"field": "value", "type": "quantitative", "title": name},
            "color": colour,
        },
    }


def _axis(values: np.ndarray) -> dict[str, Any]:
    return {"values": [round(float(x), 4) for x in values[:: len(values) // 6]], "labelAngle": 0, "format": ".2"}


def _known(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
