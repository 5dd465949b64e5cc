"""Verbs about campaigns: plan, run, look at, check and export them; and about the machine they run on."""

import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import tyro

from benchback.cli.arguments import limit_threads, parse, positional
from benchback.errors import InputError

FAILED_RUNS = 3


@dataclass(frozen=True)
class PlanFlags:
    """Show what a study would run: configurations, runs in order, time, disk, and the smallest effect it can find."""

    scale: float = 1.0
    """Factor on the number of iterations: a quick look, marked as not comparable."""
    index: int | None = None
    """Only the configuration with this index."""
    start: Annotated[int | None, tyro.conf.arg(name="from")] = None
    """Only configurations from this index on."""
    count: int | None = None
    """At most this many configurations."""
    order: Literal["protocol", "original"] | None = None
    """protocol: interleaved blocks; original: one after another as published."""
    repeats: int | None = None
    """Passes in the original order."""
    blocks: int | None = None
    """Blocks of every group, neither fewer nor more; by default as the study says."""
    seed: int | None = None
    """Seed of the schedule and of the runs; 0 unless given. A campaign keeps the one it was begun with."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class RunFlags(PlanFlags):
    """Run a study, each run in a fresh process. Run it again to continue where it stopped."""

    store: Path | None = None
    """Store of the campaign; by default runs/STUDY.sqlite."""
    note: str = ""
    """Free text kept with the campaign."""
    new_stratum: bool = False
    """Continue on a machine that has changed; runs before and after are never pooled."""
    in_process: bool = False
    """Without isolation, for debugging; the records say so."""
    track: tyro.conf.UseAppendAction[tuple[Literal["csv", "tensorboard", "wandb"], ...]] = ("csv",)
    """Also give every finished run to this tracker; it writes beside the store. May be given more than once."""
    online: bool = False
    """Let W&B upload, with WANDB_API_KEY from the environment or .env; otherwise its runs stay on this machine."""


@dataclass(frozen=True)
class StoreFlags:
    """Look into a store."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ExportFlags:
    """Write a store's runs and samples as tables."""

    format: Literal["csv", "json", "parquet"] = "csv"
    """Kind of file."""
    out: Path = Path("export")
    """Folder to write to."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class DoctorFlags:
    """Examine the machine: noise, limits, versions, and an A/A comparison."""

    seconds: float = 60.0
    """Length of the A/A comparison."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class EnvsFlags:
    """Time a vectorised step of every environment, without any policy."""

    envs: tuple[str, ...] = ()
    """Environments to time; those of the store, else of the study `backends` by default."""
    num_envs: tuple[int, ...] = ()
    """Numbers of environments stepped together; as many as there, and 4096, by default."""
    store: Path | None = None
    """Store of a campaign in which to keep the result, for its report."""
    json: bool = False
    """Print JSON."""


def chosen_study(arguments: list[str], verb: str, flags_type: type) -> tuple[Any, Any]:
    """The study named first, as the flags shape it, and the flags."""
    from benchback.measure import study

    if arguments and arguments[0] in ("-h", "--help"):
        parse(flags_type, arguments, f"{verb} STUDY")
    name, rest = positional(arguments, verb, f"a study: {', '.join(study.names())}, or a YAML file")
    flags = parse(flags_type, rest, f"{verb} STUDY")
    chosen = study.select(study.load(name), flags.index, flags.start, flags.count)
    if flags.scale != 1.0:
        chosen = study.scaled(chosen, flags.scale)
    changes: dict[str, Any] = {}
    if flags.order is not None:
        changes["order"] = flags.order
    if flags.repeats is not None:
        changes["repeats"] = flags.repeats
    if flags.blocks is not None:
        changes |= {"min_blocks": flags.blocks, "max_blocks": flags.blocks}
    return replace(chosen, **changes), flags


