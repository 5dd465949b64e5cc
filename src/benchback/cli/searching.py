"""`benchback tune` by populations: what is planned, the progress of each program, and what was found."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchback.cli.arguments import limit_threads, on_interrupt
from benchback.cli.populations import PopulationReporter
from benchback.cli.tables import table
from benchback.cli.training import allow_precision
from benchback.errors import InputError
from benchback.tools.tune.confirm import check_count
from benchback.tools.tune.programs import Planned, Program, fits
from benchback.tools.tune.result import Outcome, label, lines_from
from benchback.tools.tune.searching import (
    Hooks,
    Search,
    Settings,
    check_programs,
    check_settings,
    find_programs,
    full_length,
    history,
    open_search,
    rungs_of,
    train_programs,
)
from benchback.tools.tune.space import Space

if TYPE_CHECKING:
    from benchback.cli.tuning import TuneFlags
    from benchback.tools.tune.confirm import Confirmation

MOST_PLANNED = 20
"""Most programs of a plan that are printed."""
ON_NODES = ("population", "optuna")
"""Methods that a cluster can do."""
OF_METHOD = {"eta": "halving", "every": "pbt", "sampler": "optuna"}
"""Flag -> the method that it is about."""


def settings_of(flags: "TuneFlags", method: Any) -> Settings:
    """The settings that the flags give; flags of another method are refused."""
    for name, of in OF_METHOD.items():
        if getattr(flags, name) is not None and of != method:
            raise InputError(
                f"--{name} is about --method {of}, and this is {method}; leave it out or change the method"
            )
    given = {name: getattr(flags, name) for name in (*OF_METHOD, "group") if getattr(flags, name) is not None}
    found = Settings(method, devices=flags.devices, scale=flags.scale, **given)
    check_settings(found)
    return found


def run_search(space: Space, flags: "TuneFlags", method: Any) -> int:
    """Search the space by populations, and print what was found."""
    from benchback.tools.tune import page

    settings = settings_of(flags, method)
    check_on(flags, method)
    if flags.confirm:
        check_count(flags.confirm)
    if method == "pbt":
        space = replace(space, seeds=1)
    out = flags.out or Path("runs") / f"tune-{space.name}-{method}"
    limit_threads(flags.threads)
    allow_precision(flags.run)
    with showing(flags.json) as hooks, training_on(flags, hooks) as trained_by:
        search = Search(space, settings, flags.run.seed, out, hooks, *trained_by)
        rows, past = trials(search) if method == "optuna" else programs(search, flags.json)
        lines = lines_from(rows, space.seeds)
        best = full_length(search, lines[0]["values"]) if lines[0]["score"] is not None else None
        outcome = Outcome(f"tune-{space.name}", lines, space.seeds, best, flags.scale, method)
        confirmed = confirmation(search, outcome, flags.confirm)
    print_search(outcome, page.write(outcome, out, confirmed, past), confirmed, flags.json)
    return 0


def check_on(flags: "TuneFlags", method: str) -> None:
    """Raise an InputError if the search is not for a cluster."""
    if flags.on is None:
        if flags.ship:
            raise InputError("--ship sends code to a cluster; add --on")
        return
    if method not in ON_NODES:
        raise InputError(
            f"--on: {method} chooses between members while they are trained, in one program; use --method population"
        )
    if flags.devices != 1:
        raise InputError(f"--devices {flags.devices} is about this machine; with --on a node uses all that it has")


@contextmanager
def training_on(flags: "TuneFlags", hooks: Hooks) -> Iterator[tuple[Any, ...]]:
    """What trains populations on the cluster that the flags name, and over how many devices; nothing if they do not."""
    if flags.on is None:
        yield ()
        return
    from benchback.cli.parallel import over_nodes

    def warn(line: str) -> None:
        print(f"note: {line}", file=sys.stderr)

    with over_nodes(flags, hooks.asked_to_stop, warn) as found:
        yield found


def programs(search: Search, as_json: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of all points after training them as the plan says, which is printed before; and the history of members."""
    from benchback.tools.tune.programs import plan

    found = find_programs(search)
    check_programs(search, found)
    planned = plan(found, search.settings.group, search.settings.devices, search.width)
    open_search(search)
    print_plan(search, planned, as_json)
    rows = train_programs(search, found)
    return rows, past_of(search, found) if search.settings.method == "pbt" else []


