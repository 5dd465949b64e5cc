"""Campaigns on machines that were never run: the blocks of a ratio that each machine has for itself."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchback import stats
from benchback.stats import Estimate

TRUTH = 0.05
"""Mean log ratio over all machines there are."""
NOISE = 0.01
"""Standard deviation of the log ratios of a machine's blocks."""


@dataclass(frozen=True)
class Fleet:
    """Machines, and how they differ."""

    machines: int
    between: float = 0.0
    """Standard deviation of the machines' own log ratios."""
    noisier: float = 1.0
    """Every second machine has blocks that vary by this factor more."""
    blocks: int = 5


@dataclass(frozen=True)
class Rates:
    """How often campaigns were right, of those simulated."""

    covered: float
    """The 95 % interval holds the truth."""
    differing: float
    """The machines are called different at 5 %."""
    half_width: float
    """Median half width of the interval."""


Interval = Callable[[list[Estimate]], tuple[float, float]]


def campaigns(fleet: Fleet, count: int, seed: int = 0) -> list[list[Estimate]]:
    """The estimates of every machine in each of so many campaigns, each on machines of its own."""
    generator = np.random.default_rng([seed, fleet.machines, fleet.blocks])
    own = TRUTH + generator.normal(0, fleet.between, (count, fleet.machines, 1))
    noise = NOISE * np.where(np.arange(fleet.machines) % 2, fleet.noisier, 1.0)[:, None]
    blocks = own + noise * generator.normal(0, 1, (count, fleet.machines, fleet.blocks))
    return [[stats.estimate(machine) for machine in campaign] for campaign in blocks]


def rates(found: list[list[Estimate]]) -> Rates:
    """Rates of the product's own interval and test."""
    effects = [stats.random_effects(machines) for machines in found]
    bounds = np.array([stats.bounds(effect.estimate) for effect in effects])
    covered = (bounds[:, 0] <= TRUTH) & (bounds[:, 1] >= TRUTH)
    differing = float(np.mean([effect.p < 0.05 for effect in effects]))
    return Rates(float(covered.mean()), differing, float(np.median(bounds[:, 1] - bounds[:, 0])) / 2)


def covered_when_weighted(found: list[list[Estimate]]) -> float:
    """Coverage of Hartung and Knapp's interval with weights of Paule and Mandel, for comparison."""
    y = np.array([[x.mean for x in machines] for machines in found])
    v = np.array([[x.error**2 for x in machines] for machines in found])
    weight = 1 / (v + _paule_mandel(y, v)[:, None])
    mean = (weight * y).sum(1) / weight.sum(1)
    freedom = y.shape[1] - 1
    error = np.sqrt((weight * (y - mean[:, None]) ** 2).sum(1) / freedom / weight.sum(1))
    held = [
        low <= TRUTH <= high
        for low, high in (stats.bounds(Estimate(*pair, freedom)) for pair in zip(mean, error, strict=True))
    ]
    return float(np.mean(held))


def _paule_mandel(y: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The variance between machines at which Q is its expectation, by bisection; 0 where Q is less even without."""
    low, high = np.zeros(len(y)), np.full(len(y), 20 * float(y.var(axis=1, ddof=1).max()))
    none = _q(y, v, low) <= y.shape[1] - 1
    for _ in range(60):
        middle = (low + high) / 2
        above = _q(y, v, middle) > y.shape[1] - 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(none, 0.0, low)


def _q(y: np.ndarray, v: np.ndarray, between: np.ndarray) -> np.ndarray:
    weight = 1 / (v + between[:, None])
    mean = (weight * y).sum(1) / weight.sum(1)
    return (weight * (y - mean[:, None]) ** 2).sum(1)
