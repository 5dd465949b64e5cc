"""Verbs about one agent: train it, evaluate it, make a video of it."""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import tyro

from benchback.cli import fail
from benchback.cli.arguments import (
    Imports,
    check_seed,
    each,
    keep_programs,
    leading,
    limit_threads,
    limit_threads_early,
    on_interrupt,
    parse,
    parse_named,
    tell_notes,
    value_of,
    with_config,
    with_imports,
)
from benchback.cli.reporter import reporter
from benchback.errors import InputError
from benchback.training.run import Run

if TYPE_CHECKING:
    from benchback.cli.parallel import Joined
    from benchback.training.monitor import Monitor

Config = TypeVar("Config")


@dataclass(frozen=True)
class TrainFlags(Generic[Config]):
    """Train one agent, or many in one program; a run folder gets config.yaml, metrics.csv and checkpoint.safetensors.

    The algorithm comes first: `benchback train td3 --help` shows the options of another.
    """

    run: Config
    config: Path | None = None
    """YAML file with fields of the run (as config.yaml in a run folder); flags override it."""
    resume: Path | None = None
    """Continue the run in this folder, or a member of a population, RUN#MEMBER, on its own. With other flags: start a
    new run (--out) from its checkpoint."""
    seeds: int | None = None
    """Train a population with so many seeds, from --seed on; with --vary, so many for each point."""
    vary: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """FIELD=VALUE,VALUE or a range, FIELD=LOW..HIGH or FIELD=log:LOW..HIGH: members of a population differ in this
    float. May be given more than once. In a grid a range ends with its number of values, LOW..HIGH:8."""
    population: int | None = None
    """Points of the varied fields; without it, all combinations of a grid."""
    sampling: Literal["grid", "random", "sobol"] | None = None
    """How points are placed: by default a grid, or sobol if --population is given."""
    keep: str | None = None
    """Members that get run folders of their own at the end: best (default), all or every:K."""
    group: int | None = None
    """Members of a population that run side by side; by default as many as the processor's cache is likely to hold."""
    devices: int | None = None
    """Devices, e.g. GPUs, over which the members of a population are divided evenly; by default 1, on a CPU as many as
    there are processors, or as divide the members evenly. Without --seeds or --vary, over which the environments of
    the agent are."""
    thin: int | None = None
    """Iterations that a row of a member's curve stands for; by default as few as leave a curve 2,000 rows."""
    coordinator: str | None = None
    """HOST:PORT of process 0, to train with the devices of several processes; or auto, as SLURM or Open MPI tell. Give
    every process the same command, but for its --process-id."""
    num_processes: int | None = None
    """How many processes train together."""
    process_id: int | None = None
    """Which one this is, from 0 on; process 0 reports and writes the run folder."""
    on: str | None = None
    """Cluster whose nodes train the members of a population: ray://HOST:PORT, ray:auto, or ray:local=2 for two nodes on
    this machine, to try it."""
    ship: bool = False
    """Send this package's code to the machines of the cluster, where other code would be refused."""
    out: Path | None = None
    """Run folder to create; by default a name under runs/ made of the run's settings, numbered if it exists."""
    checkpoint_every: int | None = None
    """Iterations between checkpoints; without it one is written every half minute. One is always written at the end and
    when interrupted."""
    evaluate_every: int | None = None
    """Environment steps between greedy evaluations, listed in evaluations.csv; the best weights are kept in
    best.safetensors. Training itself stays the same."""
    evaluate_episodes: int | None = None
    """Episodes of such an evaluation; 16 unless given."""
    stop_at: float | None = None
    """End as soon as this return is reached: by the mean of an evaluation or, without --evaluate-every, of the last ten
    iterations."""
    track: tyro.conf.UseAppendAction[tuple[Literal["tensorboard", "wandb", "mlflow"], ...]] = ()
    """Also give metrics to this tracker while training; it writes into the run folder. May be given more than once."""
    online: bool = False
    """Let W&B upload, with WANDB_API_KEY from the environment or .env; otherwise its runs stay on this machine."""
    threads: int = 1
    """CPU threads for XLA, OpenMP and torch alike; small networks are fastest with 1."""
    compile_cache: Literal["off"] | Path | None = None
    """Folder in which compiled programs are kept for later trainings; by default programs/ in ~/.cache/benchback, or in
    BENCHBACK_CACHE. off: compile afresh."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print one JSON object per line instead of a progress bar."""


