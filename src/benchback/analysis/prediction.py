"""Predicts the time of whole trainings from relays: pure functions on what the relays measured.

A training takes its first call (start, imports, compiling), its warm-up as measured, then steady iterations. Relative
standard errors are added in squares: of a median within a relay, half of its distribution-free interval over 1.96;
between processes, the spread of relays, to which an assumed one counts as one more observation. So a single relay has
the assumed spread: 10 % for a start, 1 % for a steady iteration. Medians leave out what disturbs a machine now and
then; a whole training does not, so they are raised by the mean over the median of the calls, one factor for all
candidates. Intervals are 95 %, and hold while the machine is as busy as it was.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchback import stats
from benchback.measure.metrics import counted_calls, mean_call, run_turns, running_share
from benchback.measure.record import Cell, Record
from benchback.stats.relay import FEWEST_ROUNDS

START_SPREAD = 0.10
"""Assumed relative standard deviation of starts."""
PROCESS_SPREAD = 0.01
"""Assumed relative standard deviation of steady times between processes, and of the ratio of two of them."""
NORMAL = 1.96
"""Standard errors on each side of a 95 % interval."""


@dataclass(frozen=True)
class Quantity:
    """A value in seconds with its standard error."""

    value: float
    error: float

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.value - NORMAL * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.value + NORMAL * self.error


@dataclass(frozen=True)
class Timing:
    """Times of a candidate in one relay."""

    first_call_s: float
    """From starting the process to the end of the first call."""
    warm_s: tuple[float, ...]
    """Of the other calls before the first turn."""
    turns: Mapping[int, float]
    """Round -> seconds of an iteration."""
    per_call: int
    """Iterations of a call."""
    peak_bytes: float
    cold: bool
    """Whether it compiled its programs; else it loaded them."""
    disturbed: float = 1.0
    """Mean over median of the counted calls."""


@dataclass(frozen=True)
class Measured:
    """A candidate with its times by relay."""

    cell: Cell
    relays: Mapping[int, Timing]

    @property
    def starts(self) -> list[Timing]:
        """The relays whose start is that of a fresh process without compiled programs; all if there is none."""
        return [timing for timing in self.relays.values() if timing.cold] or list(self.relays.values())


@dataclass(frozen=True)
class Forecast:
    """The times of a candidate from which those of whole trainings follow."""

    cell: Cell
    first_call: Quantity
    warm_s: tuple[float, ...]
    """Of the calls after the first, before it is steady."""
    steady: Quantity
    """Of an iteration."""
    per_call: int
    peak_bytes: float
    loaded_s: float | None
    """First call of a process that loads compiled programs, if one was measured."""
    relays: int
    rounds: int

    @property
    def warm_iterations(self) -> int:
        """Iterations before it is steady."""
        return (1 + len(self.warm_s)) * self.per_call

    @property
    def start_s(self) -> float:
        """Seconds that are not training: the first call without the iterations in it."""
        return max(0.0, self.first_call.value - self.per_call * self.steady.value)

    @property
    def line(self) -> tuple[float, float]:
        """Intercept and slope of the seconds of a training over its iterations, once it is warm."""
        before_s = self.first_call.value + math.fsum(self.warm_s)
        return before_s - self.warm_iterations * self.steady.value, self.steady.value

    def steady_iterations(self, iterations: int) -> int:
        """Iterations after the warm-up, in whole calls."""
        return max(0, -(-iterations // self.per_call) * self.per_call - self.warm_iterations)

    def training(self, iterations: int) -> Quantity:
        """Seconds of one training in a process of its own."""
        calls = -(-iterations // self.per_call)
        before_s = self.first_call.value + math.fsum(self.warm_s[: max(0, calls - 1)])
        later = self.steady_iterations(iterations)
        error = math.hypot(self.first_call.error, later * self.steady.error)
        return Quantity(before_s + later * self.steady.value, error)

    def total(self, iterations: int, seeds: int) -> Quantity:
        """Seconds of one training after another, each of as many seeds as its program has agents."""
        one, runs = self.training(iterations), processes(self.cell, seeds)
        return Quantity(runs * one.value, runs * one.error)


@dataclass(frozen=True)
class Level:
    """A logarithm with its standard error."""

    log: float
    error: float


def processes(cell: Cell, seeds: int) -> int:
    """Processes that train so many seeds, as many in each as it has agents."""
    return -(-seeds // cell.members)


def timing_of(record: Record) -> Timing | None:
    """The times in a relay's record; None if it took too few turns."""
    turns = run_turns(record)["steady"]
    if len(turns) < FEWEST_ROUNDS:
        return None
    rounds = record.samples["round"]
    warm = [x or 0.0 for x, place in zip(record.samples["total_s"], rounds, strict=True) if place == 0]
    return Timing(
        record.marks["first_call"],
        tuple(warm[1:]),
        turns,
        record.ledger["iterations_per_call"],
        record.memory["peak_rss_bytes"],
        not record.ledger.get("cached_files_before", 0),
        _disturbed(record),
    )


def _disturbed(record: Record) -> float:
    """Mean of the counted calls of all turns, waiting for a processor included, over their median without it."""
    counted = [x for calls in counted_calls(record, "total_s", running_share(record)).values() for x in calls]
    return mean_call(record).iteration_s / statistics.median(counted)


