"""The report as one HTML file: text, data once, charts that refer to it, and nothing that comes from elsewhere."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from benchback.analysis.source import Source
from benchback.analysis.table import keys
from benchback.measure import study as studies
from benchback.measure.machine import cache_folder, keep
from benchback.report.chart import FILTERS, Figure, config
from benchback.report.prose import Verdict

ASSETS = Path(__file__).parent / "assets"
SECTIONS = {
    1: "The verdict",
    2: "Speed-ups",
    3: "Durations, overheads, phases and modes",
    4: "Iterations over time and break-even",
    5: "Learning",
    6: "Memory",
    7: "Parity and fairness",
    8: "Noise, canary and A/A",
    9: "Failures",
    10: "Ease of use",
    11: "Provenance",
}
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""The browser itself refuses every request; vega compiles its expressions, hence the eval."""
DIGITS = 6


Specifications = Mapping[str, Mapping[str, Any]]
"""Charts as Vega-Lite, by the id of their figure."""


def page(
    source: Source,
    tables: Mapping[str, pl.DataFrame],
    figures: Sequence[Figure],
    specifications: Specifications,
    verdict: Verdict,
) -> str:
    """The whole file."""
    name = str(source.campaign.get("study", {}).get("name", "campaign"))
    sections = "".join(_section(number, figures, source, verdict) for number in SECTIONS)
    links = "".join(f'<li><a href="#s{n}">{n}. {escape(title)}</a></li>' for n, title in SECTIONS.items())
    parts = {
        "policy": POLICY,
        "title": escape(f"benchback: {name}"),
        "style": (ASSETS / "page.css").read_text(),
        "heading": escape(name),
        "summary": escape(_summary(source)),
        "links": links,
        "filters": _filters(source),
        "sections": sections,
        "data": _embedded(_payload(source, tables, figures, specifications)),
        "vega": _vega(),
        "script": (ASSETS / "page.js").read_text(),
    }
    made = (ASSETS / "page.html").read_text()
    for key in parts:
        before, mark, after = made.partition(f"<!--{key}-->")
        if not mark:
            raise ValueError(f"page.html has no place for {key}")
        parts[key] = before + parts[key]
        made = after
    return "".join(parts.values()) + made


def _summary(source: Source) -> str:
    done = sum(run.sampled is not None for run in source.runs)
    note = "" if source.campaign.get("comparable", True) else " Scaled down: not comparable with the full study."
    groups = f"{len(source.groups)} group{'s' if len(source.groups) != 1 else ''} of cells"
    return f"{done} of {len(source.runs)} runs have a result, in {groups}.{note}"


def _filters(source: Source) -> str:
    """A list of boxes for every axis with more than one value; the others are said."""
    made = []
    for name, values in choices(source).items():
        if len(values) < 2:
            made.append(f'<p class="single">{name}: {escape(values[0]) if values else "none"}</p>')
            continue
        boxes = "".join(
            f'<label><input type="checkbox" name="{name}" value="{escape(value)}" checked> {escape(value)}</label>'
            for value in values
        )
        made.append(
            f'<details class="filter" data-filter="{name}"><summary>{name}: <span>all</span></summary>'
            f"<fieldset><legend>{name}</legend>{boxes}</fieldset></details>"
        )
    return "".join(made)


def choices(source: Source) -> dict[str, list[str]]:
    """What can be chosen on each axis, in order of mention."""
    rows = [keys(cell) for cell in source.cells.values()]
    return {name: list(dict.fromkeys(str(row[name]) for row in rows)) for name in FILTERS}


def _section(number: int, figures: Sequence[Figure], source: Source, verdict: Verdict) -> str:
    inside = {1: lambda: _verdict(verdict), 11: lambda: _again(source)}.get(number, str)()
    made = "".join(_figure(figure) for figure in figures if figure.section == number)
    return (
        f'<section id="s{number}" aria-labelledby="h{number}"><h2 id="h{number}" tabindex="-1">{number}. '
        f"{escape(SECTIONS[number])}</h2>{inside}{made}</section>"
    )


