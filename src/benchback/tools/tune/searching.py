"""Searches that train populations: all points to the end, halving, population-based training.

A search has a folder: `tuning.yaml` says what was asked for, `programs/000/` and so on are populations as `train`
writes them, each with `scores.json` once it is done. Stopped at any moment and asked for again, it goes on from the
last checkpoint. Importing this imports no framework.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import yaml

from benchback.errors import InputError
from benchback.measure.study import shortened
from benchback.population import folder as folders
from benchback.population.ranges import Range
from benchback.population.spec import Population
from benchback.tools.tune.programs import Program, fits, programs_of
from benchback.tools.tune.space import Space, points
from benchback.training.checkpoint import write_atomically

Method = Literal["population", "halving", "pbt", "optuna", "runs"]
EVOLVING_ROUNDS = 20
"""Rounds of population-based training, unless the user says how long one is."""

Row = dict[str, Any]
"""Of a point: its number, values, a score for each seed (None where no episode ended), and iterations trained."""


@dataclass(frozen=True)
class Settings:
    """How a space is searched."""

    method: Method = "population"
    eta: int = 3
    """Halving: one in so many points goes on at a rung."""
    every: int | None = None
    """Population-based training: iterations of a round; None: a twentieth of all."""
    sampler: str = "tpe"
    """Optuna's sampler."""
    group: int | None = None
    devices: int = 1
    scale: float = 1.0
    """Factor on the number of iterations."""


@dataclass(frozen=True)
class Hooks:
    """What a search tells while it runs, and asks."""

    begun: Callable[[int, Program], None] = lambda number, program: None
    """The number of a program that is trained now."""
    rows: Callable[[list[dict[str, Any]]], None] = lambda rows: None
    """Summaries over its members."""
    asked_to_stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Search:
    """A search in its folder."""

    space: Space
    settings: Settings
    seed: int
    out: Path
    hooks: Hooks = field(default_factory=Hooks)
    trainer: Callable[..., Any] | None = None
    """Trains members in place of this machine."""
    width: int = 1
    """Devices over which it divides them."""

    @property
    def seeds(self) -> range:
        """Seeds of every point."""
        return range(self.seed, self.seed + self.space.seeds)

    @property
    def base(self) -> dict[str, Any]:
        """The run that all points share, as long as it is searched with."""
        return shortened(self.space.base, self.settings.scale)


def open_search(search: Search) -> None:
    """Make the folder of the search or check that it is of the same search, and refuse it otherwise."""
    path, asked = search.out / "tuning.yaml", _asked(search)
    if search.out.exists() and not search.out.is_dir():
        raise InputError(f"{search.out} is a file; choose another --out")
    if not path.exists():
        if search.out.exists() and any(search.out.iterdir()):
            raise InputError(f"{search.out} has files of something else; choose another --out")
        search.out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, asked)
    elif yaml.safe_load(path.read_text(encoding="utf-8")) != yaml.safe_load(asked):
        raise InputError(f"{search.out} is of another search, see {path.name} in it; choose another --out")


def _asked(search: Search) -> str:
    space = asdict(search.space)
    plain = {"seed": search.seed, "settings": asdict(search.settings), "space": space}
    # Through JSON: tuples and numbers of NumPy become what YAML reads back.
    return yaml.safe_dump(json.loads(json.dumps(plain, default=str)), sort_keys=False)


def find_programs(search: Search) -> tuple[Program, ...]:
    """The programs of the search; population-based training has one seed for each point, as it chooses between them."""
    if search.settings.method == "pbt" and search.space.seeds != 1:
        raise InputError(
            f"--seeds {search.space.seeds}: population-based training has one member for each point; choose --seeds 1"
        )
    return programs_of(search.base, points(search.space, search.seed), search.seeds)


def train_programs(search: Search, programs: Sequence[Program], folder: str = "programs") -> list[Row]:
    """Train what is not done yet and return a row for each point, in order; KeyboardInterrupt if asked to stop."""
    rows = []
    for number, program in enumerate(programs):
        place = search.out / folder / f"{number:03d}"
        search.hooks.begun(number, program)
        rows += train_program(search, program, place, trainer_of(search, program))
    return sorted(rows, key=lambda row: row["point"])


def train_program(search: Search, program: Program, place: Path, trainer: Callable[..., Any]) -> list[Row]:
    """The rows of a program's points, read if they are there, else trained from the last checkpoint or from scratch."""
    done = place / "scores.json"
    if not done.exists():
        from benchback.population.training import train_population

        origin = folders.open_population(place) if (place / "checkpoint.safetensors").exists() else None
        if origin is None and place.exists():
            shutil.rmtree(place)  # stopped before its first checkpoint
        # Rungs, scores and copies are read from single iterations.
        asked = Population(seeds=program.seeds, group=search.settings.group, devices=search.settings.devices, thin=1)
        trained = train_population(
            program.run,
            asked if origin is None else None,
            members=program.members,
            trainer=trainer,
            width=search.width,
            out=place,
            origin=origin,
            on_rows=search.hooks.rows,
            asked_to_stop=search.hooks.asked_to_stop,
        )
        if trained.interrupted:
            raise KeyboardInterrupt("stopped; run the same command again to go on")
        found = _rows(program, trained.folder, search.settings)
        write_atomically(done, json.dumps(found))
    return json.loads(done.read_text())


