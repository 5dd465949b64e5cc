"""Verbs about one agent: train it, evaluate it, look at it play."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchback.cli.arguments import keep_programs, limit_threads, on_interrupt, parse, positional, value_of
from benchback.errors import InputError

Config = TypeVar("Config")


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
    return run_training(flags, checkpoint)


def run_training(flags: TrainFlags, checkpoint: Any) -> int:
    """Train as the flags say and show how it goes. Interrupted, it ends after the current call."""
    from benchback.cli.show_training import reporter
    from benchback.run_dir import train_run

    limit_threads(flags.threads)
    if flags.compile_cache:
        keep_programs(flags.compile_cache)
    allow_precision(flags.run)
    done = checkpoint.iteration if checkpoint else 0
    interrupted = on_interrupt()
    with reporter(flags.run, done, flags.json) as report:
        finished = train_run(
            flags.run,
            out=flags.out,
            origin=(flags.resume, checkpoint) if flags.resume and checkpoint else None,
            checkpoint_every=flags.checkpoint_every,
            on_rows=report,
            asked_to_stop=interrupted,
        )
    report.finish(finished.run_dir, finished.interrupted)
    return 130 if finished.interrupted else 0


def allow_precision(run: Any) -> None:
    """Let JAX compute in 64 bits where the run asks for it, before it is imported."""
    if run.config.dtype == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"


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
