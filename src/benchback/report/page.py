"""The report as one HTML file: text, data once, charts that refer to it, and nothing that comes from elsewhere."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from benchback.analysis.source import Source
from benchback.analysis.table import keys
from benchback.analysis.wording import machine_name
from benchback.measure import study as studies
from benchback.measure.caches import cache_folder, keep
from benchback.report import charts_machines, charts_many, prose_many
from benchback.report.answers import Answer, families
from benchback.report.chart import APART, FILTERS, Figure, config, has_something

ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    short: str
    """Its name in the navigation."""
    gist: str = ""
    """What is inside, in a line."""


SECTIONS = {
    1: Section("The verdict", "Verdict"),
    2: Section("Speed", "Speed", "every variant against the reference, and every pair of variants"),
    13: Section("Machines", "Machines", "ratios on every machine, and over machines"),
    12: Section("Many agents", "Agents", "N agents in one program, one after another and side by side; cost of each"),
    3: Section("Durations, overheads, phases and modes", "Durations", "seconds of runs and of their parts"),
    4: Section("Iterations over time and break-even", "Break-even", "warm-up, and when a slow start has paid"),
    5: Section("Learning", "Learning", "returns by steps and by seconds"),
    6: Section("Memory", "Memory", "peak, and growth"),
    7: Section("Parity and fairness", "Parity", "whether the same was computed, and what each run did"),
    8: Section("Noise, canary and A/A", "Noise", "what the machine did, and the same against itself"),
    9: Section("Failures", "Failures", "attempts that failed or were made again"),
    10: Section("Ease of use", "Ease", "lines of code, and time to the first iteration"),
    11: Section("Provenance", "Provenance", "campaign, machine and versions; how to run it again"),
}
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""The browser itself refuses every request; vega compiles its expressions, hence the eval."""
DIGITS = 6


Specifications = Mapping[str, Mapping[str, Any]]
"""Charts as Vega-Lite, by the id of their figure."""


@dataclass(frozen=True)
class Content:
    """All that a page shows."""

    source: Source
    tables: Mapping[str, pl.DataFrame]
    figures: Sequence[Figure]
    specifications: Specifications
    answers: Sequence[Answer]
    names: Mapping[str, str]
    """Variant -> plain name."""
    notes: Sequence[str] = ()
    """Sentences below the recommendation that no filter changes, e.g. where work differs."""
    machines: Sequence[str] = ()
    """Paragraphs about machines, where there are several."""

    def present(self, number: int) -> list[Figure]:
        """Figures of a section that have something to show."""
        return [x for x in self.figures if x.section == number and has_something(x, self.tables[x.data])]

    @property
    def sections(self) -> list[int]:
        """Sections that have something to show."""
        return [number for number in SECTIONS if number in (1, 11) or self.present(number)]


