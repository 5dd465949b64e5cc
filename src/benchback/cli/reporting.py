"""Verbs about results: `report`, `compare`, and `import` for those of earlier work."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape

from benchback.analysis.wording import NO_VERDICT
from benchback.cli.arguments import asks_for_help, check_seed, parse, parse_named
from benchback.cli.help import example
from benchback.cli.tables import jsonable, table
from benchback.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from benchback.analysis.compare import Compared
    from benchback.analysis.machines import Fleet

MOST_ROWS = 60
"""Most rows of a comparison that are printed."""


@dataclass(frozen=True)
class ReportFlags:
    """Write the report of a store: one offline HTML page, charts as PNG and SVG, tables as Markdown, CSV and JSON.

    Of a store of `benchback peers` or `scale` a page is written and its tables are printed; of one of `micro` these.
    """

    out: Path | None = None
    """Folder to write to; by default STORE-report beside the store."""
    against: Path | None = None
    """Another store of the same study, e.g. of another machine, to put beside it."""
    env_times: Path | None = None
    """What `benchback envs time --json` printed: charts order environments by it, not by what the store knows."""
    seed: int = 0
    """Seed of the bootstrap intervals."""
    images: bool = True
    """Write the charts as files, too."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class CompareFlags:
    """Compare two stores (STORE), strata (STORE.sqlite@1) or variants (STORE.sqlite:linen/jit/phase).

    One store, or more than two: ratios within each of its machines (strata), or of these stores, and over machines.
    """

    margin: float = 0.02
    """Ratios up to 1 + margin are no regression."""
    machines: bool = False
    """Take two stores or strata for two machines, as more than two are."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ImportFlags:
    """Read results of earlier work, and print its tables by its own formulas. The file is not changed."""

    format: Literal["benchback-rl"] = "benchback-rl"
    """Whose results they are."""
    out: Path | None = None
    """Folder for the tables and charts as files; only printed by default."""
    json: bool = False
    """Print JSON."""


def report(arguments: list[str]) -> int:
    from benchback.analysis.costs import read_env_times
    from benchback.analysis.machines import fleet_of
    from benchback.cli.workloads import print_workload, report_folder
    from benchback.measure.results import open_trainings
    from benchback.measure.store import open_store
    from benchback.report.render import render

    name, flags = parse_named(ReportFlags, arguments, "report", "STORE", "a store")
    check_seed(flags.seed)
    path = Path(name)
    out = flags.out or report_folder(path)
    with open_store(path, readonly=True) as store:
        if print_workload(store, out, flags.json):
            return 0
    times = None if flags.env_times is None else read_env_times(flags.env_times)
    with ExitStack() as opened:
        store = opened.enter_context(open_trainings(path))
        other = flags.against and opened.enter_context(open_trainings(flags.against))
        fleet = fleet_of(store, flags.seed) if len(store.strata()) > 1 else None
        options = {"against": other, "env_times": times, "fleet": fleet}
        files = render(store, out, seed=flags.seed, images=flags.images, **options)
    print_report(files, flags.json, fleet)
    return 0


def compare(arguments: list[str]) -> int:
    from benchback.analysis import compare

    if asks_for_help(arguments):
        parse(CompareFlags, arguments, "compare A B")
    count = next((at for at, x in enumerate(arguments) if x.startswith("-")), len(arguments))
    if not count:
        raise InputError(f"compare needs two stores, e.g. {example('compare')}; or one with several machines")
    flags = parse(CompareFlags, arguments[count:], "compare A B")
    if not 0 < flags.margin < 1:
        raise InputError(f"margin={flags.margin:g} must be between 0 and 1, e.g. 0.02")
    sides = [compare.side(given) for given in arguments[:count]]
    if count != 2 or flags.machines:
        print_fleet(compare.fleet(sides), flags.json)
        return 0
    found = compare.compare(sides[0], sides[1], flags.margin)
    print_comparison(found, arguments[0], arguments[1], flags.json)
    return 1 if found.regressions else 0


def import_results(arguments: list[str]) -> int:
    from benchback.analysis import imported

    name, flags = parse_named(ImportFlags, arguments, "import", "FILE", "a file")
    runs = imported.read_cache(Path(name))
    print_imported(runs, imported.speedups(runs), imported.machines(runs), imported.modes(runs), flags.json)
    if flags.out is not None:
        from benchback.report.render import render_imported

        print_report(render_imported(runs, flags.out), flags.json)
    return 0


def print_report(files: Sequence[Path], as_json: bool, fleet: "Fleet | None" = None) -> None:
    """Print the paths of the files, and what is said over machines where there are several."""
    if as_json:
        found: dict[str, Any] = {"files": [str(path) for path in files]}
        print(json.dumps(found | (fleet_record(fleet) if fleet else {})))
        return
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{files[0]} and {len(files) - 1} more files, {size:.1f} MB")
    if fleet:
        print_fleet(fleet, False)


def print_fleet(fleet: "Fleet", as_json: bool) -> None:
    """Print each machine's ratios and those over machines."""
    from benchback.analysis.machines import fleet_claims
    from benchback.report.prose_machines import paragraphs

    if as_json:
        print(json.dumps(fleet_record(fleet), indent=2))
    else:
        print("\n".join(paragraphs(fleet, fleet_claims(fleet))))