def forecasts(measured: Sequence[Measured], seeds: int) -> list[Forecast]:
    """A forecast for each candidate, whose errors are those of the mean of so many future trainings.

    Steady times are those of a reference, the candidate in most relays, times the ratio to it: what the machine does to
    everybody cancels in their differences.
    """
    reference = reference_of(measured)
    level = disturbed_level(measured, level_of(reference, seeds))
    return [_forecast(x, _steady(x, reference, level, seeds), seeds) for x in measured]


def reference_of(measured: Sequence[Measured]) -> Measured:
    """The candidate in most relays; of several, the fastest."""
    return min(measured, key=lambda x: (-len(x.relays), own_median(x)))


def own_median(measured: Measured) -> float:
    """Median of all turns, in seconds of an iteration."""
    return statistics.median(x for timing in measured.relays.values() for x in timing.turns.values())


def level_of(measured: Measured, seeds: int) -> Level:
    """Logarithm of its seconds of an iteration, by its own turns."""
    logs = [[math.log(x) for x in timing.turns.values()] for timing in measured.relays.values()]
    return pooled(logs, PROCESS_SPREAD, processes(measured.cell, seeds))


def disturbed_level(measured: Sequence[Measured], level: Level) -> Level:
    """The level raised by what disturbs the machine now and then: the mean over all candidates and relays."""
    logs = [math.log(timing.disturbed) for x in measured for timing in x.relays.values()]
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return Level(level.log + statistics.fmean(logs), math.hypot(level.error, error))


def log_ratio(a: Measured, b: Measured, seeds: int) -> Level | None:
    """Logarithm of the ratio of their steady times, by common rounds; None if they have no relay in common."""
    logs = []
    for number in sorted(a.relays.keys() & b.relays.keys()):
        first, second = a.relays[number].turns, b.relays[number].turns
        common = sorted(first.keys() & second.keys())
        if len(common) >= FEWEST_ROUNDS:
            logs.append([math.log(first[place] / second[place]) for place in common])
    future = min(processes(x.cell, seeds) for x in (a, b))
    return pooled(logs, PROCESS_SPREAD, future) if logs else None


def pooled(logs: Sequence[Sequence[float]], assumed: float, future: int) -> Level:
    """Median over relays of medians within them; the error is that of the mean of so many future processes."""
    medians = [stats.median_interval(values) for values in logs]
    count = len(medians)
    middle = statistics.median(x.value for x in medians)
    within = math.fsum(((x.high - x.low) / (2 * NORMAL)) ** 2 for x in medians) / count**2
    spread = (assumed**2 + math.fsum((x.value - middle) ** 2 for x in medians)) / count
    return Level(middle, math.sqrt(within + spread * (1 / count + 1 / future)))


def _steady(measured: Measured, reference: Measured, level: Level, seeds: int) -> Quantity:
    if measured is reference:
        return _quantity(level)
    ratio = log_ratio(measured, reference, seeds)
    if ratio is None:
        return _quantity(disturbed_level([measured], level_of(measured, seeds)))
    return _quantity(Level(level.log + ratio.log, math.hypot(level.error, ratio.error)))


def _quantity(level: Level) -> Quantity:
    value = math.exp(level.log)
    return Quantity(value, value * level.error)


def _forecast(measured: Measured, steady: Quantity, seeds: int) -> Forecast:
    timings, starts = list(measured.relays.values()), measured.starts
    first = pooled([[math.log(x.first_call_s)] for x in starts], START_SPREAD, processes(measured.cell, seeds))
    loaded = [x.first_call_s for x in timings if not x.cold]
    return Forecast(
        measured.cell,
        _quantity(first),
        starts[0].warm_s,
        steady,
        starts[0].per_call,
        max(x.peak_bytes for x in timings),
        statistics.median(loaded) if loaded else None,
        len(timings),
        sum(len(x.turns) for x in timings),
    )


def difference(
    a: tuple[Measured, Forecast], b: tuple[Measured, Forecast], iterations: int, seeds: int, level: float
) -> Quantity:
    """How many seconds longer a's trainings take than b's; steady times are compared within rounds.

    `level` is the relative error of the reference's steady time, which the others share.
    """
    (own, first), (other, second) = a, b
    ratio = log_ratio(own, other, seeds)
    runs = processes(own.cell, seeds), processes(other.cell, seeds)
    steps = runs[0] * first.steady_iterations(iterations), runs[1] * second.steady_iterations(iterations)
    steady_s = steps[0] * first.steady.value, steps[1] * second.steady.value
    apart = math.hypot(steps[0] * first.steady.error, steps[1] * second.steady.error)
    if ratio is not None:
        apart = math.hypot(steady_s[0] * ratio.error, (steady_s[0] - steady_s[1]) * level)
    error = math.hypot(runs[0] * first.first_call.error, runs[1] * second.first_call.error, apart)
    return Quantity(first.total(iterations, seeds).value - second.total(iterations, seeds).value, error)


def with_loaded_start(forecast: Forecast) -> Forecast | None:
    """The forecast where compiled programs are kept between processes; None if that was not measured."""
    if forecast.loaded_s is None:
        return None
    change = forecast.loaded_s / forecast.first_call.value
    return replace(forecast, first_call=Quantity(forecast.loaded_s, forecast.first_call.error * change))
