"""What the members of a population are: their seeds, and the float fields in which they differ.

`Population` is what a user asks for, `Members` what follows from it: a seed for each member, and a number for each
member and varied field. Integers and words give the program its shape, so they are common to all members.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal, get_args

import numpy as np

from benchback import registry
from benchback.errors import InputError, hint
from benchback.population.ranges import Range, parse_range
from benchback.training.run import Run

Sampling = Literal["grid", "random", "sobol"]
Value = float | tuple[float, ...]
"""Of a field in which members differ: a number, or a vector as the weights of a learned drift are."""
MOST_MEMBERS = 2**20
KEEPS = re.compile(r"best|all|every:[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Population:
    """A population as it is asked for: every point of the varied fields, each with the same seeds."""

    vary: Mapping[str, str | Sequence[float | int]] = field(default_factory=dict)
    """Field -> its values, as numbers or `a,b,c`; or a range, `LOW..HIGH` or `log:LOW..HIGH`, in a grid with `:COUNT`
    behind it."""
    points: int | None = None
    """Points of the varied fields; None: as many as the grid has, 1 if nothing varies."""
    seeds: int = 1
    """Members of every point, from the run's seed on."""
    sampling: Sampling | None = None
    """How points are placed; None: a grid, or sobol if `points` is given."""
    keep: str = "best"
    """Members that become run folders of their own at the end: best, all or every:K."""
    group: int | None = None
    """Members side by side; None: as many as the processor's cache is likely to hold."""
    devices: int = 1
    """Devices over which the members are divided evenly."""
    thin: int | None = None
    """Iterations that a row of a member's curve stands for; None: as few as leave a curve 2,000 rows."""

    def __post_init__(self) -> None:
        flags = {
            "seeds": "--seeds",
            "points": "--population",
            "group": "--group",
            "devices": "--devices",
            "thin": "--thin",
        }
        for name, flag in flags.items():
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{flag} {getattr(self, name)} must be at least 1")
        if self.sampling is not None:
            registry.choose("sampling", self.sampling, get_args(Sampling))
        if not KEEPS.fullmatch(self.keep):
            raise InputError(f"keep={self.keep[:40]} is unknown; choose best, all or every:K, e.g. every:8")
        if not self.vary and self.points is not None:
            raise InputError(
                f"--population {self.points} without --vary are equal points; use --seeds {self.points} to differ by "
                "seed, or vary a field, e.g. --vary gamma=0.9..0.999"
            )
        if not self.vary and self.sampling is not None:
            raise InputError(f"--sampling {self.sampling} has nothing to place; give --vary FIELD=LOW..HIGH")

    @property
    def iterations_per_row(self) -> int:
        """As `thin`; populations from before curves were thinned do not say it, and have a row for each."""
        return self.thin or 1


@dataclass(frozen=True)
class Members:
    """The seed of each member, and its value of each varied field."""

    seed: tuple[int, ...]
    values: Mapping[str, tuple[Value, ...]]

    def __post_init__(self) -> None:
        for name, given in self.values.items():
            if len(given) != len(self.seed):
                raise InputError(f"{name} has {len(given)} values for {len(self.seed)} members; give one for each")

    def __len__(self) -> int:
        return len(self.seed)

    def point(self, index: int) -> dict[str, Value]:
        """The varied fields of one member."""
        return {name: values[index] for name, values in self.values.items()}

    def run(self, base: Run, index: int) -> Run:
        """The run that one member is."""
        return replace(base, seed=self.seed[index], config=replace(base.config, **self.point(index)))


def members_of(asked: Population, run: Run) -> Members:
    """The members of the population, point by point; all points have the same seeds, from the run's seed on."""
    axes = {name: _axis(run, name, given) for name, given in asked.vary.items()}
    sampling = asked.sampling or ("grid" if asked.points is None else "sobol")
    count = _grid_size(axes, asked.points) if sampling == "grid" else _asked_points(axes, asked, sampling)
    if count * asked.seeds > MOST_MEMBERS or run.seed + asked.seeds > 2**32:
        raise InputError(f"{count} points x {asked.seeds} seeds from {run.seed} on are too many; choose fewer --seeds")
    points = _grid(axes) if sampling == "grid" else _drawn(axes, count, sampling, run.seed)
    for point in points:
        replace(run.config, **point)  # its checks refuse values that make no sense
    seeds = range(run.seed, run.seed + asked.seeds)
    values = {name: tuple(point[name] for point in points for _ in seeds) for name in axes}
    return Members(tuple(seeds) * len(points), values)


