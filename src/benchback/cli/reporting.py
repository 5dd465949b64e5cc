"""Verbs about what came of campaigns: report, compare, and results of earlier work."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchback.cli.arguments import parse, positional
from benchback.errors import InputError


@dataclass(frozen=True)
class ReportFlags:
    """Write the report of a store: one offline HTML page, figures as PNG and SVG, tables as Markdown, CSV and JSON."""

    out: Path | None = None
    """Folder to write to; by default STORE-report beside the store."""
    against: Path | None = None
    """Another store of the same study, e.g. of another machine, to put beside it."""
    env_times: Path | None = None
    """What `benchback envs time --json` printed: charts order environments by it, not by what the store knows."""
    seed: int = 0
    """Seed of the bootstrap intervals."""
    images: bool = True
    """Write the figures as files, too."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class CompareFlags:
    """Compare two stores (STORE), strata (STORE.sqlite@1) or variants (STORE.sqlite:linen/jit/phase)."""

    margin: float = 0.02
    """Ratios up to 1 + margin are no regression."""
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
    from benchback.cli.show_reporting import print_report
    from benchback.measure.results import open_trainings
    from benchback.report.render import render

    if arguments and arguments[0] in ("-h", "--help"):
        parse(ReportFlags, arguments, "report STORE")
    name, rest = positional(arguments, "report", "a store, e.g. runs/smoke.sqlite")
    flags = parse(ReportFlags, rest, "report STORE")
    path = Path(name)
    out = flags.out or path.with_name(f"{path.stem}-report")
    times = None if flags.env_times is None else read_env_times(flags.env_times)
    with ExitStack() as opened:
        store = opened.enter_context(open_trainings(path))
        other = flags.against and opened.enter_context(open_trainings(flags.against))
        files = render(store, out, seed=flags.seed, images=flags.images, against=other, env_times=times)
    print_report(files, flags.json)
    return 0


def compare(arguments: list[str]) -> int:
    from benchback.analysis.compare import compare, side
    from benchback.cli.show_reporting import print_comparison

    if arguments and arguments[0] in ("-h", "--help"):
        parse(CompareFlags, arguments, "compare A B")
    if len(arguments) < 2 or arguments[1].startswith("-"):
        raise InputError("compare needs two stores, e.g. compare runs/before.sqlite runs/after.sqlite")
    flags = parse(CompareFlags, arguments[2:], "compare A B")
    if not 0 < flags.margin < 1:
        raise InputError(f"margin={flags.margin:g} must be between 0 and 1, e.g. 0.02")
    found = compare(side(arguments[0]), side(arguments[1]), flags.margin)
    print_comparison(found, arguments[0], arguments[1], flags.json)
    return 1 if found.regressions else 0


def import_results(arguments: list[str]) -> int:
    from benchback.analysis import imported
    from benchback.cli.show_reporting import print_imported, print_report

    if arguments and arguments[0] in ("-h", "--help"):
        parse(ImportFlags, arguments, "import FILE")
    name, rest = positional(arguments, "import", "a file, e.g. results.parquet")
    flags = parse(ImportFlags, rest, "import FILE")
    runs = imported.read_cache(Path(name))
    print_imported(runs, imported.speedups(runs), imported.machines(runs), imported.modes(runs), flags.json)
    if flags.out is not None:
        from benchback.report.render import render_imported

        print_report(render_imported(runs, flags.out), flags.json)
    return 0
