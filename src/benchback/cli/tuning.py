"""`benchback tune`: search for hyper-parameters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape

from benchback.cli.arguments import Imports, on_stop, parse, positional, tell_notes, value_of, with_config, with_imports
from benchback.cli.running import FAILED_RUNS, check_runnable
from benchback.cli.tables import table
from benchback.errors import InputError

if TYPE_CHECKING:
    from benchback.measure.study import Study

Config = TypeVar("Config")
MOST_SHOWN = 30
"""Most points of a tuning that are printed."""


@dataclass(frozen=True)
class TuneFlags(Generic[Config]):
    """Run every point of a space with several seeds, each run in a fresh process. Run it again to continue.

    SPACE is an algorithm, the name of a space or a YAML file; fields of the run that are given as flags are shared by
    all points.
    """

    run: Config
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """FIELD=VALUE,VALUE: every value, with every one of the other grids. May be given more than once."""
    random: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """FIELD=LOW..HIGH, or FIELD=VALUE,VALUE: drawn anew for each of --points. Where the ends are a factor of 10 apart
    the logarithm is drawn evenly; log:LOW..HIGH and linear:LOW..HIGH say otherwise."""
    points: int = 10
    """Draws, where something is drawn; with a grid, so many for each of its combinations."""
    seeds: int = 3
    """Runs of every point; all points have the same seeds, which --seed determines, as it does the draws."""
    scale: float = 1.0
    """Factor on the number of iterations: a quick look."""
    config: Path | None = None
    """YAML file with fields of the run that all points share; flags override it."""
    out: Path | None = None
    """Folder of the tuning; by default a name under runs/ made of what is tuned. Continued if it is there."""
    threads: int = 1
    """CPU threads of every run."""
    timeout_s: float = 1800.0
    """Seconds after which a run is ended."""
    new_stratum: bool = False
    """Start over on a machine that has changed; runs before and after are never pooled."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def tune(arguments: list[str]) -> int:
    from benchback.cli.board import stopped_text, watching
    from benchback.measure import coordinator
    from benchback.tools.tune import result, search

    stop = on_stop()
    space, flags = chosen_space(arguments)
    tell_notes(flags.run.env)
    seed = flags.run.seed
    tuning = search.study_of(space, seed, scale=flags.scale, threads=flags.threads, timeout_s=flags.timeout_s)
    check_runnable(tuning)
    out = flags.out or Path("runs") / tuning.name
    called = result.labels(tuning)
    with search.open_tuning(out, tuning, seed, new_stratum=flags.new_stratum) as store:
        with watching(store, flags.json, lambda cell: called[cell.id]) as hooks:
            # Points are compared by return, which depends neither on parity nor on the machine's speed.
            hooks = replace(hooks, asked_to_stop=stop, prove=None, canary=None)
            complete = coordinator.work(store, tuning, hooks)
        if not complete:
            raise KeyboardInterrupt(stopped_text(store))
        lines = result.lines_of(store, tuning)
        failed = store.progress(len(store.strata()) - 1).failed
    print_tuning(lines, tuning, result.write(lines, tuning, out), failed, flags.json)
    return FAILED_RUNS if failed else 0


def chosen_space(arguments: list[str]) -> tuple[Any, TuneFlags]:
    """The space of the first argument, modified by the flags, and the flags."""
    from benchback import registry
    from benchback.runs import Run
    from benchback.tools.tune import space as spaces

    if arguments and arguments[0] in ("-h", "--help"):
        arguments = [registry.DEFAULT_ALGORITHM, *arguments]
    known = f"an algorithm, a space ({', '.join(spaces.names())}) or a YAML file"
    name, rest = positional(arguments, "tune", known)
    by_flags = name in registry.ALGORITHMS
    space = spaces.Space(name, {"algorithm": name}) if by_flags else spaces.load(name)
    fields = with_config(space.base, value_of("--config", rest), space.base["algorithm"])
    default = TuneFlags(run=Run.from_dict(with_imports(fields, rest)), points=space.points, seeds=space.seeds)
    flags_type = TuneFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, rest, f"tune {name}", default)
    run = flags.run
    # Not the mode of the base: each backend of a grid has its own best mode.
    base = {x: y for x, y in run.to_dict().items() if x != "seed"} | {"mode": run.mode}
    space = replace(space, base=base, points=flags.points, seeds=flags.seeds)
    space = spaces.extended(space, axes("grid", flags.grid), axes("random", flags.random))
    if by_flags:
        from benchback.tools.tune.search import default_name

        varied = (*space.grid, *space.random)
        space = replace(space, name=default_name(run.algorithm, run.backend, run.env, varied))
    return space, flags


def axes(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """FIELD=VALUES arguments as a mapping by field."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--{option} {text[:80]} must be FIELD=VALUES, e.g. learning_rate=1e-4,1e-3")
        if name in found:
            raise InputError(f"--{option} {name} is given twice; list all its values at once")
        found[name] = values
    return found


def print_tuning(
    lines: Sequence[Mapping[str, Any]], tuning: "Study", paths: Sequence[Path], failed: int, as_json: bool
) -> None:
    """Print a row per point, best first, and the paths of the files."""
    if as_json:
        found = {"event": "outcome", "study": tuning.name, "scale": tuning.scale, "failed": failed}
        print(json.dumps(found | {"rows": list(lines), "files": [str(path) for path in paths]}))
        return
    from benchback.tools.tune.result import text

    columns = ("rank", *lines[0]["values"], "return", "+-", "seeds", *(["error"] if failed else []))
    rows = [
        (
            str(rank),
            *(escape(text(x)) for x in line["values"].values()),
            "-" if line["score"] is None else f"{line['score']:.1f}",
            "-" if line["std"] is None else f"{line['std']:.1f}",
            str(line["seeds"]),
            *([escape(line["error"][:60])] if failed else []),
        )
        for rank, line in enumerate(lines[:MOST_SHOWN], 1)
    ]
    scaled = "" if tuning.scale == 1.0 else f", iterations times {tuning.scale:g}"
    Console().print(table(f"{tuning.name}: {len(lines)} points, {tuning.min_blocks} seeds each{scaled}", columns, rows))
    if len(lines) > MOST_SHOWN:
        print(f"{len(lines) - MOST_SHOWN} more in {paths[0]}")
    if failed:
        print(f"{failed} runs have no result: benchback list-runs {paths[0].parent / 'runs.sqlite'}")
    best = next((path for path in paths if path.name == "best.yaml"), None)
    if best is not None:
        print(f"train the best with: benchback train --config {best}")
    print(f"files in {paths[0].parent}")
