"""`benchback tune`: search for hyper-parameters."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape

from benchback.cli.arguments import Imports, on_stop, parse, positional, tell_notes, value_of, with_config, with_imports
from benchback.cli.running import FAILED_RUNS, check_runnable
from benchback.cli.tables import table
from benchback.errors import InputError
from benchback.population.spec import parse_vary

if TYPE_CHECKING:
    from benchback.tools.tune.result import Outcome

Config = TypeVar("Config")
ONLY_RUNS = {"timeout_s": 1800.0, "new_stratum": False}
NO_RUNS = {"confirm": 0, "group": None, "devices": 1, "on": None, "ship": False}
"""Flags of one way to search only -> their usual values."""
MOST_SHOWN = 30
"""Most points of a tuning that are printed."""


@dataclass(frozen=True)
class TuneFlags(Generic[Config]):
    """Search a space for the run with the highest return, with several seeds for every point. Run it again to continue.

    SPACE is an algorithm, the name of a space or a YAML file; fields of the run that are given as flags are shared by
    all points.
    """

    run: Config
    method: Literal["population", "halving", "pbt", "optuna", "runs"] | None = None
    """population: all points in one program, or as many as there are shapes; halving: those that lose are trained no
    further; pbt: they go on from copies of the better ones; optuna: points are proposed one after another; runs: each
    run in a fresh process. By default population where a float is tuned in a backend of the JAX family, else runs."""
    space: str | None = None
    """A space by name or a YAML file, where an algorithm comes first."""
    vary: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """As in train: FIELD=VALUE,VALUE and FIELD=LOW..HIGH:8 are grids; FIELD=LOW..HIGH and FIELD=log:LOW..HIGH are
    drawn, evenly spread, for each of --points."""
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """FIELD=VALUE,VALUE: every value, with every one of the other grids. May be given more than once."""
    random: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """FIELD=LOW..HIGH, or FIELD=VALUE,VALUE: drawn anew for each of --points. Where the ends are a factor of 10 apart
    the logarithm is drawn evenly; log:LOW..HIGH and linear:LOW..HIGH say otherwise."""
    points: int = 10
    """Draws, where something is drawn; with a grid, so many for each of its combinations. Proposals of optuna."""
    sampling: Literal["random", "sobol"] | None = None
    """How draws are placed: by default at random, with --vary by sobol."""
    seeds: int = 3
    """Runs of every point; all points have the same seeds, which --seed determines, as it does the draws."""
    confirm: int = 0
    """Train the best and the defaults again with so many fresh seeds, and compare them."""
    eta: int | None = None
    """Halving: one in so many points goes on at each rung, by default 3."""
    every: int | None = None
    """Pbt: iterations between two copies, by default a twentieth of all; must divide them."""
    sampler: Literal["tpe", "random", "cmaes"] | None = None
    """Optuna: how points are proposed, by default tpe."""
    group: int | None = None
    """Members of a population that run side by side; by default as many as the processor's cache is likely to hold."""
    devices: int = 1
    """Devices over which the members of a population are divided."""
    on: str | None = None
    """Cluster whose nodes train the members: ray://HOST:PORT, ray:auto, or ray:local=2 for two nodes on this machine,
    to try it. Methods population and optuna."""
    ship: bool = False
    """Send this package's code to the machines of the cluster, where other code would be refused."""
    scale: float = 1.0
    """Factor on the number of iterations: a quick look."""
    config: Path | None = None
    """YAML file with fields of the run that all points share; flags override it."""
    out: Path | None = None
    """Folder of the tuning; by default a name under runs/ made of what is tuned. Continued if it is there."""
    threads: int = 1
    """CPU threads of every run."""
    timeout_s: float = 1800.0
    """Runs: seconds after which one is ended."""
    new_stratum: bool = False
    """Runs: start over on a machine that has changed; runs before and after are never pooled."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def tune(arguments: list[str]) -> int:
    from benchback.cli import searching

    space, flags = chosen_space(arguments)
    tell_notes(flags.run.env)
    method = flags.method or usual_method(space)
    if method == "pbt" and value_of("--seeds", arguments) not in (None, "1"):
        raise InputError("--seeds: population-based training has one member for each point; leave it out")
    if method == "runs":
        return run_each(space, flags)
    for name, usual in ONLY_RUNS.items():
        if getattr(flags, name) != usual:
            flag = name.replace("_", "-")
            raise InputError(
                f"--{flag} is about --method runs, and this is {method}; leave it out or change the method"
            )
    return searching.run_search(space, flags, method)


def usual_method(space: Any) -> str:
    """population where members of one program can differ in what is tuned, runs elsewhere."""
    from benchback import registry
    from benchback.tools.tune.programs import fits, tuned_floats
    from benchback.tools.tune.space import points
    from benchback.training.run import Run

    listed = points(space, 0)
    runs = [Run.from_dict({**space.base, **point}) for point in listed]
    for backend in dict.fromkeys(run.backend for run in runs):
        registry.check_installed(backend)
    several = any(tuned_floats(run, [point]) for run, point in zip(runs, listed, strict=True))
    return "population" if several and all(map(fits, runs)) else "runs"


def run_each(space: Any, flags: TuneFlags) -> int:
    """Run every point with every seed through the harness."""
    from benchback.cli.board import stopped_text, watching
    from benchback.cli.searching import settings_of
    from benchback.measure import coordinator
    from benchback.tools.tune import result, search

    for name, usual in NO_RUNS.items():
        if getattr(flags, name) != usual:
            raise InputError(
                f"--{name} is about populations, and this is --method runs; leave it out or change the method"
            )
    settings_of(flags, "runs")
    stop = on_stop()
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
    outcome = result.outcome_of(lines, tuning)
    print_tuning(outcome, result.write(outcome, out), failed, flags.json)
    return FAILED_RUNS if failed else 0


def chosen_space(arguments: list[str]) -> tuple[Any, TuneFlags]:
    """The space of the first argument, modified by the flags, and the flags."""
    from benchback import registry
    from benchback.tools.tune import space as spaces
    from benchback.training.run import Run

    if arguments and arguments[0] in ("-h", "--help"):
        arguments = [registry.DEFAULT_ALGORITHM, *arguments]
    known = f"an algorithm, a space ({', '.join(spaces.names())}) or a YAML file"
    name, rest = positional(arguments, "tune", known)
    given_space = value_of("--space", rest)
    by_flags = name in registry.ALGORITHMS and given_space is None
    space = spaces.Space(name, {"algorithm": name}) if by_flags else spaces.load(given_space or name)
    if given_space is not None and space.base["algorithm"] != name:
        raise InputError(f"--space {given_space} is of {space.base['algorithm']}; tune that, or choose another space")
    fields = with_config(space.base, value_of("--config", rest), space.base["algorithm"])
    default = TuneFlags(run=Run.from_dict(with_imports(fields, rest)), points=space.points, seeds=space.seeds)
    flags_type = TuneFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, rest, f"tune {name}", default)
    run = flags.run
    # Not the mode of the base: each backend of a grid has its own best mode.
    base = {x: y for x, y in run.to_dict().items() if x != "seed"} | {"mode": run.mode}
    sampling = flags.sampling or ("sobol" if flags.vary else space.sampling)
    space = replace(space, base=base, points=flags.points, seeds=flags.seeds, sampling=sampling)
    space = spaces.extended(space, axes("grid", flags.grid), axes("random", flags.random))
    space = spaces.varied(space, parse_vary(flags.vary))
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


def point_rows(outcome: "Outcome") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of the table of points, best first."""
    from benchback.tools.tune.result import text

    lines = outcome.lines
    failed, halved = any(line["error"] for line in lines), len({line.get("iterations") for line in lines}) > 1
    columns = ("rank", *lines[0]["values"], "return", "+-", "95 % interval", "seeds")
    columns += (*(["iterations"] if halved else []), *(["error"] if failed else []))
    rows = [
        (
            str(line["rank"]),
            *(escape(text(line["values"].get(name))) for name in lines[0]["values"]),
            "-" if line["score"] is None else f"{line['score']:.1f}",
            "-" if line["std"] is None else f"{line['std']:.1f}",
            "-" if line["low"] is None else f"{line['low']:.1f} to {line['high']:.1f}",
            str(line["seeds"]),
            *([str(line["iterations"])] if halved else []),
            *([escape(line["error"][:60])] if failed else []),
        )
        for line in lines[:MOST_SHOWN]
    ]
    return columns, rows


def print_tuning(outcome: "Outcome", paths: Sequence[Path], failed: int, as_json: bool) -> None:
    """Print a row per point, best first, and the paths of the files."""
    lines = outcome.lines
    if as_json:
        found = {"event": "outcome", "study": outcome.name, "scale": outcome.scale, "failed": failed}
        print(json.dumps(found | {"rows": list(lines), "files": [str(path) for path in paths]}))
        return
    columns, rows = point_rows(outcome)
    scaled = "" if outcome.scale == 1.0 else f", iterations times {outcome.scale:g}"
    Console().print(table(f"{outcome.name}: {len(lines)} points, {outcome.seeds} seeds each{scaled}", columns, rows))
    if len(lines) > MOST_SHOWN:
        print(f"{len(lines) - MOST_SHOWN} more in {paths[0]}")
    if failed:
        print(f"{failed} runs have no result: benchback list-runs {paths[0].parent / 'runs.sqlite'}")
    best = next((path for path in paths if path.name == "best.yaml"), None)
    if best is not None:
        print(f"train the best with: benchback train --config {best}")
    print(f"files in {paths[0].parent}")
