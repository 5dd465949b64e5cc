"""What evolves: a vector of numbers, and what it means for members of a population.

A drift is the weights of PPO's learned surrogate. Hyper-parameters are float fields of a run, each within a range: the
vector holds the logit of how far through its range each one is, so that any vector is a valid point. A schedule is a
field with several such numbers, its values at evenly spaced moments of a training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from benchback.errors import InputError
from benchback.math.records import DRIFT_FEATURES, WEIGHTS_PER_UNIT
from benchback.population.ranges import Range
from benchback.population.spec import Value, check_float, parse_axis
from benchback.training.run import Run

WIDEST = 1024
SCALES = (0.1, 1.0)
"""Standard deviations between which random search draws that of each drift."""


class Genome(Protocol):
    """Vectors that evolve."""

    @property
    def start(self) -> np.ndarray:
        """Where evolution begins."""
        ...

    def values(self, vectors: np.ndarray) -> dict[str, tuple[Value, ...]]:
        """The fields in which members with these vectors, `[N, D]`, differ."""
        ...

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """A vector for random search, which knows nothing but where evolution begins."""
        ...

    def fields(self, vector: np.ndarray) -> dict[str, Any]:
        """The fields of a run that one vector is, as plain data."""
        ...


@dataclass(frozen=True)
class Drift:
    """The weights of a learned drift with so many hidden units."""

    begin: tuple[float, ...]

    @property
    def start(self) -> np.ndarray:
        return np.array(self.begin)

    def values(self, vectors: np.ndarray) -> dict[str, tuple[Value, ...]]:
        # As float32 has them: what is written to a file is then what was trained with.
        return {"objective": tuple(tuple(map(float, x)) for x in vectors.astype(np.float32))}

    def draw(self, random: np.random.Generator) -> np.ndarray:
        low, high = np.log(SCALES)
        return self.start + np.exp(random.uniform(low, high)) * random.normal(size=len(self.begin))

    def fields(self, vector: np.ndarray) -> dict[str, Any]:
        return {"surrogate": "learned", "objective": list(map(float, vector.astype(np.float32)))}


def no_drift(width: int, seed: int) -> Drift:
    """A drift that is zero everywhere, whose hidden units are drawn at random: only their outputs are zero."""
    if not 1 <= width <= WIDEST:
        raise InputError(f"--width {width} must lie between 1 and {WIDEST}; 8 hidden units are enough for a clip")
    table = np.zeros((WEIGHTS_PER_UNIT, width))
    table[:DRIFT_FEATURES] = np.random.default_rng([seed, 17]).normal(size=(DRIFT_FEATURES, width)) / np.sqrt(
        DRIFT_FEATURES
    )
    return Drift(tuple(map(float, table.ravel())))


@dataclass(frozen=True)
class Floats:
    """Float fields of a run, each within its range; schedules are fields of several floats within one range."""

    ranges: Mapping[str, Range]
    begin: Mapping[str, Value]

    @property
    def start(self) -> np.ndarray:
        shares = [_share(source, x) for name, source in self.ranges.items() for x in np.atleast_1d(self.begin[name])]
        return _logit(np.clip(shares, 0.02, 0.98))

    def values(self, vectors: np.ndarray) -> dict[str, tuple[Value, ...]]:
        columns = iter(1 / (1 + np.exp(-np.clip(vectors.T, -50, 50))))  # beyond, the ends of the range
        return {name: self._values(name, columns) for name in self.ranges}

    def _values(self, name: str, columns: Iterator[np.ndarray]) -> tuple[Value, ...]:
        """The values of a field, of which the next columns have the shares."""
        at, begin = self.ranges[name].at, self.begin[name]
        if isinstance(begin, tuple):
            own = np.stack([next(columns) for _ in begin], axis=1)
            return tuple(tuple(at(float(share)) for share in row) for row in own)
        return tuple(at(float(share)) for share in next(columns))

    def draw(self, random: np.random.Generator) -> np.ndarray:
        return _logit(random.uniform(1e-6, 1 - 1e-6, size=len(self.start)))

    def fields(self, vector: np.ndarray) -> dict[str, Any]:
        each = {name: x[0] for name, x in self.values(vector[None]).items()}
        return {name: list(x) if isinstance(x, tuple) else x for name, x in each.items()}


def floats_of(run: Run, given: Mapping[str, str]) -> tuple[Run, Floats]:
    """The run, with its schedules as data where they evolve, and the fields with their ranges, as `--vary` has them."""
    ranges = {}
    for name, text in given.items():
        ranges[name], knots = _range_of(run, name, text)
        if knots is not None:
            run = replace(run, config=run.config.with_knots(name, knots))
        for end in (ranges[name].low, ranges[name].high):
            replace(run.config, **{name: (end,) * knots if knots else end})  # its checks refuse what makes no sense
    return run, Floats(ranges, {name: getattr(run.config, name) for name in ranges})


def _range_of(run: Run, name: str, text: str) -> tuple[Range, int | None]:
    """The range in which a field evolves, and of a schedule the number of its knots."""
    scheduled = name in getattr(run.config, "schedules", ())
    if not scheduled:
        check_float(run, name, "--evolve")
    example = f"its number of knots behind a range, e.g. {name}=0..1:6" if scheduled else f"{name}=log:1e-4..1e-2"
    axis = parse_axis(name, text, "--evolve") if ".." in text else None
    if axis is None or not isinstance(axis.source, Range) or (axis.count is None) == scheduled:
        kind = "have" if scheduled else "be a range, e.g."
        raise InputError(f"--evolve {name}={text[:60]} must {kind} {example}")
    return axis.source, axis.count


def _share(source: Range, value: float) -> float:
    """How far through the range a value is; an end for one that is outside."""
    value = min(max(value, source.low), source.high)
    low, high, at = np.log([source.low, source.high, value]) if source.log else (source.low, source.high, value)
    return float((at - low) / (high - low))


def _logit(share: Any) -> np.ndarray:
    share = np.asarray(share, float)
    return np.log(share / (1 - share))


def members_of(genome: Genome, vectors: np.ndarray, seeds: Sequence[int]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Seeds and values of the members: every vector with every seed, vector by vector."""
    each = genome.values(np.repeat(vectors, len(seeds), axis=0))
    return tuple(seeds) * len(vectors), each
