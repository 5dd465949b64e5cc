"""The verb that says where an iteration's time goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchback.cli.arguments import limit_threads, parse, value_of
from benchback.cli.training import allow_precision

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
    json: bool = False
    """Print JSON."""


def profile(arguments: list[str]) -> int:
    from benchback import registry, run_dir
    from benchback.cli.show_profiling import print_profile
    from benchback.cli.show_tables import measuring
    from benchback.run import Run
    from benchback.tools.profile import Plan, default_out, profile

    algorithm = "ppo"
    if arguments and not arguments[0].startswith("-"):
        algorithm, arguments = arguments[0], arguments[1:]
    fields: dict[str, Any] = {"algorithm": algorithm}
    if given := value_of("--config", arguments):
        fields |= run_dir.read_config(Path(given))
    default = ProfileFlags(run=Run.from_dict(fields))
    flags_type = ProfileFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"profile {algorithm}", default)
    if flags.compare is not None:
        registry.choose("backend", flags.compare, registry.BACKENDS)
    plan = Plan(flags.run, flags.warmup, flags.iterations, flags.compare)
    limit_threads(flags.threads)
    allow_precision(flags.run)
    with measuring() as progress:
        found = profile(plan, flags.out or default_out(flags.run), progress)
    print_profile(found, flags.json)
    return 0