def _verdict(verdict: Verdict) -> str:
    made = f'<p class="recommendation">{escape(verdict.recommendation)}</p>'
    for said in verdict.settings:
        claims = "".join(f"<li>{escape(text)}</li>" for text in said.comparisons)
        depends = "".join(f"<li>{escape(text)}</li>" for text in said.depends)
        made += f"<h3>{escape(said.setting)}</h3><ul>{claims}</ul>"
        made += f"<p>What it depends on:</p><ul>{depends}</ul>" if depends else ""
    return made


def _figure(figure: Figure) -> str:
    box = f'<div class="chart" id="chart-{figure.id}" role="img" aria-label="{escape(figure.title)}"></div>'
    open_ = "" if figure.chart is not None else " open"
    return (
        f'<figure id="{figure.id}" data-figure="{figure.id}"><h3>{escape(figure.title)}</h3>'
        f"{box if figure.chart is not None else ''}"
        f'<p class="missing" hidden>{escape(figure.missing)}</p><figcaption>{escape(figure.caption)}</figcaption>'
        f'<details class="twin"{open_}><summary>Table: {escape(figure.title)}</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {escape(figure.title)}"></div>'
        "</details></figure>"
    )


def _again(source: Source) -> str:
    """How to run it again, and how to get at the data."""
    campaign = source.campaign
    name, given = str(campaign.get("study", {}).get("name", "")), campaign.get("study", {})
    shipped = name in studies.names() and studies.load(name).to_dict() == given
    seed = campaign.get("seed", 0)
    command = f"benchback run {name if shipped else 'study.yaml'} --seed {seed}\nbenchback report runs/{name}.sqlite"
    study = (
        ""
        if shipped
        else (
            "<p>with this as study.yaml:</p><pre tabindex='0' aria-label='study.yaml'>"
            f"{escape(json.dumps(given, indent=1, sort_keys=True))}</pre>"
        )
    )
    return (
        f"<p>To run it again:</p><pre tabindex='0' aria-label='command'>{escape(command)}</pre>{study}"
        "<p>Every sample of every run: <code>benchback export STORE</code>. The tables of this page:</p>"
        '<p><button type="button" id="download">Download the tables (JSON)</button></p>'
    )


def _payload(
    source: Source,
    tables: Mapping[str, pl.DataFrame],
    figures: Sequence[Figure],
    specifications: Specifications,
) -> dict[str, Any]:
    return {
        "tables": {name: columnar(table) for name, table in tables.items()},
        "figures": [_described(figure, specifications) for figure in figures],
        "config": {"light": config(dark=False), "dark": config(dark=True)},
        "filters": choices(source),
    }


def _described(figure: Figure, specifications: Specifications) -> dict[str, Any]:
    found: dict[str, Any] = {"id": figure.id, "data": figure.data, "where": dict(figure.where)}
    found["one"] = [name for name in figure.one if name in FILTERS]
    found["columns"] = list(figure.columns.items())
    if figure.id in specifications:
        found["spec"] = specifications[figure.id]
    return found


def columnar(table: pl.DataFrame) -> dict[str, Any]:
    """Column by column; texts that repeat are numbered."""
    found: dict[str, Any] = {}
    for name in table.columns:
        values = table[name].to_list()
        if table[name].dtype == pl.String:
            levels = list(dict.fromkeys(values))
            place = {text: at for at, text in enumerate(levels)}
            found[name] = {"levels": levels, "at": [place[text] for text in values]}
        else:
            found[name] = values
    return found


def rounded_table(table: pl.DataFrame) -> pl.DataFrame:
    """Numbers with six significant digits; null for what is none."""
    numbers = [name for name, kind in table.schema.items() if kind == pl.Float64]
    return table.with_columns(pl.Series(name, [rounded(x) for x in table[name]], pl.Float64) for name in numbers)


def rounded(value: float | None) -> float | None:
    """Six significant digits; None for what is no number."""
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else None


def _embedded(value: Any) -> str:
    """JSON that no text in it can break out of."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _vega() -> str:
    """Vega, Vega-Lite and vega-embed, for a script element; bundled once per version, which takes seconds."""
    import vl_convert

    kept = cache_folder("report") / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        text, _, digest = kept.read_text().rpartition("\n")
        if digest == sha256(text.encode()).hexdigest():
            return text
    text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    keep(kept, f"{text}\n{sha256(text.encode()).hexdigest()}")
    return text
