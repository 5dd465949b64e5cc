"""Verbs about one agent: train it, evaluate it, look at it play."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchback.cli.arguments import keep_programs, limit_threads, on_interrupt, parse, positional, value_of
from benchback.errors import InputError

Config = TypeVar("Config")

CHECKPOINT_EVERY_S = 30.0
"""A checkpoint holds replay, which may be hundreds of megabytes: written every few iterations it would cost more than
they do."""


@dataclass(frozen=True)
class TrainFlags(Generic[Config]):
    """Train one agent and write config.yaml, metrics.csv and checkpoint.safetensors to a run folder.

    The algorithm comes first: `benchback train td3 --help` shows the options of another.
    """

    run: Config
    config: Path | None = None
    """YAML file with fields of the run (as config.yaml in a run folder); flags override it."""
    resume: Path | None = None
    """Continue the run in this folder. With other flags: start a new run (--out) from its checkpoint."""
    out: Path | None = None
    """Run folder to create; by default a name under runs/ made of the run's settings."""
    checkpoint_every: int | None = None
    """Iterations between checkpoints; without it one is written every half minute. One is always written at the end and
    when interrupted."""
    threads: int = 1
    """CPU threads for XLA, OpenMP and torch alike; small networks are fastest with 1."""
    compile_cache: Path | None = None
    """Folder in which compiled programs are kept between processes; without it every process compiles afresh."""
    json: bool = False
    """Print one JSON object per line instead of a progress bar."""


@dataclass(frozen=True)
class EvalFlags:
    """Play a trained agent greedily and print the returns it reaches."""

    episodes: int = 32
    """Episodes, each in an environment of its own."""
    seed: int = 1
    """Seed of the environments."""
    threads: int = 1
    """CPU threads."""
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
    threads: int = 1
    """CPU threads."""
    json: bool = False
    """Print JSON."""


def train(arguments: list[str]) -> int:
    from benchback import registry, run_dir
    from benchback.run import Run

    algorithm = "ppo"
    if arguments and not arguments[0].startswith("-"):
        algorithm, arguments = arguments[0], arguments[1:]
    fields: dict[str, Any] = {"algorithm": algorithm}
    checkpoint = None
    if resumed := value_of("--resume", arguments):
        _, checkpoint = run_dir.open_run(Path(resumed))
        fields = checkpoint.run | ({"mode": "best"} if value_of("--backend", arguments) else {})
    if given := value_of("--config", arguments):
        fields |= run_dir.read_config(Path(given))
    default = TrainFlags(run=Run.from_dict(fields))
    flags_type = TrainFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"train {algorithm}", default)
    if flags.checkpoint_every is not None and flags.checkpoint_every < 1:
        raise InputError(f"checkpoint_every={flags.checkpoint_every} must be at least 1")
    return run_training(flags, checkpoint)


def run_training(flags: TrainFlags, checkpoint: Any) -> int:
    """Drive the training loop; show and store what it yields. Interrupted, it ends after the current call."""
    from benchback import run_dir
    from benchback.cli.show_training import reporter
    from benchback.train import train

    run = flags.run
    limit_threads(flags.threads)
    if flags.compile_cache:
        keep_programs(flags.compile_cache)
    allow_precision(run)
    if checkpoint and flags.resume and run.to_dict() == checkpoint.run:
        training = train(run, checkpoint)
        place, elapsed_s = run_dir.reopen(flags.resume, checkpoint)
    else:
        path = flags.out or run_dir.default_path(run)
        run_dir.check_free(path)
        training = train(run, checkpoint)
        place, elapsed_s = run_dir.create(path, run), 0.0
    done = checkpoint.iteration if checkpoint else 0
    saved, saved_s = done, time.perf_counter()
    interrupted = on_interrupt()
    started = time.perf_counter() - elapsed_s
    with reporter(run, done, flags.json) as report:
        for progress in training:
            seconds = time.perf_counter() - started
            rows = numbered(progress, run, seconds)
            place.append(rows)
            report(rows)
            done = progress.iteration
            if flags.checkpoint_every is None:
                due = time.perf_counter() - saved_s >= CHECKPOINT_EVERY_S
            else:
                due = done - saved >= flags.checkpoint_every
            if due or interrupted() or done >= run.config.num_iterations:
                run_dir.save(place, progress, run)
                saved, saved_s = done, time.perf_counter()
            if interrupted():
                break
    report.finish(place, interrupted())
    return 130 if interrupted() else 0


def allow_precision(run: Any) -> None:
    """Let JAX compute in 64 bits where the run asks for it, before it is imported."""
    if run.config.dtype == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"


def numbered(progress: Any, run: Any, seconds: float) -> list[dict[str, Any]]:
    """The rows of one call with the iteration, environment steps and seconds they end at."""
    first = progress.iteration - len(progress.rows) + 1
    return [
        {"iteration": i, "env_steps": i * run.config.batch_size, "seconds": round(seconds, 4)}
        | {"compiles": progress.compiles if i == first else 0}
        | row
        for i, row in enumerate(progress.rows, first)
    ]


def evaluate(arguments: list[str]) -> int:
    from benchback import run_dir
    from benchback.evaluate import evaluate
    from benchback.run import Run

    if arguments and arguments[0] in ("-h", "--help"):
        parse(EvalFlags, arguments, "eval RUN")
    path, rest = positional(arguments, "eval", "a run folder")
    flags = parse(EvalFlags, rest, "eval RUN")
    if flags.episodes < 1:
        raise InputError(f"episodes={flags.episodes} must be at least 1")
    limit_threads(flags.threads)
    _, checkpoint = run_dir.open_run(Path(path))
    run = Run.from_dict(checkpoint.run)
    allow_precision(run)
    returns = evaluate(run, checkpoint.weights, flags.episodes, flags.seed)
    from benchback.cli.show_training import print_evaluation

    print_evaluation(run, checkpoint.iteration, returns, flags.json)
    return 0


def play(arguments: list[str]) -> int:
    from benchback import run_dir
    from benchback.cli.show_training import print_episodes
    from benchback.cli.tables import measuring
    from benchback.run import Run
    from benchback.tools.play import record

    if arguments and arguments[0] in ("-h", "--help"):
        parse(PlayFlags, arguments, "play RUN")
    path, rest = positional(arguments, "play", "a run folder")
    flags = parse(PlayFlags, rest, "play RUN")
    for name in ("episodes", "max_steps"):
        if getattr(flags, name) < 1:
            raise InputError(f"{name}={getattr(flags, name)} must be at least 1")
    if flags.fps is not None and not 0 < flags.fps <= 1000:
        raise InputError(f"fps={flags.fps:g} must be greater than 0 and at most 1000")
    limit_threads(flags.threads)
    _, checkpoint = run_dir.open_run(Path(path))
    run, out = Run.from_dict(checkpoint.run), flags.out or Path(path) / "play.mp4"
    allow_precision(run)
    options = {"episodes": flags.episodes, "max_steps": flags.max_steps, "seed": flags.seed}
    with measuring(0.1) as progress:
        shown = record(run, checkpoint.weights, out, frames_per_s=flags.fps, progress=progress, **options)
    print_episodes(run, checkpoint.iteration, shown, out, flags.json)
    return 0