def fleet_record(fleet: "Fleet") -> dict[str, Any]:
    """The claims over machines as JSON has them."""
    from benchback.analysis.machines import fleet_claims, fleet_table

    rows = [jsonable(row) for row in fleet_table(fleet_claims(fleet)).to_dicts()]
    names = [machine.name for machine in fleet.machines]
    return {"machines": names, "left_out": dict(fleet.left_out), "over_machines": rows}


def print_comparison(found: "Compared", before: str, after: str, as_json: bool) -> None:
    """Print regressions first, then the differences between the machines."""
    from benchback.analysis.compare import spans

    rows = found.rows.to_dicts()
    if as_json:
        summary = {"before": before, "after": after, "regressions": found.regressions, "unmatched": found.unmatched}
        summary |= {"changed": found.changed, "rows": [jsonable(row) for row in rows], "spans": spans(found.rows)}
        print(json.dumps(summary, indent=2))
        return
    columns = ("variant", "env, model, timing", "metric", "before s", "after s", "times as long")
    lines = [_comparison_line(row) for row in rows[:MOST_ROWS]]
    Console().print(table("after against before, regressions first", columns, lines))
    if len(rows) > MOST_ROWS:
        print(f"{len(rows) - MOST_ROWS} more rows; --json prints all")
    for name, reason in dict.fromkeys((row["name"], row["reason"]) for row in rows if row["ratio"] is None):
        print(f"{name}, {NO_VERDICT}: {reason}")
    for row in spans(found.rows):
        span = f"{row['lowest']:.3f}x" if row["cells"] == 1 else f"{row['lowest']:.3f}x to {row['highest']:.3f}x"
        cells = f"{row['cells']} cell{'s' if row['cells'] > 1 else ''}"
        print(f"{row['name']}, {row['figure']}: {span} as long as before ({cells})")
    for name, (old, new) in found.changed.items():
        print(f"{name}: {old} -> {new}")
    if found.unmatched:
        print(f"{found.unmatched} cells are in one of the two only")
    print(f"{found.regressions} regressions of {len(rows)} comparisons")


def _comparison_line(row: Mapping[str, Any]) -> tuple[str, ...]:
    # Why there is no ratio is said below the table: it may be an error with words of any length.
    text = NO_VERDICT if row["ratio"] is None else escape(row["text"])
    seconds = ("-" if row[name] is None else f"{row[name]:.4g}" for name in ("before_s", "after_s"))
    agents = "" if row["agents"] == "1" else f", {row['agents']} agents"
    words = (row["name"] + agents, f"{row['env']} {row['model']} {row['timing']}", row["figure"])
    return (*map(escape, words), *seconds, f"[red]{text}[/red]" if row["regression"] else text)


def print_imported(
    runs: "pl.DataFrame",
    speedups: Sequence[Mapping[str, Any]],
    machines: Sequence[Mapping[str, Any]],
    modes: Sequence[Mapping[str, Any]],
    as_json: bool,
) -> None:
    """Print the tables of earlier work by its formulas."""
    if as_json:
        found = {"runs": len(runs), "label": "as published (all pairs)", "speedups": list(speedups)}
        print(json.dumps(found | {"machines": list(machines), "modes": list(modes)}, indent=2, default=str))
        return
    print(f"{len(runs)} runs; speed-ups as published: over all pairs of runs, without an interval")
    models = list(dict.fromkeys(str(row["model"]) for row in speedups))
    columns = ("machine", "timing", "metric", "from → to", *models)
    Console().print(
        table("speed-up by model: geometric mean / median (pairs)", columns, _speedup_lines(speedups, models))
    )
    for title, rows in (("machines", machines), ("compile modes, sync", modes)):
        if rows:
            lines = [tuple(_shown(x) for x in row.values()) for row in rows]
            Console().print(table(title, tuple(rows[0]), lines))


def _speedup_lines(speedups: Sequence[Mapping[str, Any]], models: Sequence[str]) -> list[tuple[str, ...]]:
    """A line for every machine, timing, metric and pair, with a column for each model, as published."""
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
