"""Writes a report to a folder: the page, every chart as PNG and SVG, every table as Markdown, CSV and JSON.

The same store and seed give the same bytes: nothing of the time, the place or the order of use enters.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from altair.utils.schemapi import debug_mode

from benchback.analysis import claim_tables, diagnostics, many, overheads, progress
from benchback.analysis.claims import Claim, all_claims
from benchback.analysis.export import harmless
from benchback.analysis.machines import Fleet, fleet_claims, fleet_of, fleet_table
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.table import runs_table
from benchback.errors import InputError
from benchback.measure.machine import allowed_processors
from benchback.measure.store import Store
from benchback.report import charts_diagnostics, charts_machines, charts_many, charts_speed, charts_training
from benchback.report.answers import answers
from benchback.report.chart import Figure, has_value, rows_of, specification, unfiltered, with_data
from benchback.report.drawing import Drawing, draw, drawings
from benchback.report.naming import plain_names
from benchback.report.page import Content, page, rounded_table
from benchback.report.prose_machines import paragraphs
from benchback.report.rows import spread_chart
from benchback.report.work import work_text
from benchback.training.outputs import check_replaceable, replacing_folder

MAKER = "benchback report"
"""Who made a folder of charts and tables, as its list of files says."""
Table = Callable[[Source], pl.DataFrame]
TABLES: dict[str, Table] = {
    "pairs": claim_tables.pairs_table,
    "published": claim_tables.published_table,
    "overheads": overheads.overheads_table,
    "phases": overheads.phases_table,
    "modes": overheads.modes_table,
    "timeline": progress.timeline_table,
    "breakeven": progress.breakeven_table,
    "curves": progress.curves_table,
    "thresholds": progress.thresholds_table,
    "profiles": progress.profiles_table,
    "memory": overheads.memory_table,
    "parity": diagnostics.parity_table,
    "ledger": diagnostics.ledger_table,
    "noise": diagnostics.noise_table,
    "canary": diagnostics.canary_table,
    "failures": diagnostics.failures_table,
    "code_size": diagnostics.code_size_table,
    "provenance": diagnostics.provenance_table,
    "many": many.many_table,
    "agents": many.agents_table,
    "even": many.even_table,
}
BY_VARIANT = ("runs", "claims", "pairs", "published", "overheads", "phases", "timeline", "breakeven", "curves")
BY_VARIANT += ("thresholds", "profiles", "memory", "device_memory")
"""Tables in which variants of few cells would crowd out the others."""


def tables_of(source: Source, claims: Sequence[Claim]) -> dict[str, pl.DataFrame]:
    """Every table of the report by name; empty where nothing of the kind was measured."""
    found = {"runs": runs_table(source), "claims": claim_tables.claims_table(claims)}
    found |= {name: make(source) for name, make in TABLES.items()}
    # Curves are shown for every environment, not for examples of groups.
    found["curves"] = found["curves"].drop("example", strict=False)
    runs = found["runs"]
    found["device_memory"] = runs.filter(pl.col("device_mb").is_not_null() & ~pl.col("twin"))
    found = {name: with_main(source, table) if name in BY_VARIANT else table for name, table in found.items()}
    return found | {"machines": pl.DataFrame(), "fleet": pl.DataFrame()}


def with_main(source: Source, table: pl.DataFrame) -> pl.DataFrame:
    """A column that says whether the variant is one of many cells, or else is shown when asked for only."""
    if table.is_empty():
        return table
    main = pl.col("variant").is_in(sorted(source.main))
    if "other" in table.columns:
        main &= pl.col("other").is_in(sorted(source.main))
    return table.with_columns(main=main)


def charts_of(source: Source) -> list[Figure]:
    """Every chart, and every table without one, in the order of the page."""
    # Checking every channel against the schema takes seconds; the tests check whole charts.
    with debug_mode(False):
        parts = (charts_speed, charts_machines, charts_many, charts_training, charts_diagnostics)
        return [figure for part in parts for figure in part.section(source)]


def render(
    store: Store,
    out: Path,
    *,
    seed: int = 0,
    against: Store | None = None,
    images: bool = True,
    env_times: Mapping[str, float] | None = None,
    fleet: Fleet | None = None,
) -> list[Path]:
    """Write the report of a store below the folder `out`; returns what was written, the page first.

    `fleet` has the strata of the store if they have been read already.
    """
    check_replaceable(out, MAKER)
    source = read(store, seed, env_times=env_times)
    if not any(run.sampled for run in source.runs):
        raise InputError(f"{store.path} has no result yet; run the campaign first, see benchback status {store.path}")
    claims = all_claims(source)
    tables = tables_of(source, claims)
    if against is not None:
        tables["machines"] = _beside(source, read(against, seed))
    tables["fleet"], said = _over_machines(source, fleet)
    figures = charts_of(source)
    names = plain_names(source)
    specifications = {x.id: specification(x, source.orders, names) for x in figures if x.chart is not None}
    tables = {name: rounded_table(table) for name, table in tables.items()}
    content = Content(
        source,
        tables,
        figures,
        specifications,
        answers(source, claims),
        names,
        tuple(filter(None, [work_text(source, names)])),
        said,
    )
    shown = {figure.id: unfiltered(figure, rows_of(figure, tables[figure.data])) for figure in figures}
    pictured = [x for x in figures if images and x.chart is not None and has_value(x, shown[x.id])]
    jobs = [with_data(specifications[x.id], x.data, shown[x.id]) for x in pictured]
    with replacing_folder(out, MAKER) as draft, drawings(jobs, len(allowed_processors())) as drawn:
        files = [_write(draft / "index.html", page(content).encode())]
        files += [x for name, table in tables.items() if not table.is_empty() for x in _data_files(draft, name, table)]
        for figure in figures:
            files.append(_write(draft / "tables" / f"{figure.id}.md", markdown(figure, shown[figure.id]).encode()))
        for figure, drawing in zip(pictured, drawn, strict=True):
            files += _images(draft, figure.id, drawing)
    return [out / path.relative_to(draft) for path in files]


def _over_machines(source: Source, fleet: Fleet | None) -> tuple[pl.DataFrame, list[str]]:
    """The claims of every machine and over machines as a table and in words; nothing of one machine."""
    if len(source.strata) < 2:
        return pl.DataFrame(), []
    fleet = fleet or fleet_of(source.store, source.seed)
    claims = fleet_claims(fleet)
    return with_main(source, fleet_table(claims)), paragraphs(fleet, claims)


def _beside(source: Source, other: Source) -> pl.DataFrame:
    from benchback.analysis.compare import side_by_side

    found = side_by_side(source, other)
    if found.is_empty():
        raise InputError(
            f"{source.store.path} and {other.store.path} have no cell in common; compare stores of the same study"
        )
    return with_main(source, found)


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def _data_files(out: Path, name: str, table: pl.DataFrame) -> list[Path]:
    rows = table.to_dicts()
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: harmless(x) if isinstance(x, str) else x for key, x in row.items()} for row in rows)
    # A row per line; with an indent json falls back to its encoder in Python, ten times as slow.
    listed = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    made = [(f"{name}.csv", text.getvalue()), (f"{name}.json", f"[\n{listed}\n]\n")]
    return [_write(out / "tables" / file, content.encode()) for file, content in made]


def markdown(figure: Figure, table: pl.DataFrame) -> str:
    """The table beside a chart, as it is before anything is chosen."""
    head = f"# {figure.title}\n\n{figure.caption}\n\n"
    if table.is_empty():
        return f"{head}{figure.missing}\n"
    columns = {name: words for name, words in figure.columns.items() if name in table.columns}
    lines = [f"| {' | '.join(columns.values())} |", f"|{'---|' * len(columns)}"]
    for row in table.select(list(columns)).iter_rows():
        lines.append(f"| {' | '.join(map(_cell, row))} |")
    return head + "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    """One cell of a Markdown table: nothing in it ends the cell, or is taken for markup."""
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = re.sub(r"([\\`*_{}\[\]<>|#!$])", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;")


def _images(out: Path, name: str, drawing: Drawing) -> list[Path]:
    svg, png = drawing
    return [_write(out / "figures" / f"{name}.svg", svg), _write(out / "figures" / f"{name}.png", png)]


def render_imported(runs: pl.DataFrame, out: Path) -> list[Path]:
    """Tables and charts of results of benchback-rl, drawn like ours."""
    from benchback.analysis import imported

    check_replaceable(out, MAKER)
    tables = {
        "imported_runs": imported.charts_data(runs),
        "imported_speedups": pl.DataFrame(imported.speedups(runs)),
        "imported_machines": pl.DataFrame(imported.machines(runs)),
        "imported_modes": pl.DataFrame(imported.modes(runs)),
    }
    tables = {name: rounded_table(table) for name, table in tables.items()}
    drawn = tables["imported_runs"]
    variants = drawn["variant"].unique(maintain_order=True).to_list()
    models = drawn["model"].unique(maintain_order=True).to_list()
    timed = drawn.filter(pl.col("timing") == "async")
    with replacing_folder(out, MAKER) as draft:
        files = [x for name, table in tables.items() if not table.is_empty() for x in _data_files(draft, name, table)]
        for value, title in (("total_s", "total"), ("steady_s", "steady iteration")):
            chart = spread_chart("imported_runs", value, f"seconds, {title}", models)
            figure = Figure(f"imported_{value}", 3, title, "", "imported_runs", {}, chart)
            whole = specification(figure, {"variant": variants}, {})
            files += _images(draft, figure.id, draw(with_data(whole, figure.data, timed)))
    return [out / path.relative_to(draft) for path in files]
