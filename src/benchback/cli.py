"""The command line: verbs only. Parses, calls, prints; frameworks are imported by the verbs that need them."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from benchback import __version__
from benchback.errors import InputError

USAGE = """\
benchback: which neural-network backend should I build my reinforcement-learning project on?

usage: benchback VERB [options]        benchback VERB --help for the options of one

  train ALGORITHM    train one agent; writes a run folder (also: train --resume RUN)
  eval RUN           play a trained agent greedily and print its returns
  list               algorithms x backends x modes x units, and the environments
  parity             measure how far each backend is from a float64 oracle
  peers              the same PPO work in rejax, stable-baselines3, sbx and baselines, interleaved
  demo               PPO on CartPole in all six backends, side by side

exit codes: 0 ok, 1 a claim failed, 2 wrong usage or input, 74 input/output error, 130 interrupted
"""

Config = TypeVar("Config")


@dataclass(frozen=True)
class TrainFlags(Generic[Config]):
    """Train one agent and write config.yaml, metrics.csv and checkpoint.safetensors to a run folder."""

    run: Config
    config: Path | None = None
    """YAML file with fields of the run (as config.yaml in a run folder); flags override it."""
    resume: Path | None = None
    """Continue the run in this folder. With other flags: start a new run (--out) from its checkpoint."""
    out: Path | None = None
    """Run folder to create; by default a name under runs/ made of the run's settings."""
    checkpoint_every: int = 10
    """Iterations between checkpoints; one is always written at the end and when interrupted."""
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
class ListFlags:
    """Show algorithms, backends, modes, units and environments."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ParityFlags:
    """Measure how far each backend is from a naive float64 oracle and each mode from `none`."""

    algorithm: str = "ppo"
    """Algorithm to measure."""
    backends: tuple[str, ...] = ()
    """Backends to measure; all by default."""
    levels: tuple[str, ...] = ()
    """Levels to measure: L0 forward, L1 one step, L2 twenty, L3 update and iterations, L4 modes and units."""
    dtypes: tuple[str, ...] = ("float32", "float64")
    """Floating-point types to measure."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class DemoFlags:
    """Train PPO on CartPole in all six backends, each in a process of its own, and compare."""

    out: Path = Path("runs/demo")
    """Folder for the runs; must not exist."""
    iterations: int = 12
    """Iterations of 8192 environment steps."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class PeersFlags:
    """The same PPO work in benchback and its peers: fresh processes, interleaved in blocks, ratios with intervals."""

    quick: bool = False
    """Workload A only, few iterations, two blocks."""
    blocks: int | None = None
    """Runs of every side; 5 by default, 2 with --quick."""
    workloads: tuple[str, ...] = ()
    """A: CartPole 32 x 256, B: CartPole 4 x 128, C: Breakout-MinAtar 32 x 256; all by default."""
    sides: tuple[str, ...] = ()
    """Who to compare; all by default."""
    threads: int = 1
    """CPU threads of every side."""
    out: Path | None = None
    """File to which every measurement is appended as a JSON line; must not exist."""
    json: bool = False
    """Print JSON."""


def main() -> None:
    """Entry point; turns errors a user can mend into one line and an exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        print(__version__)
        sys.exit(0)
    try:
        from benchback.registry import choose

        verb = choose("verb", arguments[0], VERBS)
        sys.exit(VERBS[verb](arguments[1:]))
    except InputError as error:
        fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(74)
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}", 74)
    except KeyboardInterrupt:
        fail("interrupted", 130)


def fail(message: str, code: int) -> None:
    print(f"benchback: error: {message}", file=sys.stderr)
    sys.exit(code)


def parse(flags: Any, arguments: list[str], verb: str, default: Any = None) -> Any:
    """Command-line arguments as an instance of the dataclass `flags`."""
    import tyro

    options = {"prog": f"benchback {verb}", "args": arguments, "config": (tyro.conf.OmitArgPrefixes,)}
    return tyro.cli(flags, **options) if default is None else tyro.cli(flags, default=default, **options)


def positional(arguments: list[str], verb: str, what: str) -> tuple[str, list[str]]:
    """The leading positional argument and the rest."""
    if not arguments or arguments[0].startswith("-"):
        raise InputError(f"{verb} needs {what}; see benchback {verb} --help")
    return arguments[0], arguments[1:]


