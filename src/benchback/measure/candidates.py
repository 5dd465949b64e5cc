"""Candidates for a training: every backend in its best mode, called phase by phase, and in chunks where it can."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from benchback import envs, registry
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.cost import FEWEST_WARM, iteration_seconds, start_seconds
from benchback.measure.record import Cell
from benchback.runs import AlgorithmConfig, Run
from benchback.stats.relay import FEWEST_ROUNDS

CHUNK, CHUNK_S = 10, 0.05
"""A chunk has at least so many iterations, and lasts about so long: calls cost nothing beside it."""
FEWEST_CALLS = 10
"""Calls that fit in a measured training at least, however short the one that is asked about."""
LONG_S = 0.25
"""A call of a chunk saves less than a millisecond: nothing is gained where an iteration is as long as this."""
MOST_AGENTS, AGENTS_S = 64, 5.0
"""Agents of one program that are measured at most, and seconds that an iteration of all of them may last."""
RESIZE = 4
"""Factor between the widths of the networks from which the cost of other sizes is predicted."""


@dataclass(frozen=True)
class Question:
    """A project: one training, repeated with several seeds."""

    fields: Mapping[str, Any]
    """Fields of its run: algorithm, env, sizes; not backend, mode, unit, seed and number of iterations."""
    steps: int
    """Environment steps of one training."""
    seeds: int = 1
    backends: tuple[str, ...] = tuple(registry.BACKENDS)
    threads: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        for backend in self.backends:
            registry.choose("backend", backend, registry.BACKENDS)
        if self.seeds < 1:
            raise InputError(f"seeds={self.seeds} must be at least 1")
        if self.threads < 1:
            raise InputError(f"threads={self.threads} must be at least 1")
        machine.processors(self.threads)
        batch = self.config.batch_size
        if self.steps < batch:
            raise InputError(
                f"steps={self.steps} is less than one iteration of {batch} steps; "
                f"use --steps {batch} or more, or fewer environments (--num-envs)"
            )
        envs.check_installed(self.env)

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The training in each backend that can run it; InputError if none can."""
        found, errors = {}, []
        for backend in self.backends:
            try:
                found[backend] = Run.from_dict({**self.fields, "backend": backend})
            except InputError as error:
                errors.append(error)
        if not found:
            raise errors[0] if errors else InputError(f"no backend is named; try --backends {registry.DEFAULT_BACKEND}")
        return found

    @property
    def config(self) -> AlgorithmConfig:
        """The hyper-parameters."""
        return next(iter(self.runs.values())).config

    @property
    def env(self) -> str:
        """Id of the environment."""
        algorithm = self.fields.get("algorithm", registry.DEFAULT_ALGORITHM)
        return self.fields.get("env", registry.ALGORITHMS[algorithm].env)

    @property
    def iterations(self) -> int:
        """Iterations of one training: whole ones."""
        return -(-self.steps // self.config.batch_size)

    @cached_property
    def chunk(self) -> int:
        """Iterations of a chunk, by the model of costs; at most a tenth of the training, of which the last is whole."""
        fused = (run for name, run in self.runs.items() if "chunk" in registry.BACKENDS[name].units)
        run = next(fused, None)
        if run is None:
            return 1
        cell = Cell(run.to_dict(), threads=self.threads, device=self.device)
        wanted = math.ceil(CHUNK_S / iteration_seconds(cell))
        return min(max(CHUNK, min(wanted, self.iterations // FEWEST_CALLS)), self.iterations)

    @cached_property
    def agents(self) -> int:
        """Agents of one program, where a backend can have several: all seeds, or equal parts of them."""
        run = next((run for name, run in self.runs.items() if registry.BACKENDS[name].populations), None)
        if run is None or self.seeds == 1 or self.env.partition("/")[0] in envs.EXTERNAL:
            return 1
        each_s = iteration_seconds(Cell(run.to_dict(), threads=self.threads, device=self.device))
        most = min(max(2, int(AGENTS_S / each_s)), MOST_AGENTS)
        programs = -(-self.seeds // most)
        return -(-self.seeds // programs)

    @property
    def at_once(self) -> int:
        """Trainings that can run at the same time, each on processors of its own; on a GPU one."""
        return max(1, len(machine.allowed_processors()) // self.threads) if self.device == "cpu" else 1


@dataclass(frozen=True)
class Candidates:
    """Cells that answer a question, in the order in which they are measured."""

    phases: tuple[Cell, ...]
    """Called phase by phase; one of each array framework first."""
    chunks: tuple[Cell, ...]
    left_out: Mapping[str, str]
    """Backend -> why it cannot take part."""
    populations: tuple[Cell, ...] = ()
    """Several seeds in one program."""

    @property
    def all(self) -> list[Cell]:
        """Every candidate."""
        return [*self.phases, *self.populations, *self.chunks]


def candidates(question: Question) -> Candidates:
    """Every backend of the question that can run it here."""
    phases, populations, chunks, left_out = [], [], [], {}
    families = registry.one_of_each_family()
    for backend in sorted(question.backends, key=lambda name: name not in families):
        spec = registry.BACKENDS[backend]
        if find_spec(spec.module) is None:
            left_out[backend] = f"{spec.package} is not installed"
            continue
        try:
            phases.append(cell_of(question, backend, "phase"))
        except InputError as error:
            left_out[backend] = str(error)
            continue
        if spec.best in spec.populations and question.agents > 1:
            populations.append(cell_of(question, backend, "iteration", question.agents))
        if "chunk" in spec.units and question.chunk > 1:
            chunks.append(cell_of(question, backend, "chunk"))
    if not phases:
        raise InputError("no backend can be measured: " + "; ".join(f"{k}: {x}" for k, x in left_out.items()))
    return Candidates(tuple(phases), tuple(chunks), left_out, tuple(populations))


def cell_of(question: Question, backend: str, unit: str, members: int = 1) -> Cell:
    """A training of the question's length, in whole chunks, so that all candidates of one agent are of one group."""
    calls = max(-(-question.iterations // question.chunk), FEWEST_CALLS)
    fields = {**question.fields, "backend": backend, "unit": unit, "num_iterations": calls * question.chunk}
    if unit == "chunk":
        fields["chunk"] = question.chunk
    run = Run.from_dict(fields).to_dict()
    fields = {name: x for name, x in run.items() if name != "seed"}
    return Cell(fields, threads=question.threads, device=question.device, members=members)


def resized(cell: Cell) -> Cell:
    """The cell with a network of another width: four times as wide if it is narrow, else a quarter."""
    hidden = Run.from_dict(dict(cell.run)).config.hidden
    wider = max(hidden) * RESIZE <= 512
    widths = [width * RESIZE if wider else max(1, width // RESIZE) for width in hidden]
    return with_hidden(cell, widths)


def with_hidden(cell: Cell, widths: list[int]) -> Cell:
    """The cell with other hidden layers."""
    return replace(cell, run={**cell.run, "hidden_sizes": widths})


def warm_seconds(cell: Cell) -> float:
    """Rough seconds of a candidate's start and warm-up with empty caches."""
    config = Run.from_dict(dict(cell.run)).config
    calls = config.iterations_before_learning + FEWEST_WARM
    return start_seconds(cell) + calls * iteration_seconds(cell)


def least_seconds(cells: tuple[Cell, ...]) -> float:
    """Rough seconds of the shortest useful measurement: every candidate started once, then a few rounds."""
    return math.fsum(warm_seconds(cell) + FEWEST_ROUNDS * iteration_seconds(cell) for cell in cells)
