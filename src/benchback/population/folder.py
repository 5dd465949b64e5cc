"""A population on disk: a run folder whose checkpoint holds all members, with the curves of each member beside it.

`population.yaml` says what was asked for and which seed and values each member has. `curves/part-*.parquet` has a row
for each iteration and member, in a long training for each bucket of iterations and member; a part is written whole or
not at all, and never spans a checkpoint, so that resuming drops whole parts. `curves/rest-*.parquet` has the sums of a
bucket that a checkpoint divides. `members/NNNN/` are run folders of kept members. `RUN#17` names a member where a run
folder is read.
"""

import io
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchback.errors import InputError
from benchback.population.spec import Members, Population, Value
from benchback.population.summary import RANKED_BY
from benchback.population.thinning import COUNT, Buckets
from benchback.training import checkpoint, run_dir
from benchback.training.checkpoint import Checkpoint, CheckpointError, write_atomically
from benchback.training.monitor import learning_metrics
from benchback.training.run import Run
from benchback.training.run_dir import RunDir

FLUSH_EVERY_S = 10.0
"""Seconds between two parts: a part each second would make thousands of files of a long training."""
MOST_ROWS = 2**18
"""Rows that wait in memory at most: ten megabytes."""
SEARCH = "search/"
"""Prefix of what a search keeps of each member beside its state."""
PLACES = ("iteration", "member", "iterations")
"""Columns of the curves that are no metrics."""
READ_TOGETHER = 64
"""Members whose curves are read at once: all of a large population would not fit in memory."""


@dataclass(frozen=True)
class PopulationDir(RunDir):
    """A population on disk."""

    @property
    def population(self) -> Path:
        return self.path / run_dir.POPULATION

    @property
    def curves(self) -> Path:
        return self.path / "curves"

    def member(self, index: int) -> RunDir:
        """The run folder of a kept member."""
        return RunDir(self.path / "members" / f"{index:04d}")

    def parts(self) -> dict[int, Path]:
        """First iteration -> the part of the curves that begins with it."""
        return {int(path.stem.removeprefix("part-")): path for path in sorted(self.curves.glob("part-*.parquet"))}

    def rest(self, iteration: int) -> Path:
        """The sums of the bucket that was open after `iteration`."""
        return self.curves / f"rest-{iteration:08d}.parquet"

    def keep_rest(self, iteration: int) -> None:
        """Delete the sums of buckets that were open after other iterations."""
        for path in self.curves.glob("rest-*.parquet"):
            if path != self.rest(iteration):
                path.unlink()

    def rewind(self, iteration: int) -> None:
        """Delete rows and parts after `iteration`, the row of a bucket it divides, and unfinished drafts."""
        super().rewind(iteration)
        for draft in (*self.curves.glob(".part-*"), *self.curves.glob(".rest-*")):
            draft.unlink()
        # A bucket that is open after `iteration` has a part of its own, if any, which begins within it.
        if self.rest(iteration).exists():
            iteration -= iteration % _read(self.population)[0].iterations_per_row
        for first, path in self.parts().items():
            if first > iteration:
                path.unlink()


def create(path: Path, run: Run, asked: Population, members: Members) -> PopulationDir:
    """Create the folder of a population; InputError if the path exists."""
    folder = PopulationDir(run_dir.create(path, run).path)
    vary = {name: x if isinstance(x, str) else [float(y) for y in x] for name, x in asked.vary.items()}
    fields = asdict(replace(asked, vary={})) | {"vary": vary}
    fields["members"] = {"seed": list(members.seed), "values": {name: list(x) for name, x in members.values.items()}}
    write_atomically(folder.population, yaml.safe_dump(fields, sort_keys=False, default_flow_style=None, width=120))
    return folder


@dataclass(frozen=True)
class Stored:
    """A population as it was left."""

    folder: PopulationDir
    asked: Population
    members: Members
    checkpoint: Checkpoint
    """Its weights have a member axis in front."""


def open_population(path: Path) -> Stored:
    """The population at `path`."""
    folder = PopulationDir(path)
    asked, members = _read(folder.population)
    stacked = checkpoint.read(folder.checkpoint)
    if any(x.shape[:1] != (len(members),) for x in stacked.weights.values()):
        raise CheckpointError(f"{folder.checkpoint}: not of the {len(members)} members in {run_dir.POPULATION}")
    return Stored(folder, asked, members, stacked)


def _value(x: Any) -> Value:
    return tuple(map(float, x)) if isinstance(x, list) else float(x)


