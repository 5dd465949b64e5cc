"""Measures the candidates for a project under a budget: relay after relay, each where it tells most."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchback.analysis.advice import Answer, Ranked, Skipped, families, rank, size_crossing, steps_crossings
from benchback.analysis.prediction import Measured, Timing, forecasts, own_median, timing_of
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.candidates import (
    LONG_S,
    Candidates,
    Question,
    candidates,
    least_seconds,
    resized,
    warm_seconds,
)
from benchback.measure.cost import CACHED_S, START_S, iteration_seconds
from benchback.measure.record import Cell
from benchback.measure.trials import RunTrial, Trial
from benchback.measure.wire import parse_record
from benchback.stats.relay import FEWEST_ROUNDS

ROUNDS_SHARE = 12
"""The rounds of a relay last this part of the budget, within the limits below."""
SHORTEST_ROUNDS_S, LONGEST_ROUNDS_S = 5.0, 20.0
CLOSE = 1.1
"""Candidates within this ratio of the first are measured again even if they are beaten beyond doubt."""
SHORTEST_TURN_S = 0.1
"""Seconds of a turn of a short program, its first call included."""
MOST_TRIES = 2
"""A candidate that was left out for want of time or memory is tried again once."""


@dataclass(frozen=True)
class Hooks:
    """What the measurement needs of its surroundings."""

    run_trial: RunTrial
    asked_to_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    progress: Callable[[str, float, float], None] = lambda what, spent_s, budget_s: None
    """(what is done, seconds spent, budget)."""
    sample: Callable[[], dict[str, float]] = machine.sample


@dataclass(frozen=True)
class Findings:
    """Everything that is known so far."""

    relays: tuple[Mapping[str, Timing], ...] = ()
    """Times by cell id, of every relay."""
    cells: Mapping[str, Cell] = field(default_factory=dict)
    """All cells that were tried, by id."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Cell id -> why it failed."""
    tries: Mapping[str, int] = field(default_factory=dict)

    def measured(self, cells: Sequence[Cell]) -> list[Measured]:
        """Those of the cells that have times."""
        found = []
        for cell in cells:
            own = {i: relay[cell.id] for i, relay in enumerate(self.relays) if cell.id in relay}
            if own:
                found.append(Measured(cell, own))
        return found

    def open(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of the cells that were neither measured nor failed, and may be tried."""
        known = {id for relay in self.relays for id in relay} | self.failed.keys()
        return [cell for cell in cells if cell.id not in known and self.tries.get(cell.id, 0) < MOST_TRIES]


def advise(question: Question, budget_s: float, hooks: Hooks) -> Answer:
    """The best answer that the budget allows; KeyboardInterrupt if the user stops before anything is known."""
    chosen = candidates(question)
    check_budget(chosen, budget_s)
    began, before = hooks.clock(), hooks.sample()
    found, interrupted = Findings(), False
    while not interrupted and not hooks.asked_to_stop():
        trial = next_trial(chosen, found, question, budget_s, budget_s - (hooks.clock() - began))
        if trial is None:
            break
        found, interrupted = _run(trial, found, hooks, began, budget_s)
    interrupted = interrupted or hooks.asked_to_stop()
    spent_s = hooks.clock() - began
    busy = machine.violations(machine.between(before, hooks.sample()))
    if not found.measured(chosen.all):
        if interrupted:
            raise KeyboardInterrupt
        raise InputError(_nothing(chosen, found, spent_s))
    return replace(answer_of(chosen, found, question), spent_s=spent_s, busy=busy, interrupted=interrupted)


def _run(trial: Trial, found: Findings, hooks: Hooks, began: float, budget_s: float) -> tuple[Findings, bool]:
    def show(what: str) -> None:
        hooks.progress(what, hooks.clock() - began, budget_s)

    outcome = hooks.run_trial(trial, lambda: not hooks.asked_to_stop(), show)
    times, failed, tries = {}, dict(found.failed), dict(found.tries)
    for cell in trial.cells:
        tries[cell.id] = tries.get(cell.id, 0) + 1
        ended = outcome.ended.get(cell.id)
        if ended is None:
            continue
        if ended.outcome != "ok":
            failed[cell.id] = f"{ended.outcome}: {ended.detail}" if ended.detail else ended.outcome
        elif (timing := timing_of(parse_record(ended.messages[0]["record"]))) is not None:
            times[cell.id] = timing
    cells = {**found.cells, **{cell.id: cell for cell in trial.cells}}
    return Findings((*found.relays, times), cells, failed, tries), outcome.interrupted


def check_budget(chosen: Candidates, budget_s: float) -> None:
    """Raise an InputError if the candidates cannot even be started; the model of costs is good to a factor of two."""
    least_s = least_seconds(chosen.phases)
    if budget_s < least_s / 2:
        raise InputError(
            f"budget={budget_s:.0f}s is too short: to start {len(chosen.phases)} candidates and let them take turns "
            f"takes about {least_s:.0f} s; use --budget {-(-least_s // 60):.0f}m, or name fewer --backends"
        )


def next_trial(chosen: Candidates, found: Findings, question: Question, budget_s: float, left_s: float) -> Trial | None:
    """The next relay: first all backends, then several agents and chunks of the best, another size, the close again."""
    rounds_s = min(max(budget_s / ROUNDS_SHARE, SHORTEST_ROUNDS_S), LONGEST_ROUNDS_S)
    together = 2 if question.device == "gpu" else len(chosen.all)
    measured = found.measured(chosen.all)
    if not measured:
        cells = found.open(chosen.phases)[:together]
        return trial_of(cells, found, left_s, rounds_s) if cells and left_s > 0 else None
    ranked = rank(measured, question)
    for wanted in (_unknown(chosen, found, ranked), _sizes(found, ranked), _close(ranked)):
        cells = fitting(wanted[:together], found, left_s, rounds_s)
        if cells and len(cells) >= min(2, len(wanted)):
            return trial_of(cells, found, left_s, rounds_s)
    return None


def trial_of(cells: Sequence[Cell], found: Findings, left_s: float, rounds_s: float) -> Trial:
    """A relay of the cells that leaves time for its rounds."""
    return Trial(cells, len(found.relays), left_s - max(rounds_s, shortest_rounds(cells, found)), rounds_s)


def _unknown(chosen: Candidates, found: Findings, ranked: Sequence[Ranked]) -> list[Cell]:
    """The first of the ranking, with candidates that have no times yet: the most promising first."""
    place = {row.forecast.cell.run["backend"]: i for i, row in reversed(list(enumerate(ranked)))}
    fast = [cell for cell in chosen.chunks if _worth_a_chunk(cell, ranked)]
    # Several agents in one program save most, so that the best backends are tried so first.
    later = sorted(
        found.open([*chosen.populations, *fast]),
        key=lambda cell: (cell.members == 1, place.get(cell.run["backend"], len(place))),
    )
    cells = [*found.open(chosen.phases), *later]
    return [ranked[0].forecast.cell, *cells] if cells else []


def _worth_a_chunk(cell: Cell, ranked: Sequence[Ranked]) -> bool:
    own = [row.forecast for row in ranked if row.forecast.cell.run["backend"] == cell.run["backend"]]
    return bool(own) and min(forecast.steady.value for forecast in own) < LONG_S


def _sizes(found: Findings, ranked: Sequence[Ranked]) -> list[Cell]:
    """The best candidates of two array frameworks with another network, unless two were measured."""
    known = sizes_of(found, ranked)
    if len(families([row for row in ranked if row.forecast.cell.id in known])) == 2:
        return []
    best = [resized(row.forecast.cell) for row in list(families(ranked).values())[:2]]
    return best if len(best) == 2 and len(found.open(best)) == 2 else []


def _close(ranked: Sequence[Ranked]) -> list[Cell]:
    """Candidates that are not behind beyond doubt, or not by much; at least two."""
    rows = [row for i, row in enumerate(ranked) if i < 2 or row.slower.low <= 0 or row.ratio < CLOSE]
    return [row.forecast.cell for row in rows]


def fitting(cells: Sequence[Cell], found: Findings, left_s: float, rounds_s: float) -> list[Cell]:
    """As many of the cells, from the first on, as can be started and take turns in the time left."""
    for count in range(len(cells), 0, -1):
        starts_s = sum(start_seconds(cell, found) for cell in cells[:count])
        if starts_s + max(rounds_s, shortest_rounds(cells[:count], found)) <= left_s:
            return list(cells[:count])
    return []


def shortest_rounds(cells: Sequence[Cell], found: Findings) -> float:
    """Seconds of as few rounds as a relay has."""
    return FEWEST_ROUNDS * sum(turn_seconds(cell, found) for cell in cells)


def start_seconds(cell: Cell, found: Findings) -> float:
    """Seconds of its next start and warm-up: as before if it was run, else by the model, scaled to this machine."""
    own = found.measured([cell])
    if not own:
        return warm_seconds(cell) * machine_scale(found)
    timings = list(own[0].relays.values())
    loaded = [x.first_call_s for x in timings if not x.cold]
    unknown_s = min(timings[-1].first_call_s, (START_S + CACHED_S) * machine_scale(found))
    return sum(timings[-1].warm_s) + (loaded[-1] if loaded else unknown_s)


def machine_scale(found: Findings) -> float:
    """How many times as long as by the model cold starts took here; 1 while none was measured."""
    ratios = [
        (timing.first_call_s + sum(timing.warm_s)) / warm_seconds(found.cells[id])
        for relay in found.relays
        for id, timing in relay.items()
        if timing.cold
    ]
    return statistics.median(ratios) if ratios else 1.0


def turn_seconds(cell: Cell, found: Findings) -> float:
    """Seconds of a turn, at least: a call, as measured, else by the model."""
    own = found.measured([cell])
    length = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
    return max(SHORTEST_TURN_S, length * (own_median(own[0]) if own else iteration_seconds(cell)))


def answer_of(chosen: Candidates, found: Findings, question: Question) -> Answer:
    """What is known so far, as an answer."""
    ranked = rank(found.measured(chosen.all), question)
    size = size_crossing(ranked, sizes_of(found, ranked), question)
    return Answer(
        question,
        ranked,
        steps_crossings(ranked, question),
        size,
        _left_out(chosen, found, ranked),
        len(found.relays),
        0.0,
    )


def sizes_of(found: Findings, ranked: Sequence[Ranked]) -> dict[str, tuple[Cell, float]]:
    """Cell id -> the same candidate with another network, and its seconds of an iteration, where both are known."""
    other = {row.forecast.cell.id: resized(row.forecast.cell) for row in ranked}
    known = {x.cell.id: forecasts([x], 1)[0].steady.value for x in found.measured(list(other.values()))}
    return {id: (cell, known[cell.id]) for id, cell in other.items() if cell.id in known}


def _left_out(chosen: Candidates, found: Findings, ranked: Sequence[Ranked]) -> dict[str, str | Skipped]:
    known = {row.forecast.cell.id for row in ranked}
    left: dict[str, str | Skipped] = dict(chosen.left_out)
    for cell in chosen.all:
        if cell.id in known:
            continue
        long = cell in chosen.chunks and not _worth_a_chunk(cell, ranked)
        skipped = Skipped.LONG_ITERATIONS if long else Skipped.NO_TIME
        left[cell.name] = found.failed.get(cell.id, skipped)
    return left


def _nothing(chosen: Candidates, found: Findings, spent_s: float) -> str:
    why = [f"{cell.name}: {found.failed[cell.id]}" for cell in chosen.all if cell.id in found.failed]
    if why:
        return "no candidate could be measured: " + "; ".join(why)
    return f"nothing was measured in {spent_s:.0f} s; use a longer --budget, or name fewer --backends"
