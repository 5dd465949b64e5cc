"""Display of a running campaign: a bar, the current run, the time left, noise, failures, and how to go on."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchback import stats
from benchback.analysis.reader import stored_attempts
from benchback.cli.tables import hours
from benchback.measure import machine
from benchback.measure.coordinator import Hooks
from benchback.measure.policy import RERUN_TAGS, accepted_attempt
from benchback.measure.record import Attempt, Cell, Slot
from benchback.measure.store import Store


class Board:
    """Runs done of total, current run, time left with its spread, noise and failures; idle while a run lasts."""

    def __init__(self, store: Store, as_json: bool, describe: Callable[[Cell], str] = lambda cell: cell.name) -> None:
        self.store, self.as_json, self.failures, self.describe = store, as_json, 0, describe
        self.took: dict[str, list[float]] = {}
        for slot, _, attempt in stored_attempts(store):
            self.learn(slot.cell, attempt)
        self.console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}")
        # No refreshing thread: it would wake up during timed regions.
        self.bar = Progress(*columns, console=self.console, auto_refresh=False, disable=as_json)
        self.task = self.bar.add_task("starting", total=None, left="")

    def learn(self, cell: str, attempt: Attempt) -> None:
        """Take an attempt into account."""
        self.took.setdefault(cell, []).append(attempt.duration_s)
        self.failures += attempt.outcome not in ("ok", "interrupted")

    def started(self, slot: Slot, cell: Cell) -> None:
        """Called before a run."""
        what = f"{str(cell.run.get('env', '')).split('/')[-1]} {self.describe(cell)} block {slot.block}".strip()
        self.draw(what)

    def finished(self, slot: Slot, cell: Cell, attempt: Attempt) -> None:
        """Called after a run."""
        self.learn(cell.id, attempt)
        light = "noisy" if machine.violations(attempt.noise) else "quiet"
        if self.as_json:
            row = {"event": "run", "slot": slot.id, "variant": cell.variant, "outcome": attempt.outcome}
            row |= {"duration_s": attempt.duration_s, "tags": attempt.tags, "detail": attempt.detail}
            print(json.dumps(row), flush=True)
        elif not self.console.is_terminal or attempt.outcome != "ok":
            self.say(f"{slot.id} {self.describe(cell)}: {attempt.outcome} in {attempt.duration_s:.1f} s, {light}")
        self.draw(f"{self.describe(cell)} {attempt.outcome}, {light}")

    def draw(self, what: str) -> None:
        """Draw the campaign's progress."""
        counts = self.store.progress()
        failures = f", {self.failures} failures" if self.failures else ""
        self.bar.update(
            self.task,
            description=what,
            completed=counts.ok + counts.failed,
            total=counts.total,
            left=f"{self.time_left(counts.total - counts.ok - counts.failed)}{failures}",
        )
        self.bar.refresh()

    def time_left(self, runs: int) -> str:
        """Time of the open runs, estimated from the finished ones, with the spread between variants."""
        found = stats.time_left(runs, self.took.values())
        return f"{hours(found[0])} left +- {hours(found[1])}" if found else ""

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if not self.as_json:
            self.bar.console.print(line, highlight=False, markup=False)


@contextmanager
def watching(store: Store, as_json: bool, describe: Callable[[Cell], str] = lambda cell: cell.name) -> Iterator[Hooks]:
    """Hooks whose board is on screen while the context lasts; cells are named by `describe`."""
    board = Board(store, as_json, describe)
    with board.bar:
        yield Hooks(started=board.started, finished=board.finished, progress=board.draw, log=board.say)


@dataclass(frozen=True)
class Noise:
    """Runs of a stratum that the machine's noise disturbed."""

    repeated: int
    """Runs made again because of noise."""
    noisy: int
    """Results that are noisy all the same."""


def noise_of(store: Store) -> Noise:
    """The noise of the last stratum."""
    last, tries = len(store.strata()) - 1, dict[str, list[Attempt]]()
    for slot, _, attempt in stored_attempts(store):
        if slot.stratum == last:
            tries.setdefault(slot.id, []).append(attempt)
    # An attempt after a result exists because of that result's noise: an accepted one would have closed the slot.
    repeated = sum(
        any(x.outcome == "ok" for x in made[:place]) for made in tries.values() for place in range(len(made))
    )
    results = [accepted_attempt(made) for made in tries.values()]
    return Noise(repeated, sum(bool(x and {*RERUN_TAGS, "noisy"} & {*x.tags}) for x in results))


def noise_text(noise: Noise) -> str:
    """How many runs were repeated for noise, and what to do about it."""
    if not noise.repeated and not noise.noisy:
        return "no run was repeated for noise"
    noisy = f", {counted(noise.noisy, 'result')} stayed noisy" if noise.noisy else ""
    return (
        f"{counted(noise.repeated, 'run')} repeated for noise{noisy}\nwhat to change for less noise: benchback doctor"
    )


def counted(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def stopped_text(store: Store) -> str:
    """What a campaign that was asked to stop has kept, and how to go on."""
    return f"stopped; {done_text(store)} are done and kept: run the same command again to go on"


def out_of_time_text(store: Store) -> str:
    """How to go on where the time was used up before everything planned was run; empty where nothing is left."""
    counts = store.progress(len(store.strata()) - 1)
    if counts.ok + counts.failed == counts.total:
        return ""
    return f"{done_text(store)} are done: run the same command again to go on\n"


def done_text(store: Store) -> str:
    """`3 of 4 runs`, of the last stratum."""
    counts = store.progress(len(store.strata()) - 1)
    return f"{counts.ok + counts.failed} of {counted(counts.total, 'run')}"
