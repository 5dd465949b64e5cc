"""Strategies of evosax as functions of arrays, and random search.

A strategy maximises. Its state is a pytree, of which `leaves` and `restored` make arrays for a checkpoint. `openes`
draws in antithetic pairs. Importing this module imports jax and evosax.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import optax
from evosax import algorithms

from benchback.errors import InputError
from benchback.tools.discover.genomes import Genome


@dataclass(frozen=True)
class Settings:
    """How a strategy looks around."""

    agents: int
    """Vectors of a generation."""
    sigma: float
    """Standard deviation of what is tried around the mean."""
    rate: float
    """Learning rate of the mean: openes only."""
    seed: int

    def __post_init__(self) -> None:
        if self.agents < 4 or self.agents % 2:
            raise InputError(f"--agents {self.agents} must be an even number from 4 on: vectors are tried in pairs")
        for flag, number in (("--sigma", self.sigma), ("--rate", self.rate)):
            if not 0 < number < 100:
                raise InputError(f"{flag} {number:g} must be greater than 0 and less than 100, e.g. 0.1")


@dataclass(frozen=True)
class Strategy:
    """A strategy: all functions take the number of the generation, from which their random numbers follow."""

    init: Callable[[], Any]
    ask: Callable[[int, Any], tuple[np.ndarray, Any]]
    """Generation, state -> vectors to try, `[N, D]`, state."""
    tell: Callable[[int, np.ndarray, np.ndarray, Any], Any]
    """Generation, vectors, fitness (the more the better), state -> state."""
    result: Callable[[Any], np.ndarray]
    """State -> the vector that it has come to."""


def leaves(state: Any) -> dict[str, np.ndarray]:
    """The state as named arrays."""
    return {f"strategy/{i:03d}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(state))}


def restored(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The state of these arrays; `template` has its structure."""
    found, structure = jax.tree.flatten(template)
    return structure.unflatten([arrays[f"strategy/{i:03d}"].astype(np.asarray(x).dtype) for i, x in enumerate(found)])


def make(name: str, genome: Genome, settings: Settings) -> Strategy:
    """The strategy of that name, at the start of the genome."""
    return random_search(genome, settings) if name == "random" else _of_evosax(name, genome, settings)


def _open_es(settings: Settings, start: np.ndarray) -> tuple[Any, Any]:
    optimiser, sigma = optax.adam(settings.rate), optax.constant_schedule(settings.sigma)
    es = algorithms.Open_ES(settings.agents, start, optimizer=optimiser, std_schedule=sigma)
    return es, es.default_params


def _adapting(kind: str) -> Callable[[Settings, np.ndarray], tuple[Any, Any]]:
    """Strategies that adapt the standard deviation, from `sigma` on."""

    def build(settings: Settings, start: np.ndarray) -> tuple[Any, Any]:
        es = getattr(algorithms, kind)(settings.agents, start)
        return es, es.default_params.replace(std_init=settings.sigma)

    return build


BUILDERS: Mapping[str, Callable[[Settings, np.ndarray], tuple[Any, Any]]] = {
    "openes": _open_es,
    "snes": _adapting("SNES"),
    "cma_es": _adapting("CMA_ES"),
    "sep_cma_es": _adapting("Sep_CMA_ES"),
}


def _of_evosax(name: str, genome: Genome, settings: Settings) -> Strategy:
    start = genome.start.astype(np.float32)
    es, params = BUILDERS[name](settings, start)
    key = jax.random.key(settings.seed)

    def ask(generation: int, state: Any) -> tuple[np.ndarray, Any]:
        vectors, state = es.ask(jax.random.fold_in(key, 2 * generation), state, params)
        return np.asarray(vectors), state

    def tell(generation: int, vectors: np.ndarray, fitness: np.ndarray, state: Any) -> Any:
        # evosax minimises.
        return es.tell(jax.random.fold_in(key, 2 * generation + 1), vectors, -fitness, state, params)[0]

    def init() -> Any:
        # One program, so that every leaf is an array also before the first generation.
        return jax.tree.map(np.asarray, es.init(key, start, params))

    return Strategy(init, ask, tell, lambda state: np.asarray(cast(Any, state).mean))


class Best(NamedTuple):
    """The best vector so far."""

    vector: np.ndarray
    fitness: np.ndarray


def random_search(genome: Genome, settings: Settings) -> Strategy:
    """Vectors drawn independently; what it has come to is the one that did best."""

    def ask(generation: int, state: Best) -> tuple[np.ndarray, Best]:
        random = np.random.default_rng([settings.seed, 13, generation])
        return np.stack([genome.draw(random) for _ in range(settings.agents)]).astype(np.float32), state

    def tell(generation: int, vectors: np.ndarray, fitness: np.ndarray, state: Best) -> Best:
        best = int(np.argmax(fitness))
        return Best(vectors[best], fitness[best]) if fitness[best] > state.fitness else state

    def init() -> Best:
        return Best(genome.start.astype(np.float32), np.array(-np.inf))

    return Strategy(init, ask, tell, lambda state: state.vector)
