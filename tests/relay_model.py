"""Campaigns of relays that were never run: turns of known programs on a machine with known noise."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from benchback import stats

VARIANTS = 6
PAIRS = ((0, 1), (2, 3), (4, 5))
"""Pairs without a common member: independent but for the machine."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations, in log time, of what makes equal programs take unequal time."""

    process: float = 0.004
    """Of a process, in all its turns: memory layout, hashing, placement of code."""
    own: float = 0.003
    """Of a turn by itself."""
    trend: float = 0.0
    """Change of the machine's speed from the first turn of a relay to the last, the same for all."""
    walk: float = 0.0
    """Of the machine's random walk, per turn."""
    wave: float = 0.0
    """Of the machine's autocorrelated noise (AR(1)), stationary."""
    memory: float = 0.9
    """Correlation of that noise between two turns in succession."""
    bursts: float = 0.0
    """Share of turns that lose time to others; a third of their time in the mean."""
    waiting: float = 0.0
    """Mean time that a turn waits for its processor, relative to its own: measured, and not counted."""


BURST = 1 / 3
REFILL = 0.03
"""Share of the waiting that the turn takes longer afterwards, with cold caches: that is not measured."""
ROUNDS = 54
"""Of a relay of 20 s: nine times every order of six variants."""
MACHINES = {
    "quiet": Noise(),
    "drift": Noise(trend=0.2, walk=0.005),
    "autocorrelation": Noise(wave=0.03),
    "bursts": Noise(bursts=0.1),
    "all of them": Noise(trend=0.2, walk=0.005, wave=0.03, bursts=0.1),
    "busy": Noise(process=0.005, own=0.02, trend=0.3, walk=0.01, wave=0.15, bursts=0.3),
    "shared": Noise(process=0.005, own=0.02, trend=0.2, walk=0.005, wave=0.03, waiting=1.0),
}


def log_ratios(
    noise: Noise, relays: int, *, campaigns: int = 400, rounds: int = ROUNDS, seed: int = 0
) -> Float[np.ndarray, "C relays R"]:
    """Log ratio of two equal programs in every round of campaigns of so many relays; of every campaign, PAIRS."""
    log_seconds = turns(np.random.default_rng([seed, relays]), noise, campaigns * relays, rounds)
    found = np.stack([log_seconds[:, :, a] - log_seconds[:, :, b] for a, b in PAIRS])
    return found.reshape(-1, relays, rounds)


def turns(generator: np.random.Generator, noise: Noise, relays: int, rounds: int) -> Float[np.ndarray, "relays R V"]:
    """Log seconds of each variant's turn in each round; all variants are equal, and their processes are not."""
    count = rounds * VARIANTS
    place = np.linspace(0.0, noise.trend, count)
    walk = generator.normal(0, noise.walk, (relays, count)).cumsum(axis=1)
    level = place + walk + _autocorrelated(generator, noise, relays, count)
    hit = generator.random((relays, count)) < noise.bursts
    level += np.log1p(hit * generator.exponential(BURST, (relays, count)))
    level += generator.normal(0, noise.own, (relays, count))
    if noise.waiting:
        level += np.log1p(REFILL * generator.exponential(noise.waiting, (relays, count)))
    variant = np.stack([_variant_order(generator, rounds) for _ in range(relays)])
    by_variant = np.take_along_axis(level.reshape(relays, rounds, VARIANTS), variant.argsort(axis=2), axis=2)
    return by_variant + generator.normal(0, noise.process, (relays, 1, VARIANTS))


def _autocorrelated(generator: np.random.Generator, noise: Noise, relays: int, count: int) -> np.ndarray:
    fresh = generator.normal(0, noise.wave * math.sqrt(1 - noise.memory**2), (relays, count))
    found = np.empty((relays, count))
    found[:, 0] = generator.normal(0, noise.wave, relays)
    for i in range(1, count):
        found[:, i] = noise.memory * found[:, i - 1] + fresh[:, i]
    return found


def _variant_order(generator: np.random.Generator, rounds: int) -> np.ndarray:
    """Which variant has which place in each round, as relays choose it."""
    orders = np.array(stats.balanced_orders(VARIANTS))
    passes = [orders[generator.permutation(len(orders))] for _ in range(-(-rounds // len(orders)))]
    return np.concatenate(passes)[:rounds]


@dataclass(frozen=True)
class Rates:
    """How often campaigns of relays were right, of those simulated."""

    wrong: float
    """The 95 % interval of the paired t over relays leaves out the true ratio; of equal programs: a false positive."""
    found: float
    """The interval leaves out 1, on the right side."""
    half_width: float
    """Median half width of the intervals, as a log ratio."""
    lost: float
    """Relays whose ratio was not steady."""


def rates(campaigns: Float[np.ndarray, "C relays R"], effect: float = 0.0) -> Rates:
    """Rates over campaigns of equal programs, of which the numerator is made to take 1 + `effect` times as long."""
    found = [[x for x in map(_relay, np.exp(c) * (1 + effect)) if isinstance(x, float)] for c in campaigns]
    intervals = [stats.interval(stats.estimate(np.log(x))) if len(x) > 1 else (1e-9, 1e9) for x in found]
    low, high = np.array(intervals).T
    wrong = (1 + effect < low) | (high < 1 + effect)
    lost = 1 - sum(map(len, found)) / (campaigns.shape[0] * campaigns.shape[1])
    return Rates(float(wrong.mean()), float((low > 1).mean()), float(np.median(np.log(high / low))) / 2, lost)


def _relay(ratio: Float[np.ndarray, " R"]) -> float | stats.Missing:
    """What the product makes of the rounds of one relay."""
    rounds = range(1, len(ratio) + 1)
    return stats.relay_ratio(dict(zip(rounds, ratio.tolist(), strict=True)), dict.fromkeys(rounds, 1.0))


def pooled_wrong(campaigns: Float[np.ndarray, "C relays R"]) -> float:
    """How often the interval of the median of all rounds, as if each were a replicate, leaves out the true ratio."""
    intervals = [stats.median_interval(campaign.ravel().tolist()) for campaign in campaigns]
    return float(np.mean([not x.low <= 0 <= x.high for x in intervals]))
