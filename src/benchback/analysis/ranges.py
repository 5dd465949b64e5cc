"""Ratios along an axis: where they differ between model sizes or environments, they are listed, not pooled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchback import stats
from benchback.analysis.groups import Group, env_of, model_of
from benchback.stats import Comparison, Verdict

Axis = Literal["model", "env", "cell"]
"""Along which ratios are listed; `cell` where they differ along both axes, or missing cells leave neither whole."""
AXES: Mapping[Axis, Callable[[Group], str]] = {
    "model": lambda group: model_of(group.cells[0]),
    "env": lambda group: env_of(group.cells[0]),
}


@dataclass(frozen=True)
class Point:
    """The ratio at one value of an axis, over the same values of the other axis as its neighbours."""

    value: str
    """A model, an environment, or both."""
    comparison: Comparison


@dataclass(frozen=True)
class Range:
    """Ratios that differ along an axis by more than their intervals."""

    axis: Axis
    points: tuple[Point, ...]
    """In order of mention."""

    @property
    def lowest(self) -> Point:
        """Where the ratio is smallest."""
        return min(self.points, key=lambda point: point.comparison.ratio or 0.0)

    @property
    def highest(self) -> Point:
        """Where the ratio is largest."""
        return max(self.points, key=lambda point: point.comparison.ratio or 0.0)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that all points share; None where they have different ones."""
        found = {point.comparison.verdict for point in self.points}
        return found.pop() if len(found) == 1 else None


def range_of(rows: Mapping[str, Comparison], groups: Sequence[Group]) -> Range | None:
    """Where the ratios of these cells differ, along the axis that spreads them most; None where one number will do.

    `rows` has complete comparisons by the title of their group.
    """
    groups = [group for group in groups if group.title in rows]
    found = [made for axis in AXES if (made := axis_range(rows, groups, axis))]
    along = max(found, key=_spread, default=None)
    parts: dict[str, list[Comparison]] = {}
    for group in groups:
        parts.setdefault(AXES[along.axis](group) if along else "", []).append(rows[group.title])
    if not any(stats.differ([row.estimate for row in part if row.estimate]) for part in parts.values()):
        return along
    points = [Point(f"{env_of(x.cells[0])} {model_of(x.cells[0])}", rows[x.title]) for x in groups]
    return Range("cell", _adjusted(points))


def points_along(rows: Mapping[str, Comparison], groups: Sequence[Group], axis: Axis) -> tuple[Point, ...]:
    """The ratio at every value of an axis, over those values of the other axis that all of them have.

    Over whatever each has, ratios could differ only because cells are missing: large models here, small ones there.
    """
    other: Axis = "env" if axis == "model" else "model"
    found: dict[str, dict[str, list[Comparison]]] = {}
    for group in groups:
        if group.title in rows:
            place = found.setdefault(AXES[axis](group), {})
            place.setdefault(AXES[other](group), []).append(rows[group.title])
    common = set.intersection(*map(set, found.values())) if found else set()
    if not common:
        return ()
    parts = {
        value: [row for name in others if name in common for row in others[name]] for value, others in found.items()
    }
    return _adjusted([Point(value, stats.pool(value, part).overall) for value, part in parts.items()])


def axis_range(rows: Mapping[str, Comparison], groups: Sequence[Group], axis: Axis) -> Range | None:
    """The ratios along one axis, in the mean over the other; None where they do not differ."""
    points = points_along(rows, groups, axis)
    estimates = [point.comparison.estimate for point in points if point.comparison.estimate]
    return Range(axis, points) if len(points) > 1 and stats.differ(estimates) else None


def _spread(found: Range) -> float:
    low, high = found.lowest.comparison.ratio, found.highest.comparison.ratio
    return high / low if low and high else 1.0


def _adjusted(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points with p-values adjusted for their number, and the verdicts that follow."""
    rows = stats.adjust([point.comparison for point in points])
    return tuple(Point(point.value, row) for point, row in zip(points, rows, strict=True))
