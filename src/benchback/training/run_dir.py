"""A run on disk: `config.yaml` (resolved), `metrics.csv` (a row per iteration), `checkpoint.safetensors`.

Where an agent is evaluated while it trains: `evaluations.csv`, `best.safetensors`, and `monitor.yaml` with what was
asked for. `train_run` trains into such a directory, from the start or from a checkpoint. Rows are flushed as soon as
they are known and checkpoints are replaced atomically: a crash loses at most the iterations since the last one.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from benchback.agent import Weights
from benchback.errors import InputError
from benchback.registry import stored_gradients
from benchback.training import Progress, checkpoint, train
from benchback.training.checkpoint import Checkpoint, CheckpointError
from benchback.training.monitor import Diverged, Monitor, Watch, first_not_finite, weights_not_finite
from benchback.training.outputs import check_writable
from benchback.training.rows import append_rows, read_rows, rewind_rows
from benchback.training.run import Run

POPULATION = "population.yaml"
"""File that tells a population's directory from that of a single run."""


@dataclass(frozen=True)
class RunDir:
    """A run on disk."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations.csv"

    @property
    def best(self) -> Path:
        """Weights of the best evaluation, without replay, environment and random stream."""
        return self.path / "best.safetensors"

    @property
    def monitor(self) -> Path:
        return self.path / "monitor.yaml"

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to the metrics and flush them."""
        append_rows(self.metrics, rows)

    def rows(self) -> list[dict[str, str]]:
        """The metrics written so far."""
        return read_rows(self.metrics)

    def rewind(self, iteration: int) -> None:
        """Delete rows after `iteration`: a resumed run computes them again."""
        rewind_rows(self.metrics, iteration)
        rewind_rows(self.evaluations, iteration)


def create(path: Path, run: Run) -> RunDir:
    """Create a run directory; InputError if the path exists."""
    check_free(path)
    path.mkdir(parents=True)
    folder = RunDir(path)
    folder.config.write_text(yaml.safe_dump(run.to_dict(), sort_keys=False))
    return folder


def check_free(path: Path) -> None:
    """Raise an InputError if the path exists, or cannot be created."""
    if os.path.lexists(path):
        raise InputError(f"{path} exists; choose another --out, or continue it with --resume {path}")
    check_writable(path)


def open_run(path: Path) -> tuple[RunDir, Checkpoint]:
    """The run directory at `path` and its checkpoint; `path` may be a checkpoint in it, such as `best.safetensors`."""
    file = path.suffix == ".safetensors" and path.is_file()
    folder = RunDir(path.parent if file else path)
    if not folder.path.is_dir():
        raise InputError(f"{path} is not a run folder; give one that `benchback train` wrote")
    if (folder.path / POPULATION).exists():
        raise InputError(f"{folder.path} is a population of many agents; name one of them, e.g. {folder.path}#0")
    found = checkpoint.read(path if file else folder.checkpoint)
    return folder, replace(found, run=found.run | {"gradients": stored_gradients(found.run)})


def best_of(path: Path) -> Path:
    """The best checkpoint of a run folder; CheckpointError if nothing was evaluated while it trained."""
    if not RunDir(path).best.is_file():
        raise CheckpointError(f"{path} has no best.safetensors; train with --evaluate-every STEPS to get one")
    return RunDir(path).best


def stored_monitor(path: Path) -> Monitor:
    """What a run folder says is watched; nothing if it does not say."""
    file = RunDir(path).monitor
    try:
        return Monitor(**read_config(file)) if file.exists() else Monitor()
    except TypeError as error:
        raise InputError(f"{file}: damaged ({error}); delete it and give its options again") from None


def reopen(path: Path, at: Checkpoint) -> tuple[RunDir, float]:
    """The directory of a run that resumes from `at`, and the seconds it had run by then."""
    folder = RunDir(path)
    return folder, rewound(folder, at.iteration)


def rewound(folder: RunDir, iteration: int) -> float:
    """Rewinds the directory to `iteration` and returns the seconds the run had taken by then."""
    folder.rewind(iteration)
    rows = folder.rows()
    return float(rows[-1]["seconds"]) if rows else 0.0


