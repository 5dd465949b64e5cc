"""The outcome of a campaign: medians of every variant, and claims against the reference."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from benchback.analysis.claims import Claim, claims_of
from benchback.analysis.groups import Group, comparable, reference_variant
from benchback.analysis.proofs import parity_verdict
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.summary import variant_rows
from benchback.analysis.wording import comparison_record, ratio_text, reason_text, setting_text
from benchback.cli.tables import table
from benchback.measure.store import Store
from benchback.stats import Comparison

METRICS_SHOWN = ("steady", "cold_start", "total")


def print_outcome(store: Store, as_json: bool) -> int:
    """Print the verdict table of a campaign; returns how many slots have no result."""
    source = read(store)
    counts = store.progress(len(source.strata) - 1)
    parts = [(setting_text(setting), part, shown_claims(source, part)) for setting, part in comparable(source.groups)]
    if as_json:
        listed = {
            metric: [claim_record(claim) for _, _, found in parts for claim in found[metric]]
            for metric in METRICS_SHOWN
        }
        summary = {"event": "outcome", "store": str(store.path), "slots": asdict(counts), "claims": listed}
        print(json.dumps(summary | {"rows": [row for group in source.groups for row in variant_rows(group)]}))
        return counts.failed
    for group in source.groups:
        print_group(group, source.parity)
    for setting, part, found in parts:
        print_claims(setting if len(parts) > 1 else "", reference_variant(part), found)
    if counts.failed:
        print(f"{counts.failed} runs have no result: benchback list-runs {store.path}")
    print(f"results in {store.path}")
    return counts.failed


def shown_claims(source: Source, groups: Sequence[Group]) -> dict[str, list[Claim]]:
    """Claims for each metric of a campaign's table."""
    return {metric: claims_of(source.parity, groups, metric) for metric in METRICS_SHOWN}


def claim_record(claim: Claim) -> dict[str, Any]:
    """A claim as a JSON object."""
    about = {"setting": setting_text(claim.setting), "variant": claim.variant, "reference": claim.reference}
    cells = [comparison_record(row) for row in claim.cells]
    return about | {"overall": comparison_record(claim.overall), "cells": cells}


def print_claims(setting: str, reference: str, found: Mapping[str, Sequence[Claim]]) -> None:
    """Print every variant against the reference, with the reason where there is no verdict."""
    columns = (f"against {reference}", "steady", "verdict", "cold start", "total", "cells", "blocks", "MDE")
    rows = [
        (
            steady.variant,
            ratio_cell(steady.overall),
            steady.verdict or "none",
            ratio_cell(cold.overall),
            ratio_cell(total.overall),
            str(steady.overall.cells),
            str(steady.overall.n),
            "" if steady.overall.mde is None else f"{steady.overall.mde:.1%}",
        )
        for steady, cold, total in zip(*found.values(), strict=True)
    ]
    if rows:
        title = f"{setting}: times as long" if setting else "times as long"
        Console().print(table(f"{title}, with 95 % interval; ' is the A/A copy", columns, rows))
    for reason, names in unknown(found["steady"]).items():
        print(f"no verdict on {', '.join(names)}: {reason}")


def unknown(rows: Sequence[Claim]) -> dict[str, list[str]]:
    """Reason why there is no verdict -> the variants without one."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict is None:
            found.setdefault(reason_text(row.overall), []).append(row.variant)
    return found


def print_group(group: Group, parity: Mapping[str, str]) -> None:
    """Print the medians of every variant of a group."""
    rows = [
        (
            row["variant"],
            number(row["steps_per_s"], ",.0f"),
            number(row["compile_s"], ".1f"),
            number(row["cold_start_s"], ".1f"),
            number(row["episode_return"], ".1f"),
            str(row["blocks"]),
            parity_verdict(cell, parity),
        )
        for cell, row in zip(group.cells, variant_rows(group), strict=True)
    ]
    columns = ("variant", "env steps/s", "compile s", "cold start s", "return", "blocks", "parity")
    Console().print(table(group.title, columns, rows))


def number(value: float | None, format: str) -> str:
    """The value, or a dash where there is none."""
    return "-" if value is None else f"{value:{format}}"


def ratio_cell(row: Comparison) -> str:
    """The ratio with its interval, or a dash where there is none."""
    return "-" if row.ratio is None else ratio_text(row.ratio, row.low, row.high)