def trainer_of(search: Search, program: Program) -> Callable[..., Any]:
    """The function that trains the members as the method says."""
    from benchback.population.evolution import train_evolving
    from benchback.population.halving import train_halving
    from benchback.population.training import train_members

    match search.settings.method:
        case "halving":
            return partial(train_halving, rungs=rungs_of(program, search.settings), seeds=program.seeds)
        case "pbt":
            return partial(train_evolving, evolution=evolution_of(search, program))
    return search.trainer or train_members


def check_programs(search: Search, programs: Sequence[Program]) -> None:
    """Raise an InputError unless every program can be trained as the method says, before anything is written."""
    for program in programs:
        run, size, group = program.run, len(program.members), search.settings.group
        if not fits(run):
            raise InputError(
                f"backend={run.backend} with env={run.env} trains one agent at a time; use --method runs, which starts "
                "a process for each"
            )
        if group is not None and group > size // search.settings.devices:
            raise InputError(f"--group {group} does not fit {size} members on {search.settings.devices} devices")
        if search.settings.method == "halving":
            rungs_of(program, search.settings)
        if search.settings.method == "pbt":
            evolution_of(search, program).check(run, size)


def evolution_of(search: Search, program: Program) -> Any:
    """How members of a program take over from one another."""
    from benchback.population.evolution import Evolution

    iterations = program.run.config.num_iterations
    every = search.settings.every or _divisor(iterations, max(1, iterations // EVOLVING_ROUNDS))
    return Evolution(_sources(search.space, program), every)


def rungs_of(program: Program, settings: Settings) -> tuple[Any, ...]:
    """When how many points of a program go on in halving."""
    from benchback.population.halving import ladder

    run = program.run
    return ladder(len(program.points), run.config.num_iterations, settings.eta, run.length)


def _divisor(number: int, wanted: int) -> int:
    return max(d for d in range(1, wanted + 1) if number % d == 0)


def _sources(space: Space, program: Program) -> dict[str, Range | Sequence[float]]:
    """Where each tuned float may lie: its range, or the values of its points."""
    ranges = {name: x for name, x in space.random.items() if isinstance(x, Range)}
    tuned = cast(Mapping[str, Sequence[float]], program.members.values)  # vectors are not tuned
    return {name: ranges.get(name) or sorted(set(values)) for name, values in tuned.items()}


def _rows(program: Program, folder: folders.PopulationDir, settings: Settings) -> list[Row]:
    """A row for each point of a program that is trained."""
    last, size = program.run.config.num_iterations, len(program.members)
    ends = [last]
    if settings.method == "halving":
        ends = [*(rung.iteration for rung in rungs_of(program, settings)), last]
    scores, iterations = np.full((len(program.points), program.seeds), np.nan), np.zeros(len(program.points), int)
    # A point that was dropped keeps the scores of the last rung that it was judged at.
    for end in ends:
        now = folders.scores(folder, size, end).reshape(scores.shape)
        judged = np.isfinite(now).any(axis=1)
        scores[judged], iterations[judged] = now[judged], end
    values = final_values(folder, program) if settings.method == "pbt" else program.members.values
    values = cast(Mapping[str, Sequence[float]], values)
    return [
        {
            "point": point,
            "values": dict(program.shape) | {name: float(x[place * program.seeds]) for name, x in values.items()},
            "scores": [float(x) if np.isfinite(x) else None for x in scores[place]],
            "iterations": int(iterations[place]),
        }
        for place, point in enumerate(program.points)
    ]


def final_values(folder: folders.PopulationDir, program: Program) -> dict[str, list[float]]:
    """The tuned floats that each member had in its last iteration."""
    import polars

    names = {f"hyper_{name}": name for name in program.members.values}
    rows = polars.scan_parquet(list(folder.parts().values())).sort("iteration", "member").select("member", *names)
    last = rows.tail(len(program.members)).collect().sort("member")
    return {name: last[column].to_list() for column, name in names.items()}


def history(folder: folders.PopulationDir, program: Program) -> list[dict[str, Any]]:
    """The floats of each member at the start, and after every copy with the member that it was copied from."""
    import polars

    names = {f"hyper_{name}": name for name in program.members.values}
    frame = polars.scan_parquet(list(folder.parts().values())).sort("member", "iteration")
    rows = frame.select("iteration", "member", "parent", *names).collect().rename(names).to_dicts()
    found, before = [], None
    for row in rows:
        began = before is None or before["member"] != row["member"]
        if began or (before is not None and before["parent"] != before["member"]):
            parent = None if began or before is None else int(before["parent"])
            found.append({**row, "parent": parent})
        before = row
    return found


def full_length(search: Search, values: Mapping[str, Any]) -> dict[str, Any]:
    """The run of a point, of full length also where the search was scaled."""
    from benchback.training.run import Run

    return Run.from_dict({**search.space.base, **values, "seed": search.seed}).to_dict()


def check_settings(settings: Settings) -> None:
    """Raise an InputError unless the settings make sense."""
    if not 0 < settings.scale <= 1:
        raise InputError(f"scale={settings.scale:g} must be greater than 0 and at most 1, e.g. 0.1")
    for name in ("every", "group", "devices"):
        if getattr(settings, name) is not None and getattr(settings, name) < 1:
            raise InputError(f"--{name} {getattr(settings, name)} must be at least 1")
