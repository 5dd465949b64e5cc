"""Which candidate to choose for a project: ranks with ties, and the steps and sizes at which the choice changes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from benchback import registry
from benchback.analysis.prediction import (
    Forecast,
    Measured,
    Quantity,
    difference,
    forecasts,
    level_of,
    processes,
    reference_of,
    with_loaded_start,
)
from benchback.measure.candidates import Question, with_hidden
from benchback.measure.cost import iteration_flops
from benchback.measure.record import Cell
from benchback.runs import Run

BEYOND = 4
"""Sizes are predicted up to so many times the largest width that was measured."""


@dataclass(frozen=True)
class Ranked:
    """A candidate in the ranking."""

    forecast: Forecast
    total: Quantity
    """Seconds of the whole project, one training after another."""
    at_once_s: float
    """Seconds of the project with as many trainings at once as there are processors, if they do not slow each other."""
    loaded_s: float | None
    """Seconds of the project if compiled programs are kept between processes; None if that was not measured."""
    slower: Quantity
    """Seconds that it takes longer than the first."""
    ratio: float
    """Its total relative to that of the first."""
    place: int
    """1 plus the number of candidates that are faster beyond doubt: tied candidates can share a place."""


@dataclass(frozen=True)
class StepsCrossing:
    """Where the total times of the first candidate and of another one cross."""

    other: Cell
    steps: float | None
    """Environment steps of a training; None if they do not cross once both are warm."""
    other_ahead: str
    """`below` or `above` so many steps, or `never`."""
    certain: bool
    """Whether both the starts and the slopes differ beyond doubt."""


class NoSize(Enum):
    """Reasons why the size at which the choice changes is not known."""

    ONE_FAMILY = auto()
    """Only one array framework takes part."""
    NOT_MEASURED = auto()
    """There was no time to measure a second size."""
    NO_FIT = auto()
    """The larger network took no longer."""


class Skipped(Enum):
    """Reasons why a candidate that could run was not measured."""

    NO_TIME = auto()
    LONG_ITERATIONS = auto()
    """An iteration is so long that nothing is gained by calling several at once."""


@dataclass(frozen=True)
class SizeCrossing:
    """Width of the hidden layers at which the total times of the best of two array frameworks cross."""

    first: Cell
    """The one that is ahead at the size asked about."""
    other: Cell
    layers: int
    widths: tuple[int, int]
    """Widest layers of the two sizes that were measured."""
    width: int | None
    """None if they do not cross up to `up_to`."""
    up_to: int
    ahead: str
    """Where the other one is ahead: `below` or `above` the width, or `never`."""


@dataclass(frozen=True)
class Answer:
    """Everything that terminal, page and JSON show."""

    question: Question
    ranked: tuple[Ranked, ...]
    """The fastest first."""
    crossings: tuple[StepsCrossing, ...]
    size: SizeCrossing | NoSize
    left_out: Mapping[str, str | Skipped]
    """Backend or variant -> why it has no prediction; a text is what the failed program said."""
    relays: int
    spent_s: float
    busy: tuple[str, ...] = ()
    """How the machine was disturbed while measuring."""
    interrupted: bool = False

    @property
    def best(self) -> Ranked:
        """The candidate with the least predicted time."""
        return self.ranked[0]

    @property
    def tied(self) -> tuple[Ranked, ...]:
        """The others that nobody beats beyond doubt, or that the first does not."""
        return tuple(x for x in self.ranked[1:] if not decided(x.slower))


def decided(found: Quantity) -> bool:
    """Whether a difference is not zero beyond doubt."""
    return found.low > 0 or found.high < 0


def rank(measured: Sequence[Measured], question: Question) -> tuple[Ranked, ...]:
    """All candidates, the fastest first."""
    iterations, seeds = question.iterations, question.seeds
    found = {x.cell.id: (x, made) for x, made in zip(measured, forecasts(measured, seeds), strict=True)}
    level = level_of(reference_of(measured), seeds).error
    order = sorted(found.values(), key=lambda pair: pair[1].total(iterations, seeds).value)
    first = order[0]
    rows = []
    for pair in order:
        others = [difference(pair, other, iterations, seeds, level) for other in order if other is not pair]
        total = pair[1].total(iterations, seeds)
        rows.append(
            Ranked(
                pair[1],
                total,
                -(-processes(pair[0].cell, seeds) // question.at_once) * pair[1].training(iterations).value,
                loaded_total(pair[1], iterations, seeds),
                Quantity(0.0, 0.0) if pair is first else difference(pair, first, iterations, seeds, level),
                total.value / first[1].total(iterations, seeds).value,
                1 + sum(apart.low > 0 for apart in others),
            )
        )
    return tuple(rows)


def loaded_total(forecast: Forecast, iterations: int, seeds: int) -> float | None:
    """Seconds of the project in which only the first process compiles."""
    later = with_loaded_start(forecast)
    if later is None:
        return None
    others = processes(forecast.cell, seeds) - 1
    return forecast.training(iterations).value + others * later.training(iterations).value


def steps_crossings(ranked: Sequence[Ranked], question: Question) -> tuple[StepsCrossing, ...]:
    """The crossing of the first candidate with each other one, in order of the ranking."""
    first, batch_size = ranked[0].forecast, question.config.batch_size
    return tuple(steps_crossing(first, x.forecast, batch_size, question.seeds) for x in ranked[1:])


def steps_crossing(first: Forecast, other: Forecast, batch_size: int, seeds: int = 1) -> StepsCrossing:
    """Where start + slope x iterations of all seeds are equal: exact for the lines, once both are warm."""
    runs = [processes(x.cell, seeds) for x in (first, other)]
    (start, slope), (other_start, other_slope) = (
        [count * x for x in each.line] for count, each in zip(runs, (first, other), strict=True)
    )
    behind, gain = start - other_start, other_slope - slope
    starts = Quantity(behind, math.hypot(runs[0] * first.first_call.error, runs[1] * other.first_call.error))
    slopes = Quantity(gain, math.hypot(runs[0] * first.steady.error, runs[1] * other.steady.error))
    certain = decided(starts) and decided(slopes)
    iterations = behind / gain if gain else math.inf
    warm = max(first.warm_iterations, other.warm_iterations)
    if not warm < iterations < math.inf:
        return StepsCrossing(other.cell, None, "never", certain)
    return StepsCrossing(other.cell, iterations * batch_size, "below" if gain > 0 else "above", certain)


def families(ranked: Sequence[Ranked]) -> dict[str, Ranked]:
    """The best candidate of each array framework."""
    found: dict[str, Ranked] = {}
    for row in ranked:
        found.setdefault(registry.BACKENDS[row.forecast.cell.run["backend"]].family, row)
    return found


@dataclass(frozen=True)
class SizeLine:
    """Seconds of a project over the floating-point operations of an agent's iteration."""

    fixed_s: float
    per_flop_s: float