def plan(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_plan
    from benchback.measure.plan import estimate, schedule

    study, flags = chosen_study(arguments, "plan", PlanFlags)
    print_plan(study, *schedule(study, flags.seed or 0), estimate(study), flags.json)
    return 0


def run(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_outcome, watching
    from benchback.measure import coordinator
    from benchback.measure.launch import in_process
    from benchback.tools.track import feeder

    stop = on_stop()
    study, flags = chosen_study(arguments, "run", RunFlags)
    trackers = tuple(dict.fromkeys(flags.track))
    feeder.check(trackers, flags.online)
    path = flags.store or Path("runs") / f"{study.name}.sqlite"
    launch = in_process if flags.in_process else None
    options = {"seed": flags.seed, "note": flags.note, "new_stratum": flags.new_stratum}
    with coordinator.open_campaign(path, study, **options) as store:
        with watching(store, flags.json) as hooks:
            feeding = feeder.Feeder(store, trackers, flags.online, stop, hooks.log)
            feeding.catch_up()
            finished = each(hooks.finished, feeding.finished)
            hooks = replace(hooks, asked_to_stop=stop, launch=launch, finished=finished)
            complete = coordinator.work(store, study, hooks)
        if not complete:
            raise KeyboardInterrupt
        failed = print_outcome(store, flags.json)
    return FAILED_RUNS if failed else 0


def each(*functions: Callable[..., None]) -> Callable[..., None]:
    """A function that calls all of them, one after another."""

    def call(*arguments: Any) -> None:
        for function in functions:
            function(*arguments)

    return call


def on_stop() -> Callable[[], bool]:
    """Whether the user has asked to stop: what is under way is ended within two seconds, however often they ask."""
    asked: list[int] = []
    numbers = signal.SIGINT, signal.SIGTERM

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)
        # Unlike a handler of ours, this lasts until the process is gone: one who asks again gets the same exit code.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    for number in numbers:
        signal.signal(number, ask)
    return lambda: bool(asked)


def opened(arguments: list[str], verb: str, flags_type: type = StoreFlags) -> tuple[Any, Any]:
    """The store named first, read-only, and the flags."""
    from benchback.measure.store import open_store

    path, flags = store_path(arguments, verb, flags_type)
    return open_store(path, readonly=True), flags


def store_path(arguments: list[str], verb: str, flags_type: type = StoreFlags) -> tuple[Path, Any]:
    """The path named first, and the flags."""
    if arguments and arguments[0] in ("-h", "--help"):
        parse(flags_type, arguments, f"{verb} STORE")
    path, rest = positional(arguments, verb, "a store, e.g. runs/smoke.sqlite")
    return Path(path), parse(flags_type, rest, f"{verb} STORE")


def status(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_status

    store, flags = opened(arguments, "status")
    with store:
        print_status(store, flags.json)
    return 0


def list_runs(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_runs

    store, flags = opened(arguments, "list-runs")
    with store:
        print_runs(store, flags.json)
    return 0


def show_run(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_run

    if len(arguments) < 2 or arguments[1].startswith("-"):
        raise InputError("show needs a store and a run, e.g. show runs/smoke.sqlite CELL/BLOCK; list-runs names them")
    store, flags = opened([arguments[0], *arguments[2:]], "show")
    with store:
        print_run(store, arguments[1], flags.json)
    return 0


def verify(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_problems
    from benchback.measure.verify import verify

    path, flags = store_path(arguments, "verify")
    if not path.is_file():
        raise InputError(f"{path} is not a file; give a store that `benchback run` wrote")
    problems = verify(path)
    print_problems(path, problems, flags.json)
    return 1 if problems else 0


def export(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_files
    from benchback.measure.export import export

    store, flags = opened(arguments, "export", ExportFlags)
    with store:
        print_files(export(store, flags.out, flags.format), flags.json)
    return 0


def doctor(arguments: list[str]) -> int:
    from benchback.cli.show_campaigns import print_examination
    from benchback.cli.show_tables import measuring
    from benchback.measure.doctor import examine

    flags = parse(DoctorFlags, arguments, "doctor")
    if flags.seconds <= 0:
        raise InputError(f"seconds={flags.seconds:g} must be positive")
    with measuring() as progress:
        found = examine(flags.seconds, progress)
    print_examination(found, flags.json)
    return 0


def environments(arguments: list[str]) -> int:
    from benchback import envs
    from benchback.cli.show_campaigns import print_complexity
    from benchback.cli.show_tables import measuring
    from benchback.measure import complexity
    from benchback.measure.store import open_store
    from benchback.measure.study import load

    if not arguments or arguments[0] != "time":
        raise InputError("envs knows one thing to do: envs time; `benchback list` shows the environments")
    flags = parse(EnvsFlags, arguments[1:], "envs time")
    with nullcontext() if flags.store is None else open_store(flags.store) as store:
        cells = store.cells().values() if store else load("backends").cells
        ids = flags.envs or tuple(dict.fromkeys(cell.run["env"] for cell in cells))
        sizes = flags.num_envs or tuple(dict.fromkeys((*(cell.run["num_envs"] for cell in cells), complexity.LARGE)))
        for id in ids:
            envs.check(id)
            envs.check_installed(id)
        for size in sizes:
            if size < 1:
                raise InputError(f"num_envs={size} must be at least 1")
        limit_threads(1)
        with measuring() as progress:
            rows = complexity.measure(ids, sizes, progress)
        if store:
            store.add_event("complexity", {"stratum": len(store.strata()) - 1, "rows": rows})
    print_complexity(rows, flags.json)
    return 0