def grid_of(vary: Mapping[str, str | Sequence[float | int]], size: int, run: Run) -> Members:
    """So many members: every point of the grid, each with as many seeds as that takes."""
    points = len(members_of(Population(vary), run))
    if size % points:
        raise InputError(f"{size} members do not divide among the {points} points of the grid; use {4 * points}, say")
    return members_of(Population(vary, seeds=size // points), run)


def kept(keep: str, size: int, best: int) -> list[int]:
    """Members that `keep` names: best, all or every:K."""
    if keep == "best":
        return [best]
    return list(range(0, size, 1 if keep == "all" else int(keep.removeprefix("every:"))))


def parse_vary(given: Sequence[str], flag: str = "--vary") -> dict[str, str]:
    """Field -> specification, of texts `FIELD=SPECIFICATION`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, specification = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"{flag} {text[:80]} must be FIELD=VALUE,VALUE or FIELD=LOW..HIGH, e.g. gamma=0.9,0.99")
        if name in found:
            raise InputError(f"{flag} {name[:60]} is given twice; list its values once: {name[:60]}=VALUE,VALUE")
        found[name] = specification
    return found


@dataclass(frozen=True)
class Axis:
    """Where the values of a field come from."""

    source: Range | tuple[float, ...]
    count: int | None
    """Values in a grid; None for a range that does not say."""

    def at(self, share: float) -> float:
        """The value that lies this share of the way through the source."""
        return self.source.at(share) if isinstance(self.source, Range) else self.source[int(share * len(self.source))]

    def grid(self) -> list[float]:
        if not isinstance(self.source, Range):
            return list(self.source)
        return [self.source.at(share) for share in np.linspace(0.0, 1.0, self.count or 1).tolist()]


def parse_axis(name: str, given: str, flag: str = "--vary") -> Axis:
    """The range `LOW..HIGH` of a field, with its number of values in a grid if `:COUNT` is behind it."""
    counted = re.fullmatch(r"(.*\.\.[^:]*):(\d{1,7})", given)
    ends, count = (counted[1], int(counted[2])) if counted else (given, None)
    if count is not None and count < 2:
        raise InputError(f"{flag} {name}={given[:80]} must have at least 2 values; {name}=VALUE is a single one")
    return Axis(parse_range(f"{flag} {name}", ends), count)


def _axis(run: Run, name: str, given: str | Sequence[float | int]) -> Axis:
    check_float(run, name)
    if isinstance(given, str) and ".." in given:
        return parse_axis(name, given)
    values = _numbers(name, given.split(",") if isinstance(given, str) else given)
    return Axis(values, len(values))


def check_float(run: Run, name: str, flag: str = "--vary") -> None:
    """Raise an InputError unless the field is a float that members can differ in."""
    floats = [name for name, x in run.config.hyper._asdict().items() if not np.ndim(x)]
    if name in floats:
        return
    if name == "seed":
        raise InputError("seed is not varied: --seeds N gives every point the N seeds from --seed on")
    known = {f.name for cls in (Run, type(run.config)) for f in fields(cls)} - {"config"}
    if name in known:
        raise InputError(
            f"{flag} {name}: it is part of the program, the same for all members; train a population for each value, "
            f"or vary one of {', '.join(floats)}"
        )
    raise InputError(f"{flag} {name[:60]}: not a field of a {run.algorithm} run; {hint(name, floats)}")


def _numbers(name: str, given: Sequence[Any]) -> tuple[float, ...]:
    if not len(given) or list(given) == [""]:
        raise InputError(f"--vary {name} has no values; give at least one, e.g. {name}=0.1,0.2")
    found = []
    for x in given:
        try:
            found.append(float(x))
        except (TypeError, ValueError):
            raise InputError(
                f"--vary {name}={str(x)[:40]} is not a number; write {name}=0.1,0.2 or LOW..HIGH"
            ) from None
        if not math.isfinite(found[-1]):
            raise InputError(f"--vary {name}={x} must be finite; leave it out of the list")
    return tuple(found)


def _grid_size(axes: Mapping[str, Axis], points: int | None) -> int:
    for name, axis in axes.items():
        if axis.count is None:
            raise InputError(
                f"--vary {name} is a range, of which a grid needs a number of values; write {name}=LOW..HIGH:8, "
                "or draw points with --population N"
            )
    size = math.prod(axis.count or 1 for axis in axes.values())
    if points not in (None, size):
        raise InputError(
            f"--population {points} is not the size of the grid, {size}; leave it out, or --sampling sobol"
        )
    return size


def _asked_points(axes: Mapping[str, Axis], asked: Population, sampling: Sampling) -> int:
    if asked.points is None:
        raise InputError(f"--sampling {sampling} needs a number of points; give --population N")
    for name, axis in axes.items():
        if isinstance(axis.source, Range) and axis.count is not None:
            raise InputError(f"--vary {name} gives a number of values, which only a grid has; use --sampling grid")
    return asked.points


def _grid(axes: Mapping[str, Axis]) -> list[dict[str, float]]:
    return [dict(zip(axes, choice, strict=True)) for choice in product(*(axis.grid() for axis in axes.values()))]


def _drawn(axes: Mapping[str, Axis], count: int, sampling: Sampling, seed: int) -> list[dict[str, float]]:
    """`count` points, the same for the same seed."""
    shares = PLACES[sampling](len(axes), count, np.random.default_rng([seed, 3]))
    return [{name: axis.at(x) for (name, axis), x in zip(axes.items(), row, strict=True)} for row in shares.tolist()]


def _sobol(dimensions: int, count: int, random: np.random.Generator) -> np.ndarray:
    from scipy.stats.qmc import Sobol

    # Whole powers of two only: other numbers are not balanced, and scipy warns.
    return Sobol(dimensions, scramble=True, rng=random).random_base2((count - 1).bit_length())[:count]


PLACES: Mapping[str, Callable[[int, int, np.random.Generator], np.ndarray]] = {
    "random": lambda dimensions, count, random: random.random((count, dimensions)),
    "sobol": _sobol,
}
"""How shares of each axis are placed, in [0, 1)."""