def size_line(forecast: Forecast, resized: Cell, resized_s: float, iterations: int, seeds: int = 1) -> SizeLine | None:
    """Line through two sizes: an iteration takes overhead + operations / rate; None if the larger is not slower."""
    flops, steady_s = iteration_flops(forecast.cell), forecast.steady.value
    other_flops = iteration_flops(resized)
    rate_s = (resized_s - steady_s) / (other_flops - flops)
    if rate_s <= 0:
        return None
    overhead_s = steady_s - rate_s * flops
    before_s = forecast.training(iterations).value - iterations * steady_s
    runs = processes(forecast.cell, seeds)
    return SizeLine(runs * (before_s + iterations * overhead_s), runs * iterations * rate_s)


def size_crossing(
    ranked: Sequence[Ranked], resized: Mapping[str, tuple[Cell, float]], question: Question
) -> SizeCrossing | NoSize:
    """Width at which the best candidates of two array frameworks, of those with two sizes, take the same time.

    `resized` has, by cell id, the cell of another size and its seconds of an iteration.
    """
    if len(families(ranked)) < 2:
        return NoSize.ONE_FAMILY
    best = list(families([row for row in ranked if row.forecast.cell.id in resized]).values())
    if len(best) < 2:
        return NoSize.NOT_MEASURED
    first, other = (row.forecast for row in best[:2])
    lines = [size_line(x, *resized[x.cell.id], question.iterations, question.seeds) for x in (first, other)]
    if lines[0] is None or lines[1] is None:
        return NoSize.NO_FIT
    hidden, measured = (Run.from_dict(dict(c.run)).config.hidden for c in (first.cell, resized[first.cell.id][0]))
    widths = max(hidden), max(measured)
    up_to = BEYOND * max(widths)
    gain = lines[1].per_flop_s - lines[0].per_flop_s
    flops = (lines[0].fixed_s - lines[1].fixed_s) / gain if gain else math.inf
    width = width_for(first.cell, flops, len(hidden), up_to)
    ahead = "never" if width is None else "below" if gain > 0 else "above"
    return SizeCrossing(first.cell, other.cell, len(hidden), (min(widths), max(widths)), width, up_to, ahead)


def width_for(cell: Cell, flops: float, layers: int, up_to: int) -> int | None:
    """The least width of equal hidden layers with so many operations; None if it is not between 1 and `up_to`."""
    if (
        not iteration_flops(with_hidden(cell, [1] * layers))
        <= flops
        <= iteration_flops(with_hidden(cell, [up_to] * layers))
    ):
        return None
    low, high = 1, up_to
    while low < high:
        middle = (low + high) // 2
        if iteration_flops(with_hidden(cell, [middle] * layers)) < flops:
            low = middle + 1
        else:
            high = middle
    return low
