"""What came of a report, a comparison, or the results of earlier work."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape

from benchback.analysis.compare import Compared, overall
from benchback.cli.show_tables import jsonable, table

MOST_ROWS = 60


def print_report(files: Sequence[Path], as_json: bool) -> None:
    """Where the files are."""
    if as_json:
        print(json.dumps({"files": [str(path) for path in files]}))
        return
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{files[0]} and {len(files) - 1} more files, {size:.1f} MB")


def print_comparison(found: Compared, before: str, after: str, as_json: bool) -> None:
    """Regressions first; then what of the machines differs."""
    rows = found.rows.to_dicts()
    if as_json:
        summary = {"before": before, "after": after, "regressions": found.regressions, "unmatched": found.unmatched}
        summary |= {"changed": found.changed, "rows": [jsonable(row) for row in rows], "overall": overall(found.rows)}
        print(json.dumps(summary, indent=2))
        return
    columns = ("variant", "env", "model", "timing", "figure", "before s", "after s", "after / before")
    lines = [_comparison_line(row) for row in rows[:MOST_ROWS]]
    Console().print(table("times as long as before, regressions first", columns, lines))
    if len(rows) > MOST_ROWS:
        print(f"{len(rows) - MOST_ROWS} more rows; --json prints all")
    for row in overall(found.rows):
        print(f"{row['backend']} {row['figure']}: {row['ratio']:.3f}x (geometric mean of {row['cells']} cells)")
    for name, (old, new) in found.changed.items():
        print(f"{name}: {old} -> {new}")
    if found.unmatched:
        print(f"{found.unmatched} cells are in one of the two only")
    print(f"{found.regressions} regressions of {len(rows)} comparisons")


def _comparison_line(row: Mapping[str, Any]) -> tuple[str, ...]:
    text = escape(row["text"] or row["reason"])
    seconds = ("-" if row[name] is None else f"{row[name]:.4g}" for name in ("before_s", "after_s"))
    words = (row["variant"], row["env"], row["model"], row["timing"], row["figure"])
    return (*map(escape, words), *seconds, f"[red]{text}[/red]" if row["regression"] else text)


def print_imported(
    runs: pl.DataFrame,
    speedups: Sequence[Mapping[str, Any]],
    machines: Sequence[Mapping[str, Any]],
    modes: Sequence[Mapping[str, Any]],
    as_json: bool,
) -> None:
    """The tables of earlier work by its formulas."""
    if as_json:
        found = {"runs": len(runs), "label": "as published (all pairs)", "speedups": list(speedups)}
        print(json.dumps(found | {"machines": list(machines), "modes": list(modes)}, indent=2, default=str))
        return
    print(f"{len(runs)} runs; speed-ups as published: over all pairs of runs, without an interval")
    models = list(dict.fromkeys(str(row["model"]) for row in speedups))
    columns = ("machine", "timing", "figure", "from → to", *models)
    Console().print(
        table("speed-up by model: geometric mean / median (pairs)", columns, _speedup_lines(speedups, models))
    )
    for title, rows in (("machines", machines), ("compile modes, sync", modes)):
        if rows:
            lines = [tuple(_shown(x) for x in row.values()) for row in rows]
            Console().print(table(title, tuple(rows[0]), lines))


def _speedup_lines(speedups: Sequence[Mapping[str, Any]], models: Sequence[str]) -> list[tuple[str, ...]]:
    """A line for every machine, timing, figure and pair, with a column for each model, as published."""
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in speedups:
        place = tuple(escape(str(row[name])) for name in ("machine", "timing", "figure", "pair"))
        text = f"{row['geometric_mean']:.3f} / {row['median']:.3f} ({row['pairs']})"
        lines.setdefault(place, {})[str(row["model"])] = text
    return [(*place, *(found.get(model, "-") for model in models)) for place, found in lines.items()]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))