@dataclass(frozen=True)
class EvalFlags:
    """Play a trained agent greedily and print the returns it reaches."""

    episodes: int = 32
    """Episodes, each in an environment of its own."""
    seed: int = 1
    """Seed of the environments."""
    best: bool = False
    """The best weights of the evaluations while it trained, instead of the last ones; as RUN/best.safetensors."""
    threads: int = 1
    """CPU threads."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class PlayFlags:
    """Make a video of a trained agent that plays greedily; no screen is needed."""

    out: Path | None = None
    """Video to write, .mp4 or .gif; must not exist. By default play.mp4 in the run folder."""
    episodes: int = 1
    """Episodes to show, one after another."""
    max_steps: int = 1000
    """Frames of the whole video at most."""
    seed: int = 1
    """Seed of the environment."""
    fps: float | None = None
    """Frames per second; by default as fast as the environment is meant to be seen."""
    best: bool = False
    """The best weights of the evaluations while it trained, instead of the last ones; as RUN/best.safetensors."""
    threads: int = 1
    """CPU threads."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def train(arguments: list[str]) -> int:
    from benchback import registry
    from benchback.cli import parallel, populations

    named, arguments = leading(arguments)
    fields: dict[str, Any] = {"algorithm": registry.DEFAULT_ALGORITHM if named is None else named}
    origin = None
    if resumed := value_of("--resume", arguments):
        origin = populations.opened(resumed)
        fields = origin.checkpoint.run | (
            {"mode": "best", "gradients": "framework"} if value_of("--backend", arguments) else {}
        )
        if named not in (None, fields["algorithm"]):
            raise InputError(f"{resumed} is a run of {fields['algorithm']}, not of {named}; leave {named} out")
    fields = with_config(fields, value_of("--config", arguments), fields["algorithm"] if origin else named)
    limit_threads_early(arguments)
    default = TrainFlags(run=Run.from_dict(with_imports(fields, arguments)))
    flags_type = TrainFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"train {fields['algorithm']}", default)
    asked = populations.asked_for(flags, origin)
    limit_threads(flags.threads)
    keep_programs(flags.compile_cache)
    allow_precision(flags.run)
    tell_notes(flags.run.env)
    check_on(flags, asked is not None)
    joined = parallel.join(flags)
    if asked is not None:
        asked = parallel.on_all(asked, joined) if joined else populations.over_processors(asked, flags)
    if joined and not joined.leads:
        return parallel.follow(flags, asked, origin, joined)
    if asked is not None:
        return populations.run_population(flags, asked, origin, joined)
    return run_training(flags, origin, joined)


def check_on(flags: TrainFlags, members: bool) -> None:
    """Raise an InputError if what the flags ask for is not for a cluster."""
    if flags.on is None:
        if flags.ship:
            raise InputError("--ship sends code to a cluster; add --on")
        return
    if not members:
        raise InputError("--on divides the members of a population over nodes; give --seeds N or --vary FIELD=A,B too")
    for name in ("devices", "coordinator"):
        if getattr(flags, name) is not None:
            raise InputError(f"--{name} is about processes of your own; with --on a node uses all that it has")


