"""`benchback profile`: where an iteration's time goes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

from benchback.cli.arguments import (
    Imports,
    leading,
    limit_threads,
    limit_threads_early,
    parse,
    value_of,
    with_config,
    with_imports,
)
from benchback.cli.tables import measuring, table
from benchback.cli.training import allow_precision
from benchback.tools.profile.page import milliseconds, ratio_cell, share

Config = TypeVar("Config")


@dataclass(frozen=True)
class ProfileFlags(Generic[Config]):
    """Profile the steady iterations of a run: a table of its parts, cProfile, and the framework's own trace.

    Writes summary.html, profile.json, profile.pstats (for snakeviz) and trace.json.gz (for Perfetto) to a folder.
    """

    run: Config
    config: Path | None = None
    """YAML file with fields of the run (as config.yaml in a run folder); flags override it."""
    warmup: int = 3
    """Iterations before anything is measured."""
    iterations: int = 10
    """Steady iterations of every measurement."""
    compare: str | None = None
    """Backend whose updates are timed in turn with the run's, until they return and until they are done."""
    out: Path | None = None
    """Folder to create; by default a name under runs/ made of the run's settings."""
    threads: int = 1
    """CPU threads for XLA, OpenMP and torch alike."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def profile(arguments: list[str]) -> int:
    from benchback import registry
    from benchback.tools.profile import ProfilePlan, default_out, profile
    from benchback.training.run import Run

    named, arguments = leading(arguments)
    fields = with_config(
        {"algorithm": registry.DEFAULT_ALGORITHM if named is None else named}, value_of("--config", arguments), named
    )
    limit_threads_early(arguments)
    default = ProfileFlags(run=Run.from_dict(with_imports(fields, arguments)))
    flags_type = ProfileFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"profile {fields['algorithm']}", default)
    if flags.compare is not None:
        registry.choose("backend", flags.compare, registry.BACKENDS)
    plan = ProfilePlan(flags.run, flags.warmup, flags.iterations, flags.compare)
    limit_threads(flags.threads)
    allow_precision(flags.run)
    with measuring() as progress:
        found = profile(plan, flags.out or default_out(flags.run), progress)
    print_profile(found, flags.json)
    return 0


def print_profile(found: dict[str, Any], as_json: bool) -> None:
    """Print the table of the parts, the comparison of updates if there is one, and the paths of the files."""
    if as_json:
        print(json.dumps(found))
        return
    run, times = found["run"], found["whole"]
    title = f"{run['algorithm']} {run['backend']}/{run['mode']}/{run['unit']} on {run['env']}, an iteration"
    rows = [(row["part"], milliseconds(row["seconds"]), share(row["share"]), row["how"]) for row in found["parts"]]
    Console().print(table(title, ("part", "ms", "share", "what was timed"), rows))
    print("parts measured apart need not add up to the whole: the remainder is what they leave over or exceed it by")
    print(
        f"waited for: rollout {milliseconds(times['rollout_s'])} ms, update {milliseconds(times['update_s'])} ms; ",
        end="",
    )
    print(f"the calls of an iteration return after {milliseconds(times['returned_s'])} ms")
    if "updates" in found:
        print_updates(found["updates"])
    for name, what in (("page", "open"), ("cprofile", "snakeviz"), ("trace", "ui.perfetto.dev")):
        print(f"{what}: {found['files'][name]}")


def print_updates(found: dict[str, Any]) -> None:
    """Print the update times of two backends, by the moment at which the clock was stopped."""
    first, second = found["between"]
    rows = [(row["what"], *map(milliseconds, row["seconds"]), ratio_cell(row)) for row in found["rows"]]
    Console().print(table("updates alone", ("the clock runs", f"{first} ms", f"{second} ms", "ratio"), rows))