def save(folder: RunDir, progress: Progress, run: Run) -> None:
    """Replace the directory's checkpoint by the current state of training."""
    checkpoint.write(folder.checkpoint, Checkpoint(progress.export(), progress.iteration, run.to_dict()))


def free_path(path: Path) -> Path:
    """The path if nothing is there, else the first of `path-2`, `path-3` and so on that is free."""
    names = (path.name if i == 1 else f"{path.name}-{i}" for i in count(1))
    return next(found for name in names if not (found := path.with_name(name)).exists())


def default_path(run: Run) -> Path:
    """runs/<algorithm>-<backend>-<env>-<mode>-<unit>-seed<n>."""
    env = re.sub(r"[^\w.-]+", "-", run.env)
    return Path("runs") / f"{run.algorithm}-{run.backend}-{env}-{run.compile_mode}-{run.unit}-seed{run.seed}"


CHECKPOINT_EVERY_S = 30.0
"""A checkpoint includes the replay, which may be hundreds of megabytes: writing it every few iterations would take
longer than the iterations."""


Trainer = Callable[[Run, Checkpoint | None], Iterator[Progress]]
"""A function like `training.train`."""


@dataclass(frozen=True)
class Finished:
    """Result of a training."""

    run_dir: RunDir
    iteration: int
    """Completed iterations."""
    interrupted: bool
    reached: float | None = None
    """The return that ended it early, at least the one that was asked for."""


