"""From points to programs: points that differ only in floats are members of one population.

Integers and words give a program its shape, so there are as many programs as different shapes. Importing this imports
no framework; `plan` does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchback import envs
from benchback.population.spec import Members
from benchback.training.run import Run


@dataclass(frozen=True)
class Program:
    """Points of one shape, each with every seed."""

    run: Run
    """What the members share; each has its own seed and tuned floats."""
    shape: Mapping[str, Any]
    """The tuned fields that are not floats."""
    points: tuple[int, ...]
    """Their numbers in the space."""
    members: Members
    """Point by point: member p * seeds + j has the j-th seed."""

    @property
    def seeds(self) -> int:
        """Members of every point."""
        return len(self.members) // len(self.points)


@dataclass(frozen=True)
class Planned:
    """What a program will take."""

    program: Program
    group: int
    """Members side by side."""
    bytes: int
    """Memory of all members, with the copies that a checkpoint makes."""


def tuned_floats(run: Run, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The floats that points set: members of one program can differ in them."""
    return [name for name in run.config.hyper._fields if any(name in point for point in points)]


def programs_of(
    base: Mapping[str, Any], points: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> tuple[Program, ...]:
    """As few programs as there are shapes among the points, in order of mention; what cannot run is refused here."""
    shapes: dict[str, list[int]] = {}
    runs = [Run.from_dict({**base, **point, "seed": seeds[0]}) for point in points]
    floats = [tuned_floats(run, [point]) for run, point in zip(runs, points, strict=True)]
    for number, (point, names) in enumerate(zip(points, floats, strict=True)):
        shape = {name: x for name, x in point.items() if name not in names}
        shapes.setdefault(json.dumps(shape, sort_keys=True), []).append(number)
    return tuple(_program(base, points, runs, numbers, seeds) for numbers in shapes.values())


def _program(
    base: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    runs: Sequence[Run],
    numbers: Sequence[int],
    seeds: Sequence[int],
) -> Program:
    floats = tuned_floats(runs[numbers[0]], [points[i] for i in numbers])
    shape = {name: x for name, x in points[numbers[0]].items() if name not in floats}
    values = {name: tuple(getattr(runs[i].config, name) for i in numbers for _ in seeds) for name in floats}
    run = Run.from_dict({**base, **shape, "seed": seeds[0]})
    return Program(run, shape, tuple(numbers), Members(tuple(seeds) * len(numbers), values))


def fits(run: Run) -> bool:
    """Whether many agents of the run can be one program."""
    return run.framework == "jax" and run.env.partition("/")[0] not in envs.EXTERNAL


def plan(programs: Sequence[Program], group: int | None = None, devices: int = 1, width: int = 1) -> list[Planned]:
    """What each program will take, told from shapes before anything is compiled; `width` as in `Search`."""
    from benchback.population.training import likely, need

    found = []
    for program in programs:
        size = len(program.members)
        beside = group or likely(program.run, -(-size // width), devices).group
        found.append(Planned(program, beside, need(program.run, beside).total(size)))
    return found