def _read(path: Path) -> tuple[Population, Members]:
    try:
        given = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        listed = given.pop("members")
        values = {str(name): tuple(map(_value, x)) for name, x in listed["values"].items()}
        return Population(**given), Members(tuple(map(int, listed["seed"])), values)
    except (yaml.YAMLError, OSError, *run_dir.STUMBLES) as error:
        raise InputError(f"{path}: damaged ({' '.join(str(error).split())[:100]}); use an earlier copy") from None


def is_population(path: Path) -> bool:
    """Whether a population was trained into the folder."""
    return (path / run_dir.POPULATION).exists()


def open_any(name: str, *, best: bool = False) -> tuple[Path, int | None, Checkpoint]:
    """The folder, the member if one is named, and the checkpoint of the single agent that `RUN` or `RUN#member` is.

    A checkpoint file may be named instead; `best` asks for the one that a run kept of its evaluations.
    """
    path, hash_sign, index = name.rpartition("#")
    if best:
        name = str(run_dir.best_of(Path(name)))
    if best or not hash_sign or Path(name).is_dir():
        folder, found = run_dir.open_run(Path(name))
        return folder.path, None, found
    if not is_population(Path(path)):
        raise InputError(f"{path} is not the folder of a population; give one that `benchback train --seeds` wrote")
    stored = open_population(Path(path))
    last = len(stored.members) - 1
    if not (index.isascii() and index.isdigit() and len(index) < 10) or int(index) > last:
        raise InputError(f"{path}#{index[:20]}: members are 0 to {last}; name one of them, e.g. {path}#{last}")
    return Path(path), int(index), member_checkpoint(stored.checkpoint, stored.members, int(index))


def member_checkpoint(stacked: Checkpoint, members: Members, index: int) -> Checkpoint:
    """The checkpoint of one member, as of a run of its own."""
    weights = {name: np.array(x[index]) for name, x in stacked.weights.items() if not name.startswith(SEARCH)}
    run = members.run(Run.from_dict(stacked.run), index)
    return Checkpoint(weights, stacked.iteration, run.to_dict())