def past_of(search: Search, found: Sequence[Program]) -> list[dict[str, Any]]:
    """The history of all programs' members."""
    from benchback.population.folder import PopulationDir

    folders = [PopulationDir(search.out / "programs" / f"{number:03d}") for number in range(len(found))]
    pairs = enumerate(zip(folders, found, strict=True))
    return [{"program": number, **row} for number, (folder, program) in pairs for row in history(folder, program)]


def trials(search: Search) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of all points that Optuna proposed."""
    from benchback.tools.tune.trials import check_installed, train_trials
    from benchback.training.run import Run

    check_installed()
    base = Run.from_dict(search.base)
    if not fits(base):
        raise InputError(f"backend={base.backend} with env={base.env} has no populations; use --method runs")
    open_search(search)
    return train_trials(search), []


def confirmation(search: Search, outcome: Outcome, count: int) -> "Confirmation | None":
    """The best on fresh seeds, if the user asks for it."""
    if not count or outcome.best is None:
        return None
    from benchback.tools.tune.confirm import confirm

    return confirm(search, outcome.lines[0]["values"], count)


@contextmanager
def showing(as_json: bool) -> Iterator[Hooks]:
    """Hooks that show the progress of the program that is trained; interrupted once, it ends after the current call."""
    reports: list[PopulationReporter] = []
    stop = on_interrupt()

    def begun(number: int, program: Program) -> None:
        close()
        reports.append(PopulationReporter(program.run, 0, as_json))
        reports[-1].bar.start()

    def close() -> None:
        if reports:
            reports.pop().bar.stop()

    try:
        yield Hooks(begun, lambda rows: reports[-1](rows), stop)
    finally:
        close()


def print_plan(search: Search, planned: Sequence[Planned], as_json: bool) -> None:
    """Print how many programs there are, with how many members each, and the memory that they are expected to take."""
    if as_json:
        about = [
            {"shape": dict(x.program.shape), "points": len(x.program.points), "seeds": x.program.seeds}
            | {"members": len(x.program.members), "group": x.group, "bytes": x.bytes}
            for x in planned
        ]
        print(json.dumps({"event": "plan", "method": search.settings.method, "programs": about}), flush=True)
        return
    one = len(planned) == 1
    print(f"{'1 program' if one else f'{len(planned)} programs, one after another'}", file=sys.stderr)
    for x in planned[:MOST_PLANNED]:
        shape = f"{label(x.program.shape)}: " if x.program.shape else ""
        members = f"{len(x.program.members)} members ({len(x.program.points)} points x {x.program.seeds} seeds)"
        print(f"  {shape}{members} in groups of {x.group}, about {x.bytes / 1e6:,.0f} MB", file=sys.stderr)
    if len(planned) > MOST_PLANNED:
        print(f"  and {len(planned) - MOST_PLANNED} more", file=sys.stderr)
    if search.settings.method == "halving":
        rungs = rungs_of(planned[0].program, search.settings)
        after = ", ".join(f"{rung.points} after {rung.iteration}" for rung in rungs)
        print(
            f"  points that go on: {after} of {planned[0].program.run.config.num_iterations} iterations",
            file=sys.stderr,
        )


def print_search(outcome: Outcome, paths: Sequence[Path], confirmed: "Confirmation | None", as_json: bool) -> None:
    """Print a row per point, best first, what fresh seeds say, and the files."""
    from rich.console import Console

    from benchback.cli.tuning import MOST_SHOWN, point_rows
    from benchback.tools.tune.confirm import sentences
    from benchback.tools.tune.page import CURSE

    if as_json:
        found: dict[str, Any] = {"event": "outcome", "study": outcome.name, "method": outcome.method}
        found |= {"scale": outcome.scale, "failed": 0, "rows": outcome.lines, "files": [str(x) for x in paths]}
        print(json.dumps(found | {"confirmation": confirmed.to_dict() if confirmed else None}))
        return
    title = f"{outcome.name}, {outcome.method}: {len(outcome.lines)} points, {outcome.seeds} seeds each"
    columns, rows = point_rows(outcome)
    Console().print(table(title, columns, rows))
    if len(outcome.lines) > MOST_SHOWN:
        print(f"{len(outcome.lines) - MOST_SHOWN} more in {paths[0]}")
    for sentence in sentences(confirmed) if confirmed else [CURSE]:
        print(sentence)
    if outcome.best is not None:
        print(f"train the best with: benchback train --config {paths[0].parent / 'best.yaml'}")
    print(f"page and files: {paths[-1]}")
