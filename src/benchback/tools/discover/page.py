"""Writes what a search has found: a file to train with, tables, figures, and one offline page of all."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchback.report.drawing import draw
from benchback.tools.discover import figures
from benchback.tools.discover.evaluation import FOUND, Contest, mean_text, sentence
from benchback.tools.discover.search import Asked, Row, table
from benchback.tools.profile.page import STYLE
from benchback.training import objectives
from benchback.training.checkpoint import write_atomically


def write_result(out: Path, asked: Asked, vector: np.ndarray, history: Sequence[Row]) -> Path:
    """What training takes: the drift as objective.json, hyper-parameters as best.yaml; and history.csv."""
    write_atomically(out / "history.csv", table(list(history)))
    found = asked.genome.fields(vector)
    if "objective" in found:
        about = {"evolved_on": [*asked.envs], "strategy": asked.strategy, "generations": len(history)}
        about |= {"agents": asked.settings.agents, "seeds": asked.seeds, "seed": asked.settings.seed}
        objectives.write(out / "objective.json", found["objective"], about)
        return out / "objective.json"
    write_atomically(out / "best.yaml", yaml.safe_dump(asked.run.to_dict() | found, sort_keys=False))
    return out / "best.yaml"


REFRESH_S = 10
"""Seconds after which a browser loads the page of a search again that is under way."""


def write_fitness(out: Path, asked: Asked, history: Sequence[Row]) -> None:
    """The chart of fitness by generation, replaced; and a report.html with it that follows the search in a browser."""
    chart = figures.fitness(history, f"{asked.strategy}, {asked.settings.agents} agents")
    shown = {"fitness": _write_chart(out, "fitness", chart)}
    write_atomically(out / "report.html", page(asked, shown, (), refresh_s=REFRESH_S))


def write_page(
    out: Path, asked: Asked, vector: np.ndarray, history: Sequence[Row], contests: Sequence[Contest]
) -> list[Path]:
    """Figures, evaluation.json and report.html."""
    charts = {"fitness": figures.fitness(history, f"{asked.strategy}, {asked.settings.agents} agents")}
    found = asked.genome.fields(vector)
    if "objective" in found:
        charts["gradients"] = figures.gradients(asked.run.config, found["objective"])
    began = asked.genome.fields(asked.genome.start)
    for name in set(found) & set(getattr(asked.run.config, "schedules", ())):
        charts[name] = figures.schedule(name, began[name], found[name])
    shown = {name: _write_chart(out, name, chart) for name, chart in charts.items()}
    write_atomically(out / "evaluation.json", json.dumps([x.to_dict() for x in contests], indent=1))
    write_atomically(out / "report.html", page(asked, shown, contests))
    return [out / f"{name}.png" for name in charts] + [out / "evaluation.json", out / "report.html"]


def _write_chart(out: Path, name: str, chart: dict[str, Any]) -> str:
    svg, png = draw(chart)
    write_atomically(out / f"{name}.svg", svg)
    write_atomically(out / f"{name}.png", png)
    return svg.decode()


def page(asked: Asked, charts: Mapping[str, str], contests: Sequence[Contest], refresh_s: int | None = None) -> str:
    """The whole page; it loads nothing, but itself again every so many seconds while the search is under way."""
    title = f"Discovered on {', '.join(asked.envs)}"
    told = [sentence(x, other) for x in contests for other in x.scores if other != FOUND]
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        "<ul>" + "".join(f"<li>{html.escape(x)}</li>" for x in told) + "</ul>",
        *(f"<figure>{svg}</figure>" for svg in charts.values()),
        _table(contests) if contests else "",
    ]
    style = f"{STYLE} figure {{ margin: 1.5rem 0; background: #fff }} figure svg {{ max-width: 100%; height: auto }}"
    again = f'<meta http-equiv="refresh" content="{refresh_s}">' if refresh_s else ""
    head = f'<meta charset="utf-8">{again}<title>{html.escape(title)}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(sections)}</body></html>\n'


def _table(contests: Sequence[Contest]) -> str:
    names = list(contests[0].scores)
    head = "".join(f"<th>{html.escape(x)}</th>" for x in ("environment", *names))
    rows = "".join(
        f"<tr><td>{html.escape(x.env)}{'' if x.evolved_on else ' (not evolved on)'}</td>"
        + "".join(f'<td class="number">{html.escape(mean_text(x.scores[name]))}</td>' for name in names)
        + "</tr>"
        for x in contests
    )
    return f"<h2>Returns on fresh seeds</h2><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
