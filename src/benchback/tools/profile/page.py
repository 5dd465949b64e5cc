"""Writes the profile as files: one offline page, and the same as JSON."""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchback.analysis.wording import ratio_text
from benchback.training.checkpoint import write_atomically

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24;
  background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .15rem .8rem .15rem 0; text-align: left }
th { border-bottom: 1px solid #1b1f24 } td.number { text-align: right; font-variant-numeric: tabular-nums }
td.number, td:first-child { white-space: nowrap } td.bar { min-width: 10rem }
td.bar div { background: #0072b2; height: .8rem } code { font-size: 13px }
.note { color: #57606a }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #15181c } th { border-color: #e8e8e8 }
  .note { color: #a0a8b0 } td.bar div { background: #3a9fd6 } }
"""
APART = (
    "Every part was timed by itself, waited for, as a program with nothing else in it. Parts measured apart need not "
    "add up to the whole; what they leave over, or exceed it by, is the remainder. Dispatch is what the parts take "
    "with next to nothing to compute, and is taken off them."
)


def write(found: dict[str, Any], out: Path) -> dict[str, Path]:
    """summary.html and profile.json in the folder `out`."""
    files = {"page": out / "summary.html", "json": out / "profile.json"}
    write_atomically(files["page"], page(found))
    write_atomically(files["json"], json.dumps(found, indent=1))
    return files


def page(found: dict[str, Any]) -> str:
    """The whole page; it loads nothing."""
    run = found["run"]
    title = f"{run['algorithm']} {run['backend']}/{run['mode']}/{run['unit']} on {run['env']}"
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>Medians of {found['iterations']} steady iterations after {found['warmup']} to warm up.</p>",
        "<h2>Where an iteration's time goes</h2>",
        _parts(found["parts"]),
        f'<p class="note">{APART}</p>',
        _phases(found["whole"]),
        _updates(found["updates"]) if "updates" in found else "",
        "<h2>Python functions with the most time of their own</h2>",
        '<p class="note">By cProfile, which slows Python down; per call of the program. All of it: '
        "<code>snakeviz profile.pstats</code>. The framework's own trace, trace.json.gz, opens in ui.perfetto.dev.</p>",
        _functions(found["functions"]),
        "<h2>The run</h2>",
        _table(("field", "value"), [(f"<code>{name}</code>", html.escape(str(x))) for name, x in run.items()]),
    ]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    head += f"<style>{STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(sections)}</body></html>\n'


def _parts(rows: Sequence[dict[str, Any]]) -> str:
    cells = [
        (row["part"], milliseconds(row["seconds"]), share(row["share"]), _bar(row["share"]), html.escape(row["how"]))
        for row in rows
    ]
    return _table(("part", "ms", "share", "", "what was timed"), cells)


def _phases(times: dict[str, float]) -> str:
    words = {
        "rollout_s": "a rollout, waited for",
        "update_s": "an update, waited for",
        "returned_s": "until the calls of an iteration have returned, the device done or not",
    }
    return _table(("phase", "ms"), [(what, milliseconds(times[name])) for name, what in words.items()])


def _updates(found: dict[str, Any]) -> str:
    first, second = found["between"]
    cells = [
        (row["what"], *(milliseconds(x) for x in row["seconds"]), html.escape(ratio_cell(row))) for row in found["rows"]
    ]
    heading = f"<h2>Updates alone: {html.escape(first)} and {html.escape(second)}</h2>"
    return heading + _table(("the clock runs", f"{first} ms", f"{second} ms", "ratio"), cells)


def _functions(rows: Sequence[dict[str, Any]]) -> str:
    cells = [
        (
            f"<code>{html.escape(x['function'])}</code>",
            f"{x['calls']:,.1f}",
            *map(milliseconds, (x["own_s"], x["total_s"])),
        )
        for x in rows
    ]
    return _table(("function", "calls", "own ms", "ms with callees"), cells)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML; numbers are aligned to the right."""
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    if text.startswith("<div"):
        return f'<td class="bar">{text}</td>'
    number = text.strip("-%., ").replace(",", "").replace(".", "").replace(" ", "").isdigit()
    return f'<td class="number">{text}</td>' if number else f"<td>{text}</td>"


def _bar(part: float | None) -> str:
    return f'<div style="width:{100 * min(1.0, max(0.0, part or 0.0)):.1f}%"></div>'


def milliseconds(seconds: float | None) -> str:
    """`12.34`, or a dash where there is nothing."""
    return "-" if seconds is None else f"{seconds * 1e3:,.3f}"


def share(part: float | None) -> str:
    """`41.2 %`, or a dash where there is nothing."""
    return "-" if part is None else f"{part:.1%}".replace("%", " %")


def ratio_cell(row: dict[str, Any]) -> str:
    """The ratio of a row with its interval."""
    return ratio_text(row["ratio"], row["low"], row["high"])