class CurveWriter:
    """Rows of all members, each of `thin` iterations, written in parts at most every few seconds.

    It goes on after `done` iterations.
    """

    def __init__(self, folder: PopulationDir, thin: int = 1, done: int = 0):
        import polars

        self.folder, self.thin, self.waiting, self.rows, self.flushed_s = folder, thin, [], 0, time.perf_counter()
        folder.curves.mkdir(exist_ok=True)
        self.buckets = Buckets(thin, done)
        if folder.rest(done).exists():
            stored = polars.read_parquet(folder.rest(done))
            self.buckets = self.buckets.restored({name: stored[name].to_numpy() for name in stored.columns}, done)

    def add(self, last: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Take metrics of shape [iterations, members] of which the last iteration is `last`."""
        import polars

        found = [each_iteration(last, metrics)] if self.thin == 1 else self.buckets.add(last, metrics)
        for columns in found:
            self.waiting.append(polars.DataFrame(columns))
            self.rows += self.waiting[-1].height
        if self.rows >= MOST_ROWS or time.perf_counter() - self.flushed_s >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a part."""
        import polars

        if self.waiting:
            self._write(polars.concat(self.waiting))
        self.waiting, self.rows, self.flushed_s = [], 0, time.perf_counter()

    def save(self) -> None:
        """Write what a checkpoint needs: all rows, and the sums of the open bucket; then `forget` earlier ones."""
        import polars

        self.flush()  # no part may span a checkpoint
        if self.thin > 1 and self.buckets.open:
            _write_parquet(self.folder.rest(self.buckets.done), polars.DataFrame(self.buckets.stored()))

    def forget(self) -> None:
        """Delete the sums that belong to earlier checkpoints."""
        self.folder.keep_rest(self.buckets.done)

    def end(self) -> None:
        """Write the open bucket as a row of fewer iterations, in a part of its own: training may yet go on."""
        import polars

        if self.thin > 1 and (rest := self.buckets.rest()):
            self._write(polars.DataFrame(rest))

    def _write(self, frame: Any) -> None:
        first = frame["iteration"][0] - (frame["iterations"][0] - 1 if self.thin > 1 else 0)
        _write_parquet(self.folder.curves / f"part-{first:08d}.parquet", frame)


def each_iteration(last: int, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Metrics of shape [iterations, members] as columns with a row for each."""
    length, size = next(iter(metrics.values())).shape
    iteration = np.arange(last - length + 1, last + 1, dtype=np.uint32)
    columns = {"iteration": iteration.repeat(size), "member": np.tile(np.arange(size, dtype=np.uint32), length)}
    return columns | {name: x.ravel() for name, x in sorted(metrics.items())}


def _write_parquet(path: Path, frame: Any) -> None:
    content = io.BytesIO()
    frame.write_parquet(content)
    write_atomically(path, content.getvalue())


def last_tenth(iteration: int) -> int:
    """How many of so many iterations are scored: the last tenth, rounded up."""
    return -(-iteration // 10)


def scores(folder: PopulationDir, size: int, iteration: int) -> np.ndarray:
    """The mean return of each member over the last tenth of the iterations up to `iteration`; NaN where none ended.

    Of thinned curves the buckets that end in the last tenth count, each for the iterations in which an episode ended.
    """
    import polars

    found = np.full(size, np.nan)
    if parts := list(folder.parts().values()):
        value, number = polars.col(RANKED_BY).cast(polars.Float64), polars.col("iteration")
        rows = polars.scan_parquet(parts).filter(number > iteration - last_tenth(iteration), number <= iteration)
        rows = _with_counts(rows, [RANKED_BY]).filter(value.is_finite())
        weight = polars.col(f"{RANKED_BY}{COUNT}").cast(polars.Float64)
        means = rows.group_by("member").agg((value * weight).sum() / weight.sum()).collect()
        found[means["member"].to_numpy()] = means[RANKED_BY].to_numpy()
    return found


def diverged(folder: PopulationDir, run: Run) -> dict[int, int]:
    """Member -> the first iteration in which a metric of its learning is not finite.

    In a bucket of thinned curves the finite ones are taken to come first: what is lost stays lost.
    """
    import polars

    if not (parts := list(folder.parts().values())):
        return {}
    rows = polars.scan_parquet(parts)
    names = [name for name in rows.collect_schema().names() if name not in PLACES and not name.endswith(COUNT)]
    metrics = learning_metrics(run, names)
    rows, iterations = _with_counts(rows, metrics), polars.col("iterations")
    before, finite = polars.col("iteration") - iterations, polars.min_horizontal(f"{name}{COUNT}" for name in metrics)
    lost = rows.filter(before >= run.config.iterations_before_learning, finite < iterations)
    first = lost.select("member", iteration=before + finite + 1).group_by("member").agg(polars.col("iteration").min())
    found = first.sort("member").collect()
    return dict(zip(found["member"].to_list(), found["iteration"].to_list(), strict=True))


def _with_counts(rows: Any, metrics: Iterable[str]) -> Any:
    """Rows with the number of iterations they stand for, and in how many of these each metric was finite."""
    import polars

    one = polars.lit(1, polars.UInt32)
    finite = {f"{x}{COUNT}": polars.col(x).cast(polars.Float64).is_finite().cast(polars.UInt32) for x in metrics}
    known = rows.collect_schema().names()
    return rows.with_columns(**{name: x for name, x in ({"iterations": one} | finite).items() if name not in known})


def keep(folder: PopulationDir, members: Members, chosen: Iterable[int]) -> None:
    """Write a run folder for each of the chosen members that has none."""
    missing = [i for i in chosen if not folder.member(i).checkpoint.exists()]
    if not missing:
        return
    stacked = checkpoint.read(folder.checkpoint)
    times = [{name: row[name] for name in ("iteration", "env_steps", "seconds", "compiles")} for row in folder.rows()]
    for place in range(0, len(missing), READ_TOGETHER):
        together = missing[place : place + READ_TOGETHER]
        curves = _curves(folder, together)
        for index in together:
            _keep(folder.member(index), member_checkpoint(stacked, members, index), times, curves.get(index, {}))


def _keep(place: RunDir, state: Checkpoint, times: list[dict[str, str]], curve: dict[int, dict[str, float]]) -> None:
    place.path.mkdir(parents=True, exist_ok=True)
    place.config.write_text(yaml.safe_dump(state.run, sort_keys=False))
    place.metrics.unlink(missing_ok=True)
    if rows := [row | curve[int(row["iteration"])] for row in times if int(row["iteration"]) in curve]:
        place.append(rows)
    checkpoint.write(place.checkpoint, state)  # last: a folder with a checkpoint is complete


def _curves(folder: PopulationDir, chosen: list[int]) -> dict[int, dict[int, dict[str, Any]]]:
    """Member -> iteration -> its metrics."""
    import polars

    found: dict[int, dict[int, dict[str, Any]]] = {}
    if parts := list(folder.parts().values()):
        for row in polars.scan_parquet(parts).filter(polars.col("member").is_in(chosen)).collect().to_dicts():
            beside = {*PLACES, *(f"{name}{COUNT}" for name in row)}
            metrics = {name: float(x) for name, x in row.items() if name not in beside}
            found.setdefault(row["member"], {})[row["iteration"]] = metrics
    return found
