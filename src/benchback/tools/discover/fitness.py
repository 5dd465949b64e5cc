"""Fitness: the return at the end of a training, for every vector, environment and seed.

All vectors of a generation with all its seeds are members of one population, and a training is one program from the
first iteration to the last, compiled once for each environment. Importing this module imports jax.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from benchback.population.spec import Members
from benchback.population.summary import RANKED_BY
from benchback.population.training import built, likely, train_members
from benchback.tools.discover.genomes import Genome, members_of
from benchback.training.run import Run

LAST = 0.1
"""Part of the iterations, from the end, whose episodes count."""


@dataclass(frozen=True)
class Trainings:
    """Trainings of one genome, whose programs are kept."""

    genome: Genome
    groups: dict[tuple[Run, int], int] = field(default_factory=dict)
    programs: Any = field(default_factory=lambda: cache(built))

    def scores(self, run: Run, vectors: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
        """Return at the end of training, `[vectors, seeds]`; NaN where no episode ended there."""
        run = whole(run)
        members = Members(*members_of(self.genome, vectors, seeds))
        if (run, len(members)) not in self.groups:
            self.groups[run, len(members)] = likely(run, len(members)).group
        (progress,) = train_members(run, members, group=self.groups[run, len(members)], build=self.programs, devices=1)
        return at_the_end(progress.metrics[RANKED_BY]).reshape(len(vectors), len(seeds))


def whole(run: Run) -> Run:
    """The run as one program; its own seed does not matter, members have theirs."""
    return replace(run, unit="chunk", chunk=run.config.num_iterations, seed=0)


def at_the_end(returns: np.ndarray) -> np.ndarray:
    """Mean over the last tenth of the iterations, `[iterations, members]` -> `[members]`; NaN where nothing ever ended.

    An iteration in which no episode ended has the return of the one before it: episodes of a good agent may be longer
    than a tenth of a short training.
    """
    filled = returns.astype(float)
    for before, row in pairwise(filled):
        row[~np.isfinite(row)] = before[~np.isfinite(row)]
    return filled[-math.ceil(LAST * len(returns)) :].mean(axis=0)


def fitness(scores: np.ndarray) -> np.ndarray:
    """How each vector did among the others, `[vectors, environments, seeds]` -> `[vectors]`.

    The mean over seeds, in standard deviations from the mean of all vectors, then over environments: returns of
    different environments have different units. A vector without a return in an environment is the worst there.
    """
    with np.errstate(invalid="ignore"):
        mean = scores.mean(axis=2)
    known = np.where(np.isfinite(mean), mean, np.inf)
    mean = np.where(np.isfinite(mean), mean, known.min(axis=0))
    mean = np.where(np.isfinite(mean), mean, 0.0)  # nobody has a return there
    spread = mean.std(axis=0)
    return ((mean - mean.mean(axis=0)) / np.where(spread > 0, spread, 1)).mean(axis=1)