def page(content: Content) -> str:
    """The whole file."""
    source = content.source
    name = str(source.campaign.get("study", {}).get("name", "campaign"))
    sections = "".join(_section(content, place, number) for place, number in list(enumerate(content.sections, 1))[1:])
    links = "".join(f'<li><a href="#s{n}">{escape(SECTIONS[n].short)}</a></li>' for n in content.sections)
    parts = {
        "policy": POLICY,
        "title": escape(f"benchback: {name}"),
        "style": (ASSETS / "page.css").read_text(),
        "heading": escape(name),
        "links": links,
        "filters": _filters(source),
        "verdict": _verdict(content),
        "sections": sections,
        "absent": _absent(content),
        "data": _embedded(_payload(content)),
        "vega": _vega(),
        "script": "".join((ASSETS / name).read_text() for name in ("matrix.js", "page.js")),
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
    """A list of boxes for every axis with more than one value; the others are said. A button for a family alone."""
    made = []
    for name, values in choices(source).items():
        if name == "agents" and values == ["1"]:
            continue
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
    alone = "".join(
        f'<button type="button" class="alone" data-family="{name}" aria-pressed="false">{name} only</button>'
        for name in families(source)
    )
    return "".join(made) + alone


def choices(source: Source) -> dict[str, list[str]]:
    """What can be chosen on each axis, in order of mention."""
    rows = [keys(cell) for cell in source.cells.values()]
    return {name: list(dict.fromkeys(str(row[name]) for row in rows)) for name in FILTERS}


def _section(content: Content, place: int, number: int) -> str:
    """A section, folded; drawn when it is opened."""
    section = SECTIONS[number]
    inside = _again(content.source) if number == 11 else ""
    if number == charts_many.SECTION:
        inside = _paragraphs(prose_many.paragraphs(content.source))
    if number == charts_machines.SECTION:
        inside = _paragraphs(content.machines)
    return (
        f'<details class="section" id="s{number}"><summary><h2 id="h{number}">{place}. {escape(section.title)}</h2> '
        f'<span class="gist">{escape(section.gist)}</span></summary>'
        f"{inside}{_blocks(content.present(number))}</details>"
    )


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _blocks(figures: Sequence[Figure]) -> str:
    """Figures one after another; those of a family share a place, and tabs choose between them."""
    families: dict[str, list[Figure]] = {}
    for figure in figures:
        families.setdefault(figure.family or figure.id, []).append(figure)
    return "".join(_family(found) if len(found) > 1 else _figure(found[0]) for found in families.values())


def _family(figures: Sequence[Figure]) -> str:
    pressed = {True: "true", False: "false"}
    tabs = "".join(
        f'<button type="button" data-shows="{x.id}" aria-pressed="{pressed[x is figures[0]]}">{escape(x.tab)}</button>'
        for x in figures
    )
    title = escape(figures[0].family)
    inside = "".join(_figure(x, hidden=x is not figures[0]) for x in figures)
    return (
        f'<div class="family"><h3>{title}</h3><div class="tabs" role="group" aria-label="{title}">{tabs}</div>'
        f"{inside}</div>"
    )


def _verdict(content: Content) -> str:
    """One sentence, the machine, what supports them, the heat table, and the sentences behind it."""
    first = content.answers[0] if content.answers else None
    why = first.recommendation if first else "No recommendation: nothing can be compared."
    notes = _paragraphs(content.notes)
    return (
        f'<div id="answer" aria-live="polite"><p class="recommendation">{escape(why)}</p></div>'
        f'<p class="machine">{escape(machine_text(content))} {escape(_summary(content.source))}</p>'
        f'<p id="evidence">{escape(first.said.evidence if first else "")}</p>{notes}'
        "<p>Ratios say how many times as long: above 1 is slower, below 1 is faster, everywhere on this page.</p>"
        f"{_blocks(content.present(1))}"
        '<details class="more"><summary>In sentences, and what it depends on</summary><div id="sentences"></div>'
        "</details>"
    )


def machine_text(content: Content) -> str:
    """`Measured on AMD EPYC, 2 CPUs, 25 GB, Linux 6.18, CPython 3.11.7.`, of what is known, and where others are."""
    strata = content.source.strata
    name = machine_name(strata[-1]) if strata else ""
    others = " Other machines: see Machines." if charts_machines.SECTION in content.sections else ""
    return f"Measured on {name}.{others}" if name else "The machine is not known."


def _absent(content: Content) -> str:
    """What the page would show if it had been measured, each reason once."""
    here = {figure.id for number in SECTIONS for figure in content.present(number)}
    reasons: dict[str, list[str]] = {}
    for figure in content.figures:
        if figure.id not in here:
            reasons.setdefault(figure.missing, []).append(figure.title)
    said = " ".join(f"{escape(', '.join(titles))}: {escape(reason)}" for reason, titles in reasons.items())
    return f"Not on this page: {said}" if said else ""


def _figure(figure: Figure, *, hidden: bool = False) -> str:
    title, drawn = escape(figure.title), figure.chart is not None
    box = f'<div class="chart" id="chart-{figure.id}" role="img" aria-label="{title}"></div>' if drawn else ""
    if figure.matrix is not None:
        box = (
            f'<div class="matrix scroll" id="matrix-{figure.id}" tabindex="0" role="region" aria-label="{title}"></div>'
        )
    open_ = "" if box else " open"
    heading = "" if figure.family else f"<h3>{title}</h3>"
    return (
        f'<figure id="{figure.id}" data-figure="{figure.id}"{" hidden" if hidden else ""}>{heading}{box}'
        f"<figcaption>{escape(figure.caption)}</figcaption>"
        f'<details class="twin"{open_}><summary>Table: {title}</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {title}"></div>'
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


def _payload(content: Content) -> dict[str, Any]:
    figures = [figure for number in SECTIONS for figure in content.present(number)]
    return {
        "tables": {name: columnar(table) for name, table in content.tables.items()},
        "figures": [_described(figure, content.specifications) for figure in figures],
        "config": {"light": config(dark=False), "dark": config(dark=True)},
        "filters": choices(content.source),
        "orders": {"variant": content.source.variants, "model": content.source.models},
        "names": dict(content.names),
        "families": families(content.source),
        "answers": [_answer(answer) for answer in content.answers],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    setting = {name: str(getattr(answer.setting, name)) for name in APART}
    place = {"env": answer.env, "model": answer.model, "backends": list(answer.backends)}
    said = {"title": answer.said.setting, "recommendation": answer.recommendation, "evidence": answer.said.evidence}
    lists = {name: list(getattr(answer.said, name)) for name in ("comparisons", "depends", "missing")}
    return setting | place | said | lists


def _described(figure: Figure, specifications: Specifications) -> dict[str, Any]:
    found: dict[str, Any] = {"id": figure.id, "data": figure.data, "where": dict(figure.where)}
    found["one"] = [name for name in figure.one if name in FILTERS]
    found["columns"] = list(figure.columns.items())
    found |= {"title": figure.title, "section": figure.section, "tab": figure.tab, "value": list(figure.value)}
    if figure.matrix is not None:
        found["matrix"] = figure.matrix.column
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