def run_training(flags: TrainFlags, origin: Any, joined: "Joined | None") -> int:
    """Train as the flags say and show progress. When interrupted, it ends after the current call."""
    from benchback.cli.parallel import agent_trainer, announcing
    from benchback.tools.track.live import tracking
    from benchback.training.monitor import Diverged
    from benchback.training.run_dir import train_run

    done = origin.checkpoint.iteration if origin else 0
    interrupted = on_interrupt()
    try:
        with (
            reporter(flags.run, done, flags.json) as report,
            tracking(flags.run, flags.track, flags.online, report.warn) as track,
            announcing(agent_trainer(flags, joined), joined) as trainer,
        ):
            finished = train_run(
                flags.run,
                trainer=trainer,
                out=flags.out,
                origin=(origin.path, origin.checkpoint) if origin else None,
                checkpoint_every=flags.checkpoint_every,
                monitor=monitor_of(flags, origin),
                on_begin=track.begin,
                on_rows=each(report, track.log),
                on_evaluation=each(report.evaluated, track.evaluated),
                asked_to_stop=interrupted,
            )
    except Diverged as diverged:
        if flags.json:
            print(json.dumps({"event": "diverged", "iteration": diverged.iteration, "saved": diverged.saved}))
        fail(str(diverged), 1)
    report.finish(finished)
    return 130 if finished.interrupted else 0


def monitor_of(flags: TrainFlags, origin: Any) -> "Monitor | None":
    """What to watch while training, as it was begun where flags say nothing; None if none of them does."""
    from benchback.training.monitor import Monitor
    from benchback.training.run_dir import stored_monitor

    names = ("evaluate_every", "evaluate_episodes", "stop_at")
    given = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    before = stored_monitor(origin.path) if origin and origin.path else Monitor()
    monitor = replace(before, **given)
    if "evaluate_episodes" in given and monitor.evaluate_every is None:
        raise InputError("--evaluate-episodes has nothing to evaluate; give --evaluate-every STEPS too")
    return monitor if given else None


def allow_precision(run: Any) -> None:
    """Let JAX compute in 64 bits where the run asks for it; an own environment may have imported it already."""
    if run.config.dtype == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"
        if jax := sys.modules.get("jax"):
            jax.config.update("jax_enable_x64", True)


def evaluate(arguments: list[str]) -> int:
    from benchback.cli.episodes import print_evaluation
    from benchback.population.folder import open_any
    from benchback.training.evaluate import evaluate

    path, flags = parse_named(EvalFlags, arguments, "eval", "RUN", "a run folder")
    if flags.episodes < 1:
        raise InputError(f"episodes={flags.episodes} must be at least 1")
    check_seed(flags.seed)
    limit_threads(flags.threads)
    _, _, checkpoint = open_any(path, best=flags.best)
    run = Run.from_dict(checkpoint.run)
    allow_precision(run)
    returns = evaluate(run, checkpoint.weights, flags.episodes, flags.seed)
    print_evaluation(run, checkpoint.iteration, returns, flags.json)
    return 0


def play(arguments: list[str]) -> int:
    from benchback.cli.episodes import print_episodes
    from benchback.cli.tables import measuring
    from benchback.population.folder import open_any
    from benchback.tools.play import record

    path, flags = parse_named(PlayFlags, arguments, "play", "RUN", "a run folder")
    for name in ("episodes", "max_steps"):
        if getattr(flags, name) < 1:
            raise InputError(f"{name}={getattr(flags, name)} must be at least 1")
    check_seed(flags.seed)
    if flags.fps is not None and not 0 < flags.fps <= 1000:
        raise InputError(f"fps={flags.fps:g} must be greater than 0 and at most 1000")
    limit_threads(flags.threads)
    folder, member, checkpoint = open_any(path, best=flags.best)
    ending = "-best" if flags.best else "" if member is None else f"-{member}"
    run, out = Run.from_dict(checkpoint.run), flags.out or folder / f"play{ending}.mp4"
    allow_precision(run)
    options = {"episodes": flags.episodes, "max_steps": flags.max_steps, "seed": flags.seed}
    with measuring(0.1) as progress:
        shown = record(run, checkpoint.weights, out, frames_per_s=flags.fps, progress=progress, **options)
    print_episodes(run, checkpoint.iteration, shown, out, flags.json)
    return 0
