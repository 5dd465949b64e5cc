"""Writes what a search has found: tables and charts as files, and one offline page of both."""

import csv
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchback.report.drawing import draw
from benchback.tools.profile.page import STYLE
from benchback.tools.tune import responses, result
from benchback.tools.tune.confirm import Confirmation, sentences
from benchback.tools.tune.result import Outcome, text
from benchback.training.checkpoint import write_atomically

MOST_ROWS = 50
CURSE = (
    "The best point was chosen by these very returns, by merit or by luck, so they overstate it. --confirm 10 trains "
    "it and the defaults on fresh seeds."
)


def write(
    outcome: Outcome,
    out: Path,
    confirmation: Confirmation | None = None,
    history: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """All files of a search in its folder, replaced if they are there: those of `result.write`, charts and the page."""
    paths = result.write(outcome, out)
    charts = {
        "responses": responses.responses(outcome.lines, outcome.name),
        "maps": responses.maps(outcome.lines, outcome.name),
        "evolution": _evolution(outcome, history),
    }
    drawn = {name: draw(chart) for name, chart in charts.items() if chart is not None}
    for name, (svg, png) in drawn.items():
        paths += _written({out / f"{name}.svg": svg, out / f"{name}.png": png})
    if history:
        paths.append(out / "history.csv")
        _write_history(history, paths[-1])
    if confirmation is not None:
        paths += _written({out / "confirmation.json": json.dumps(confirmation.to_dict(), indent=1).encode()})
    shown = {name: svg.decode() for name, (svg, _) in drawn.items()}
    return paths + _written({out / "report.html": page(outcome, shown, confirmation).encode()})


def _written(files: Mapping[Path, bytes]) -> list[Path]:
    for path, content in files.items():
        write_atomically(path, content)
    return list(files)


def _evolution(outcome: Outcome, history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    last = max((line.get("iterations", 0) for line in outcome.lines), default=0)
    return responses.evolution(history, last, outcome.name) if history else None


def _write_history(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(history[0]))
        writer.writeheader()
        writer.writerows(history)


def page(outcome: Outcome, charts: Mapping[str, str], confirmation: Confirmation | None) -> str:
    """The whole page; it loads nothing."""
    title = f"{outcome.name}: {len(outcome.lines)} points"
    told = [CURSE] if confirmation is None else sentences(confirmation)
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(' '.join(told))}</p>",
        *(f"<figure>{svg}</figure>" for svg in charts.values()),
        "<h2>Points</h2>",
        _table(outcome),
        f'<p class="note">{html.escape(note(outcome))}</p>',
    ]
    style = f"{STYLE} figure {{ margin: 1.5rem 0; background: #fff }} figure svg {{ max-width: 100%; height: auto }}"
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(sections)}</body></html>\n'


def note(outcome: Outcome) -> str:
    """How to read the table."""
    kind = (
        "Points of one rank cannot be told apart: the rank counts those whose whole 95 % interval is above one's own."
    )
    if outcome.method == "halving":
        kind += " Points that were dropped early come after those trained longer, with the return that they had then."
    if outcome.method == "pbt":
        kind += " Values are those of the last round; history.csv has all of them."
    return f"Return: mean over the episodes of the last tenth of the iterations, then over seeds. {kind}"


def _table(outcome: Outcome) -> str:
    fields = list(outcome.lines[0]["values"])
    columns = ["rank", *fields, "return", "+-", "95 % interval", "seeds"]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = "".join(f"<tr>{_cells(line, fields)}</tr>" for line in outcome.lines[:MOST_ROWS])
    more = len(outcome.lines) - MOST_ROWS
    rest = f'<p class="note">{more} more in results.csv</p>' if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"


def _cells(line: Mapping[str, Any], fields: Sequence[str]) -> str:
    interval = "-" if line["low"] is None else f"{line['low']:.1f} to {line['high']:.1f}"
    told = [line["rank"], *(text(line["values"].get(name)) for name in fields), _number(line["score"])]
    told += [_number(line["std"]), interval, line["seeds"]]
    return "".join(f'<td class="number">{html.escape(str(x))}</td>' for x in told)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
