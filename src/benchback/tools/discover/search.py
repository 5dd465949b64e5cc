"""The search: generation after generation, each written to disk whole before the next begins.

`search.safetensors` holds the state of the strategy and the history of all generations in one file, which is replaced
atomically: killed at any moment, a search goes on from the last complete generation when it is asked for again.
`discovery.yaml` says what was asked for. Importing this module imports jax.
"""

import csv
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from benchback.errors import InputError
from benchback.tools.discover import strategies
from benchback.tools.discover.fitness import Trainings, fitness
from benchback.tools.discover.genomes import Genome
from benchback.tools.discover.strategies import Settings, Strategy
from benchback.training.checkpoint import write_atomically
from benchback.training.run import Run

Row = dict[str, Any]
"""Of a generation: seconds, seeds, and for each environment the return of the mean, of the start and of those tried."""
RESULT, START = 0, 1
"""Places of the vector that the strategy has come to, and of the start, among those of a generation."""


@dataclass(frozen=True)
class Asked:
    """A search as it is asked for."""

    run: Run
    """What is trained; its environment is the first of those evolved on."""
    genome: Genome
    envs: tuple[str, ...]
    strategy: str
    settings: Settings
    generations: int
    seeds: int
    """Trainings of each vector in each environment; all vectors of a generation have the same seeds."""

    def __post_init__(self) -> None:
        for flag, number in (("--generations", self.generations), ("--seeds", self.seeds)):
            if number < 1:
                raise InputError(f"{flag} {number} must be at least 1")

    def runs(self) -> list[Run]:
        """The run in each of its environments."""
        return [replace(self.run, env=env) for env in self.envs]

    def seeds_of(self, generation: int) -> list[int]:
        """The seeds that all vectors of a generation share."""
        random = np.random.default_rng([self.settings.seed, 11, generation])
        return random.integers(2**32, size=self.seeds).tolist()

    def to_dict(self) -> dict[str, Any]:
        """All that determines a generation, as plain data: more generations of the same search may follow."""
        about = {"strategy": self.strategy, "agents": self.settings.agents, "seeds": self.seeds, "envs": [*self.envs]}
        about |= {"sigma": self.settings.sigma, "rate": self.settings.rate, "seed": self.settings.seed}
        evolved = sorted(self.genome.fields(self.genome.start))
        run = {name: x for name, x in self.run.to_dict().items() if name not in ("seed", "env", *evolved)}
        return about | {"evolves": evolved, "start": list(map(float, self.genome.start)), "run": run}


@dataclass(frozen=True)
class Found:
    """What a search has come to."""

    vector: np.ndarray
    history: list[Row]
    interrupted: bool


def open_folder(out: Path, asked: Asked) -> None:
    """Make the folder, or check that it is of the same search, and refuse it otherwise."""
    path, text = out / "discovery.yaml", yaml.safe_dump(asked.to_dict(), sort_keys=False, default_flow_style=None)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose another --out")
    if not path.exists():
        if out.exists() and any(out.iterdir()):
            raise InputError(f"{out} has files of something else; choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    elif yaml.safe_load(path.read_text(encoding="utf-8")) != yaml.safe_load(text):
        raise InputError(f"{out} is of another search, see {path.name} in it; choose another --out")


def evolve(
    asked: Asked,
    checkpoint: Path,
    trainings: Trainings,
    *,
    on_generation: Callable[[list[Row], np.ndarray], None] = lambda history, vector: None,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Found:
    """Run all generations that are missing, and return what they have come to.

    After each one the checkpoint is replaced, then `on_generation` gets the history and the current result.
    """
    strategy = strategies.make(asked.strategy, asked.genome, asked.settings)
    state, history = load(checkpoint, strategy)
    while len(history) < asked.generations and not asked_to_stop():
        begun = time.perf_counter()
        generation = len(history)
        tried, state = strategy.ask(generation, state)
        vectors = np.concatenate([[strategy.result(state), asked.genome.start], tried])
        seeds = asked.seeds_of(generation)
        # [vectors, environments, seeds]
        scores = np.stack([trainings.scores(run, vectors, seeds) for run in asked.runs()], axis=1)
        state = strategy.tell(generation, tried, fitness(scores)[2:], state)
        history.append(row_of(asked, scores, seeds, time.perf_counter() - begun))
        store(checkpoint, state, history)
        on_generation(history, strategy.result(state))
    return Found(strategy.result(state), history, len(history) < asked.generations)


def row_of(asked: Asked, scores: np.ndarray, seeds: list[int], seconds: float) -> Row:
    """A generation in numbers."""
    row: Row = {"seconds": seconds, "seeds": seeds}
    for env, each in zip(asked.envs, np.moveaxis(scores, 1, 0), strict=True):
        mean = each.mean(axis=1)
        tried = mean[2:][np.isfinite(mean[2:])]
        spread = (tried.mean(), tried.std(), tried.max()) if len(tried) else (np.nan,) * 3
        names = ("result", "start", "tried", "tried_std", "tried_best")
        row[env] = dict(zip(names, map(float, (mean[RESULT], mean[START], *spread)), strict=True))
    return row


def store(path: Path, state: Any, history: list[Row]) -> None:
    """Replace the checkpoint."""
    write_atomically(path, save(strategies.leaves(state), {"history": json.dumps(history)}))


def load(path: Path, strategy: Strategy) -> tuple[Any, list[Row]]:
    """State and history of the checkpoint; those of the beginning if there is none."""
    state = strategy.init()
    if not path.exists():
        return state, []
    try:
        with safe_open(str(path), "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return strategies.restored(state, arrays), json.loads(file.metadata()["history"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: damaged ({str(error)[:80]}); delete it to begin again") from None


def table(history: list[Row]) -> str:
    """The history as CSV, a row for each generation and environment."""
    text = StringIO()
    writer = csv.writer(text)
    names = ("result", "start", "tried", "tried_std", "tried_best")
    writer.writerow(("generation", "env", *names, "seconds"))
    for generation, row in enumerate(history, 1):
        for env, found in environments(row).items():
            writer.writerow((generation, env, *(found[name] for name in names), f"{row['seconds']:.3f}"))
    return text.getvalue()


def environments(row: Row) -> Mapping[str, Any]:
    """What a row says about each environment."""
    return {name: x for name, x in row.items() if name not in ("seconds", "seeds")}