def train_run(
    run: Run,
    *,
    trainer: Trainer | None = None,
    out: Path | None = None,
    origin: tuple[Path | None, Checkpoint] | None = None,
    checkpoint_every: int | None = None,
    monitor: Monitor | None = None,
    on_begin: Callable[[RunDir], None] = lambda place: None,
    on_rows: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
    on_evaluation: Callable[[dict[str, Any]], None] = lambda row: None,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Finished:
    """Train into a run directory: a new one, or that of `origin` if it has one and its checkpoint is of the same run.

    Metrics are appended after every program call and passed to `on_rows`; a checkpoint is written every
    `checkpoint_every` iterations (every 30 s if not given), at the end, and when asked to stop. `trainer` trains it,
    by default `training.train`. Without a `monitor`, a resumed run has the one it was begun with. Raises Diverged if a
    loss or a weight is no longer finite.
    """
    check_cadence(checkpoint_every)
    training, place, elapsed_s = _begin(run, trainer or train, out, origin)
    watch = watch_over(run, place, monitor)
    on_begin(place)
    done = origin[1].iteration if origin else 0
    saved, saved_s, started = done, time.perf_counter(), time.perf_counter() - elapsed_s
    for progress in training:
        rows = numbered(progress, run, time.perf_counter() - started)
        place.append(rows)
        on_rows(rows)
        if found := first_not_finite(run, rows):
            raise _diverged(run, place, *found, saved)
        export = _finite_export(run, place, progress, saved)
        paused = time.perf_counter()
        if evaluation := watch.after(rows, export):
            on_evaluation(evaluation)
        started += time.perf_counter() - paused  # seconds are those of training
        done, stopping = progress.iteration, asked_to_stop()
        ending = stopping or watch.reached is not None or done >= run.config.num_iterations
        if ending or is_due(checkpoint_every, done - saved, time.perf_counter() - saved_s):
            checkpoint.write(place.checkpoint, Checkpoint(export(), done, run.to_dict()))
            saved, saved_s = done, time.perf_counter()
        if ending:
            break
    stopped_early = done < run.config.num_iterations and watch.reached is None
    return Finished(place, done, interrupted=stopped_early, reached=watch.reached)


def watch_over(run: Run, place: RunDir, monitor: Monitor | None) -> Watch:
    """The watch over a training, noted in its directory; without a `monitor`, the one that is noted there."""
    wanted = stored_monitor(place.path) if monitor is None else monitor
    if wanted != stored_monitor(place.path):
        checkpoint.write_atomically(place.monitor, yaml.safe_dump(asdict(wanted), sort_keys=False))
    return Watch(run, wanted, place.evaluations, place.best, place.metrics)


def _finite_export(run: Run, place: RunDir, progress: Progress, saved: int) -> Callable[[], Weights]:
    """The export of a program call, computed once; it raises Diverged if the networks are no longer finite."""

    @cache
    def export() -> Weights:
        weights = progress.export()
        if name := weights_not_finite(weights):
            raise _diverged(run, place, progress.iteration, name, saved)
        return weights

    return export


def _diverged(run: Run, place: RunDir, iteration: int, what: str, saved: int) -> Diverged:
    return Diverged(run, iteration, what, place.path, saved if place.checkpoint.exists() else 0)


def check_cadence(checkpoint_every: int | None) -> None:
    """Raise an InputError unless a checkpoint can be written every so many iterations."""
    if checkpoint_every is not None and checkpoint_every < 1:
        raise InputError(f"checkpoint_every={checkpoint_every} must be at least 1")


def is_due(checkpoint_every: int | None, iterations: int, seconds: float) -> bool:
    """Whether a checkpoint is due, so many iterations and seconds after the last one."""
    return seconds >= CHECKPOINT_EVERY_S if checkpoint_every is None else iterations >= checkpoint_every


def _begin(
    run: Run, trainer: Trainer, out: Path | None, origin: tuple[Path | None, Checkpoint] | None
) -> tuple[Iterator[Progress], RunDir, float]:
    """The training iterator, its directory, and the seconds it has run before."""
    path, at = origin or (None, None)
    if path is not None and at is not None and run.to_dict() == at.run:
        training = trainer(run, at)
        return training, *reopen(path, at)
    fresh = out or free_path(default_path(run))
    check_free(fresh)
    training = trainer(run, at)
    return training, create(fresh, run), 0.0


def numbered(progress: Progress, run: Run, seconds: float) -> list[dict[str, Any]]:
    """The rows of one call with iteration, environment steps and elapsed seconds added."""
    first = progress.iteration - len(progress.rows) + 1
    return [
        {"iteration": i, "env_steps": i * run.config.batch_size, "seconds": round(seconds, 4)}
        | {"compiles": progress.compiles if i == first else 0}
        | row
        for i, row in enumerate(progress.rows, first)
    ]


MOST_BYTES = 32 * 1024
"""Maximum size of a YAML file: twenty times a complete configuration, and parsed in less than a second."""
DEEPEST = 20


STUMBLES = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""Exceptions of the YAML library for deep nesting, list keys, invalid dates and mismatched tags."""


class _Plain(yaml.SafeLoader):
    """Safe loader that rejects duplicate keys, deep nesting and aliases (a few lines of which expand to gigabytes)."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, "aliases are not read; write the value out", mark)
        if self.depth == DEEPEST:
            raise yaml.MarkedYAMLError(None, None, f"nested more than {DEEPEST} deep", mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _mapping(loader: _Plain, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in found:
            raise InputError(f"{str(key)[:60]} is given twice in line {node.start_mark.line + 1} and after; keep one")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


# YAML 1.1 takes 3e-4 for text: it wants a point and a sign. Its other floats stay, as do its integers.
_Plain.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z"), list("-+.0123456789")
)
_Plain.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; rejects tags that run code, duplicate keys, aliases and large files."""
    try:
        content = yaml.load(_text(path), _Plain)
    except OSError as error:
        raise InputError(f"--config {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"--config {path}: not a text file; give YAML as in a run folder's config.yaml") from None
    except (yaml.YAMLError, *STUMBLES) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"--config {path}: not plain YAML ({reason or type(error).__name__})") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"--config {path}: must be a mapping of field names to values, e.g. `num_envs: 32`")
    return content


def _text(path: Path) -> str:
    if not path.exists():
        raise InputError(f"--config {path}: cannot be read (No such file or directory)")
    if not path.is_file():
        raise InputError(f"--config {path}: cannot be read (not a file)")
    with path.open(encoding="utf-8") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise InputError(f"--config {path}: larger than {MOST_BYTES} bytes; give YAML as in a run folder's config.yaml")
    return text