def limit_threads(threads: int) -> None:
    """Set the thread count of every library, before any of them is imported."""
    if threads < 1:
        raise InputError(f"threads={threads} must be at least 1")
    # NPROC is what XLA's CPU client sizes its pool by.
    for name in ("NPROC", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def keep_programs(folder: Path) -> None:
    """Let XLA and inductor keep compiled programs in `folder`, before either is imported."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.resolve() / "xla")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.resolve() / "inductor")


def train(arguments: list[str]) -> int:
    from benchback import folder, registry
    from benchback.train import Run

    algorithm = "ppo"
    if arguments and not arguments[0].startswith("-"):
        algorithm, arguments = arguments[0], arguments[1:]
    fields: dict[str, Any] = {"algorithm": algorithm}
    checkpoint = None
    if resumed := value_of("--resume", arguments):
        _, checkpoint = folder.open_run(Path(resumed))
        fields = checkpoint.run | ({"mode": "best"} if value_of("--backend", arguments) else {})
    if given := value_of("--config", arguments):
        fields |= folder.read_config(Path(given))
    default = TrainFlags(run=Run.from_dict(fields))
    flags_type = TrainFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"train {algorithm}", default)
    if flags.checkpoint_every < 1:
        raise InputError(f"checkpoint_every={flags.checkpoint_every} must be at least 1")
    return run_training(flags, checkpoint)


def value_of(option: str, arguments: list[str]) -> str | None:
    """What follows `option` on the command line, if it is there; needed before the rest can be parsed."""
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == option:
            return following
        if argument.startswith(option + "="):
            return argument.removeprefix(option + "=")
    return None


def run_training(flags: TrainFlags, checkpoint: Any) -> int:
    """Drive the training loop; show and store what it yields. Interrupted, it ends after the current call."""
    from benchback import folder
    from benchback.show import reporter
    from benchback.train import train

    run = flags.run
    limit_threads(flags.threads)
    if flags.compile_cache:
        keep_programs(flags.compile_cache)
    if run.config.dtype == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"
    if checkpoint and flags.resume and run.to_dict() == checkpoint.run:
        training = train(run, checkpoint)
        place, elapsed_s = folder.reopen(flags.resume, checkpoint)
    else:
        path = flags.out or folder.default_path(run)
        folder.check_free(path)
        training = train(run, checkpoint)
        place, elapsed_s = folder.create(path, run), 0.0
    done = checkpoint.iteration if checkpoint else 0
    saved = done
    interrupted = on_interrupt()
    started = time.perf_counter() - elapsed_s
    with reporter(run, done, flags.json) as report:
        for progress in training:
            seconds = time.perf_counter() - started
            rows = numbered(progress, run, seconds)
            place.append(rows)
            report(rows)
            done = progress.iteration
            if done - saved >= flags.checkpoint_every or interrupted() or done >= run.config.num_iterations:
                folder.save(place, progress, run)
                saved = done
            if interrupted():
                break
    report.finish(place, interrupted())
    return 130 if interrupted() else 0


def numbered(progress: Any, run: Any, seconds: float) -> list[dict[str, Any]]:
    """The rows of one call with the iteration, environment steps and seconds they end at."""
    first = progress.iteration - len(progress.rows) + 1
    return [
        {"iteration": i, "env_steps": i * run.config.batch_size, "seconds": round(seconds, 4)}
        | {"compiles": progress.compiles if i == first else 0}
        | row
        for i, row in enumerate(progress.rows, first)
    ]


def on_interrupt() -> Callable[[], bool]:
    """Whether the user has asked to stop; a second request stops at once."""
    asked = []

    def ask(signum: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signum)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return lambda: bool(asked)


def evaluate(arguments: list[str]) -> int:
    from benchback import folder
    from benchback.train import Run, evaluate

    if arguments and arguments[0] in ("-h", "--help"):
        parse(EvalFlags, arguments, "eval RUN")
    path, rest = positional(arguments, "eval", "a run folder")
    flags = parse(EvalFlags, rest, "eval RUN")
    if flags.episodes < 1:
        raise InputError(f"episodes={flags.episodes} must be at least 1")
    limit_threads(flags.threads)
    _, checkpoint = folder.open_run(Path(path))
    run = Run.from_dict(checkpoint.run)
    if run.config.dtype == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"
    returns = evaluate(run, checkpoint.weights, flags.episodes, flags.seed)
    from benchback.show import print_evaluation

    print_evaluation(run, checkpoint.iteration, returns, flags.json)
    return 0


def list_all(arguments: list[str]) -> int:
    from benchback.show import print_matrix

    print_matrix(parse(ListFlags, arguments, "list").json)
    return 0


def parity(arguments: list[str]) -> int:
    from benchback import registry
    from benchback.parity import LEVELS, measure
    from benchback.show import print_parity

    flags = parse(ParityFlags, arguments, "parity")
    registry.choose("algorithm", flags.algorithm, registry.ALGORITHMS)
    for name in flags.backends:
        registry.choose("backend", name, registry.BACKENDS)
    for level in flags.levels:
        registry.choose("level", level, LEVELS)
    for dtype in flags.dtypes:
        registry.choose("dtype", dtype, ("float32", "float64"))
    limit_threads(1)
    rows = measure(flags.algorithm, flags.backends or tuple(registry.BACKENDS), flags.dtypes, flags.levels or LEVELS)
    return 0 if print_parity(rows, flags.json) else 1


def demo(arguments: list[str]) -> int:
    from benchback.demo import compare_backends
    from benchback.show import print_demo

    flags = parse(DemoFlags, arguments, "demo")
    if flags.out.exists():
        raise InputError(f"{flags.out} exists; choose another --out or remove it")
    if flags.iterations < 3:
        raise InputError(f"iterations={flags.iterations} must be at least 3 to tell compiling from training")
    outcome = compare_backends(flags.out, flags.iterations)
    print_demo(outcome, flags.out, flags.json)
    return 0 if all(row["parity"] == "pass" and not row["error"] for row in outcome) else 1


def peers(arguments: list[str]) -> int:
    from benchback import peers
    from benchback.show import measuring, print_peers

    flags = parse(PeersFlags, arguments, "peers")
    plan = peers.plan_for(
        quick=flags.quick, blocks=flags.blocks, workloads=flags.workloads, sides=flags.sides, threads=flags.threads
    )
    with measuring() as progress:
        rows = peers.compare(plan, flags.out, progress)
    print_peers(peers.summarise(rows), flags.json)
    return 0


VERBS = {"train": train, "eval": evaluate, "list": list_all, "parity": parity, "peers": peers, "demo": demo}
