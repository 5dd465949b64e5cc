"""The outcome of a campaign: medians of every variant, claims against the reference, and what to use.

Tables fit 80 columns. Ratios say how many times as long, here as everywhere.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchback.analysis.choices import Summary, summaries
from benchback.analysis.claims import ALL, Claim, claims_of
from benchback.analysis.evidence import evidence_of
from benchback.analysis.groups import Group, comparable
from benchback.analysis.proofs import parity_verdict
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.summary import variant_rows
from benchback.analysis.wording import (
    comparison_record,
    evidence_text,
    range_record,
    ratio_text,
    setting_text,
    times_text,
    variant_name,
    verdict_text,
)
from benchback.measure.store import Store
from benchback.report import prose, prose_many

METRICS_SHOWN = ("steady", "cold_start", "total")
MOST_MISSING = 6
"""Most missing cells that are named one by one."""
WIDTH = 80


def print_outcome(store: Store, as_json: bool) -> int:
    """Print the verdict table of a campaign; returns how many slots have no result."""
    source = read(store)
    counts = store.progress(len(source.strata) - 1)
    whole = [summary for summary in summaries(source) if summary.env == summary.model == ALL]
    parts = [(setting_text(setting), part, shown_claims(source, part)) for setting, part in comparable(source.groups)]
    if as_json:
        listed = {
            metric: [claim_record(claim) for _, _, found in parts for claim in found[metric]]
            for metric in METRICS_SHOWN
        }
        summary = {"event": "outcome", "store": str(store.path), "slots": asdict(counts), "claims": listed}
        summary |= {"summaries": [summary_record(x) for x in whole], "evidence": asdict(evidence_of(source.groups))}
        summary |= {"agents": prose_many.paragraphs(source)}
        print(json.dumps(summary | {"rows": [row for group in source.groups for row in variant_rows(group)]}))
        return counts.failed
    for group in source.groups:
        print_group(group, source.parity)
    for setting, _, found in parts:
        print_claims(setting if len(parts) > 1 else "", found)
    if counts.failed:
        print(f"{counts.failed} runs have no result: benchback list-runs {store.path}")
    for summary in whole:
        print_summary(summary, evidence_text(evidence_of(source.settings[summary.setting])), len(whole) > 1)
    for text in prose_many.paragraphs(source):
        Console(width=WIDTH, highlight=False).print(Text(text))
    print(f"results in {store.path}")
    return counts.failed


def shown_claims(source: Source, groups: Sequence[Group]) -> dict[str, list[Claim]]:
    """Claims for each metric of a campaign's table."""
    return {metric: claims_of(source.parity, groups, metric) for metric in METRICS_SHOWN}


def claim_record(claim: Claim) -> dict[str, Any]:
    """A claim as a JSON object."""
    about = {"setting": setting_text(claim.setting), "variant": claim.variant, "reference": claim.reference}
    about |= {"verdict": claim.verdict, "along": range_record(claim.along), "few": claim.few}
    cells = [comparison_record(row) for row in claim.cells]
    return about | {"overall": comparison_record(claim.overall), "cells": cells}


def summary_record(summary: Summary) -> dict[str, Any]:
    """What to use, as a JSON object."""
    choice = summary.choice
    return {
        "setting": setting_text(summary.setting),
        "best": [cell.variant for cell in choice.best] if choice else [],
        "at_most": choice.at_most if choice else None,
        "cells": list(summary.cells),
        "missing": list(prose.missing(summary)),
        "recommendation": prose.recommendation(summary),
    }


def print_claims(setting: str, found: Mapping[str, Sequence[Claim]]) -> None:
    """Print every variant against the reference."""
    reference = next((claim.rival for claim in found["steady"] if not claim.subject.twin), None)
    if reference is None:
        return
    made = narrow_table("", "an iteration", "", "start", "whole run")
    for steady, cold, total in zip(*found.values(), strict=True):
        verdict = (steady.verdict or "depends") if steady.along else verdict_text(steady.overall) or "no verdict"
        made.add_row(variant_name(steady.subject), *map(Text, (times(steady), verdict, brief(cold), brief(total))))
    where = f"{setting}: times" if setting else "Times"
    print_table(f"{where} as long as {variant_name(reference)}, with 95 % interval", made)


def print_summary(summary: Summary, evidence: str, several: bool) -> None:
    """Print what is not in the averages, whether the runs computed the same, and what to use."""
    console = Console(width=WIDTH, highlight=False)
    lines = prose.missing(summary)
    left = len(lines) - MOST_MISSING
    more = [f"{left} more are left out; --json names all."] if left > 0 else []
    texts = [*lines[:MOST_MISSING], *more, f"{evidence}.", prose.recommendation(summary)]
    where = f"{setting_text(summary.setting)}: " if several else ""
    for text in (*texts[:-1], f"{where}{texts[-1]}"):
        console.print(Text(text))


def print_group(group: Group, parity: Mapping[str, str]) -> None:
    """Print the medians of every variant of a group."""
    rows = variant_rows(group)
    returns = any(row["episode_return"] is not None for row in rows)
    made = narrow_table("", "env steps/s", "compile s", "start s", *(["return"] * returns), "blocks", "parity")
    for cell, row in zip(group.cells, rows, strict=True):
        made.add_row(
            variant_name(cell),
            number(row["steps_per_s"], ",.0f"),
            number(row["compile_s"], ".1f"),
            number(row["cold_start_s"], ".1f"),
            *([number(row["episode_return"], ".1f")] * returns),
            str(row["blocks"]),
            Text(parity_verdict(cell, parity)),
        )
    print_table(group.title, made)


def print_table(title: str, made: Table) -> None:
    """Print a table below its title."""
    console = Console(width=WIDTH, highlight=False)
    console.print(Text(f"\n{title}"))
    console.print(made)


def narrow_table(*columns: str) -> Table:
    """A plain table of 80 columns; names wrap between words, numbers do not."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for place, column in enumerate(columns):
        last = column == "parity"
        made.add_column(column, no_wrap=not (place == 0 or last), justify="left" if place < 1 or last else "right")
    return made


def times(claim: Claim) -> str:
    """`1.02x [1.01, 1.03]`, `1.30x to 8.50x`, or a dash where there is no ratio."""
    if claim.along is not None:
        return " to ".join(times_text(point.comparison) for point in (claim.along.lowest, claim.along.highest))
    row = claim.overall
    return "-" if row.ratio is None else ratio_text(row.ratio, row.low, row.high)


def brief(claim: Claim) -> str:
    """`1.02x ±2%`, `1.02x once` of one block, `1.30-8.50x`, or a dash where there is no ratio."""
    if claim.along is not None:
        ends = claim.along.lowest.comparison.ratio or 0.0, claim.along.highest.comparison.ratio or 0.0
        return f"{ends[0]:.2f}-{ends[1]:.2f}x"
    row = claim.overall
    if row.ratio is None:
        return "-"
    return f"{row.ratio:.2f}x " + ("once" if row.half_width is None else f"±{math.ceil(100 * row.half_width)}%")


def number(value: float | None, format: str) -> str:
    """The value, or a dash where there is none."""
    return "-" if value is None else f"{value:{format}}"
