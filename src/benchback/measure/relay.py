"""A block as a relay: one resident process per variant, started and warmed up alone; then they take turns.

In each round every variant runs one turn, in an order that is balanced against carry-over, and exactly one is running
at any time. A turn is a few calls of the program; the first, with cold caches, is not counted.
"""

import math
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchback import stats
from benchback.measure import machine
from benchback.measure.cost import FEWEST_WARM
from benchback.measure.process import Died, Ended, Listener, Tick, answer_of, isolated, with_record
from benchback.measure.record import Cell
from benchback.measure.wire import parse_relay_record
from benchback.measure.worker import Job, cached_files
from benchback.stats.relay import FEWEST_ROUNDS
from benchback.training.run import Run

COMMAND = (sys.executable, "-m", "benchback.measure.relay_worker")
LONGEST_TURN_S = 60.0
SLOW = 50.0
"""A turn may take this many times as long as expected, and a minute more, before it counts as hanging."""
FEWEST_CALLS = 2
"""Calls of a turn at least: the first is not counted."""
LONG_S = 0.5
"""A call of at least this length is counted even if it is the first of a turn: cold caches cost milliseconds."""
ANSWERS = {"start": ("call_s", "bytes"), "turn": ("seconds",), "finish": ()}
"""Request -> the numbers that its answer must have."""
ROOM = 1.25
"""Memory that must be free for another process, relative to the largest so far."""
GLANCE_S = 0.02
"""Seconds of listening to one of several processes that are starting."""


@dataclass(frozen=True)
class Pace:
    """How long turns and relays last, in seconds."""

    turn_s: float = 0.05
    """Counted part of a turn, at least."""
    relay_s: float = 20.0
    """Rounds are run for about this long."""


@dataclass(frozen=True)
class Relay:
    """What one relay is given."""

    cells: Sequence[Cell]
    """In the order in which they are started."""
    seed: int
    timeout_s: float
    pace: Pace
    tick: Tick
    show: Callable[[str], None] = lambda text: None
    caches: Path | None = None
    """Folder of compile caches that are kept between relays; None: each process has its own and empty ones."""
    command: Sequence[str] = COMMAND
    reference: Cell | None = None
    """The one that runs with each of the others where they run in pairs; None: the first."""
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Cell id -> command, for cells that are started by another than `command`."""
    copies_load: bool = False
    """Whether a copy shares the kept caches of its twin, and so compiles only programs that differ."""

    @property
    def pairs(self) -> list[list[Cell]]:
        """The reference with each of the others; alone if there are no others."""
        hub = self.reference or self.cells[0]
        return [[hub, cell] for cell in self.cells if cell != hub] or [[hub]]

    def has_programs(self, cell: Cell) -> bool:
        """Whether an earlier relay has compiled the programs of the cell, so that its start is not measured."""
        caches = self.caches_of(cell)
        return caches is not None and cached_files(machine.variables(cell.threads, caches, cell.device)) > 0

    def caches_of(self, cell: Cell) -> Path | None:
        """Folder of the cell's compile caches, if they are kept."""
        owner = replace(cell, twin=False) if self.copies_load else cell
        return self.caches and self.caches / owner.id


@dataclass
class Runner:
    """A resident process."""

    cell: Cell
    listener: Listener
    calls: int
    """Calls of a turn."""
    call_s: float
    """Seconds of a call; 0 while it is starting."""
    bytes: float
    asked_s: float
    """When it was sent its last request, by time.monotonic()."""
    spent_s: float = 0.0
    """Seconds of its start and of its turns."""


RelayLaunch = Callable[[Relay], dict[str, Ended]]
"""Relay -> how each of its cells ended, by id.

If one fails, only that one is there: without it the block is not complete, and the others have to run again with it."""


@contextmanager
def relay_launch(keep_caches: bool = False, command: Sequence[str] = COMMAND) -> Iterator[RelayLaunch]:
    """Runs relays; with `keep_caches`, only the first relay of a cell compiles and later ones load its programs."""
    with tempfile.TemporaryDirectory(prefix="benchback-relay-", ignore_cleanup_errors=True) as folder:
        caches = Path(folder) if keep_caches else None
        yield lambda relay: run_relay(replace(relay, caches=caches, command=command))


class TooLarge(Exception):
    """The processes of a relay do not fit in memory together."""


class Failed(Exception):
    """A runner died, hung or sent garbage."""

    def __init__(self, cell: Cell, ended: Ended) -> None:
        super().__init__(ended.detail)
        self.cell, self.ended = cell, ended


def run_relay(relay: Relay) -> dict[str, Ended]:
    """All variants at once; in pairs with the first where they do not fit in memory or share a GPU."""
    try:
        if any(cell.device == "gpu" for cell in relay.cells):
            return Legs(relay, limited=False).run(relay.pairs)
        try:
            return Legs(relay).run([list(relay.cells)])
        except TooLarge:
            relay.show("not enough memory for all at once: in pairs")
            return Legs(relay, limited=False).run(relay.pairs)
    except Failed as failed:
        return {failed.cell.id: failed.ended}


@dataclass
class Legs:
    """Runs the legs of a relay, one after another; a leg is a set of cells that take turns."""

    relay: Relay
    limited: bool = True
    """Whether to raise TooLarge when memory runs out; pairs are tried in any case."""
    rounds: int = 0
    """Rounds run so far, in all legs."""
    runners: dict[str, Runner] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    busy: Mapping[int, float] = field(default_factory=machine.busy_shares)
    """How busy others keep each processor when the relay begins; all its processes avoid the same ones."""

    def run(self, legs: Sequence[Sequence[Cell]]) -> dict[str, Ended]:
        """How each cell ended, with its record."""
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="benchback-weights-") as folder:
            weights = Path(folder) / "weights.safetensors"
            for i, leg in enumerate(legs):
                stays = set.intersection(*({cell.id for cell in later} for later in legs[i:]))
                with ExitStack() as inner:
                    new = [cell for cell in leg if cell.id not in self.runners]
                    places = {cell.id: stack if cell.id in stays and i == 0 else inner for cell in new}
                    self.start_all(new, places, weights)
                    self.take_turns([self.runners[cell.id] for cell in leg])
                    for cell in leg:
                        if cell.id not in stays or i == len(legs) - 1:
                            self.finish(self.runners.pop(cell.id))
        return self.ended

    def start_all(self, cells: Sequence[Cell], stacks: Mapping[str, ExitStack], weights: Path) -> None:
        """Start runners one after another; on all processors those that load their programs, if these are all."""
        threads = max((cell.threads for cell in cells), default=1)
        lanes = machine.lanes(threads) if all(map(self.relay.has_programs, cells)) else 1
        if lanes < 2:
            for cell in cells:
                self.start(cell, stacks[cell.id], weights)
            return
        waiting, starting, began_s = deque(cells), dict[int, Runner](), time.monotonic()
        while waiting or starting:
            for lane in range(lanes):
                if waiting and lane not in starting:
                    starting[lane] = self.begin(waiting[0], stacks[waiting.popleft().id], weights, lane)
            for lane, runner in list(starting.items()):
                if self.heard(runner):
                    self.become_ready(starting.pop(lane))
        for cell in cells:
            self.settle(self.runners[cell.id])
            # Their times overlap: each has its share, so that those of a block add up to what it took.
            self.runners[cell.id].spent_s = (time.monotonic() - began_s) / len(cells)

    def heard(self, runner: Runner) -> bool:
        """Listen for a moment; whether an answer came, or none will."""
        listener = runner.listener
        came = listener.listen(time.monotonic() + GLANCE_S, self.relay.tick, listener.answered)
        return came or time.monotonic() > runner.asked_s + self.relay.timeout_s

    def settle(self, runner: Runner) -> None:
        """Pin a runner that was started in a lane of its own where all take their turns, and time its calls there."""
        machine.pin(runner.listener.process.pid, runner.cell.threads, busy=self.busy)
        if runner.call_s < LONG_S:
            request = {"do": "turn", "calls": FEWEST_CALLS, "round": 0, "position": 0}
            seconds = self.ask(runner, request, self.limit_s(runner))["seconds"]
            self.set_pace(runner, seconds / FEWEST_CALLS)

    def start(self, cell: Cell, stack: ExitStack, weights: Path) -> None:
        """Start a runner and wait until it is warm; the others rest."""
        self.become_ready(self.begin(cell, stack, weights))

    def begin(self, cell: Cell, stack: ExitStack, weights: Path, lane: int = 0) -> Runner:
        """A process that has begun to start; the first of a relay writes the weights, the others load them."""
        relay = self.relay
        self.check_memory()
        relay.show(f"{cell.name} starts")
        first = not self.runners
        listener = stack.enter_context(_process(relay, cell, lane, self.busy))
        runner = self.runners[cell.id] = Runner(cell, listener, 1, 0.0, 0.0, time.monotonic())
        job = Job(cell, relay.seed, runner.asked_s, os.getpid())
        request = {"do": "start", "job": job.to_dict(), "weights": str(weights), "writes": first}
        warm, most = warm_iterations(relay.cells)
        listener.request(request | {"iterations": warm, "num_iterations": most})
        return runner

    def become_ready(self, runner: Runner) -> None:
        """Wait until a runner is warm."""
        answer = self.answer(runner, "start", self.relay.timeout_s)
        runner.bytes = answer["bytes"]
        self.set_pace(runner, answer["call_s"])
        runner.spent_s = time.monotonic() - runner.asked_s

    def set_pace(self, runner: Runner, call_s: float) -> None:
        """Note how long a call takes, and with it the calls of a turn."""
        warm, most = warm_iterations(self.relay.cells)
        runner.call_s = call_s
        runner.calls = calls_of_a_turn(runner.cell, call_s, self.relay.pace.turn_s, most - warm)

    def check_memory(self) -> None:
        """Raise TooLarge if another process as large as the largest would not fit."""
        largest = max((runner.bytes for runner in self.runners.values()), default=0.0)
        if self.limited and psutil.virtual_memory().available < ROOM * largest:
            raise TooLarge

    def take_turns(self, runners: Sequence[Runner]) -> None:
        """Rounds in balanced order, the orders shuffled by the seed."""
        orders = stats.balanced_orders(len(runners))
        round_s = sum(runner.calls * runner.call_s for runner in runners)
        count = rounds_of(round_s, len(orders), self.relay.pace.relay_s)
        random = np.random.default_rng([self.relay.seed, self.rounds])
        shuffled = [orders[i] for _ in range(-(-count // len(orders))) for i in random.permutation(len(orders))]
        for number, order in enumerate(shuffled[:count], 1):
            self.relay.show(f"round {number} of {count}")
            self.rounds += 1
            for position, i in enumerate(order):
                self.turn(runners[i], position)

    def turn(self, runner: Runner, position: int) -> None:
        """One turn of one runner."""
        request = {"do": "turn", "calls": runner.calls, "round": self.rounds, "position": position}
        runner.spent_s += self.ask(runner, request, self.limit_s(runner))["seconds"]

    def limit_s(self, runner: Runner) -> float:
        """Seconds after which a turn counts as hanging."""
        return LONGEST_TURN_S + SLOW * runner.calls * runner.call_s

    def finish(self, runner: Runner) -> None:
        """Ask for the record."""
        answer = self.ask(runner, {"do": "finish"}, LONGEST_TURN_S)
        ended = Ended("ok", log=runner.listener.log_text(), duration_s=runner.spent_s, messages=[answer])
        checked = with_record(ended, parse_relay_record)
        if checked.outcome != "ok":
            raise Failed(runner.cell, checked)
        self.ended[runner.cell.id] = checked

    def ask(self, runner: Runner, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer of a runner; raises Failed if none comes, or one without its numbers."""
        runner.asked_s = time.monotonic()
        runner.listener.request(request)
        return self.answer(runner, request["do"], limit_s)

    def answer(self, runner: Runner, do: str, limit_s: float) -> dict[str, Any]:
        """The answer to the request that a runner was sent last."""
        try:
            answer = answer_of(runner.listener, runner.asked_s, limit_s, self.relay.tick)
        except Died as died:
            spent_s = runner.spent_s + time.monotonic() - runner.asked_s
            raise Failed(runner.cell, replace(died.ended, duration_s=spent_s)) from None
        for name in ANSWERS[do]:
            if not (isinstance(answer.get(name), float) and answer[name] > 0):
                wrong = f"{name}={answer.get(name)!r:.40} of an answer must be a number greater than 0"
                raise Failed(runner.cell, Ended("garbled", wrong, runner.listener.log_text(), runner.spent_s))
        return answer


@contextmanager
def _process(relay: Relay, cell: Cell, lane: int, busy: Mapping[int, float]) -> Iterator[Listener]:
    with ExitStack() as stack:
        caches = relay.caches_of(cell)
        if caches is None:
            own = tempfile.TemporaryDirectory(prefix="benchback-run-", ignore_cleanup_errors=True)
            caches = Path(stack.enter_context(own))
        caches.mkdir(parents=True, exist_ok=True)
        variables = machine.variables(cell.threads, caches, cell.device)
        command = relay.commands.get(cell.id, relay.command)
        yield stack.enter_context(isolated(command, variables, cell.threads, lane, busy))


def warm_iterations(cells: Sequence[Cell]) -> tuple[int, int]:
    """Iterations before the first turn, and of the whole training; the same for all.

    After the first everything is compiled and learning has begun. The training has two calls of every program more at
    least, even where the cells have fewer: the learning rate would go below zero.
    """
    runs = [Run.from_dict(dict(cell.run)) for cell in cells]
    whole = math.lcm(*(run.length for run in runs))
    least = max(run.config.iterations_before_learning for run in runs) + FEWEST_WARM
    calls = max(-(-least // whole), 1 if whole >= FEWEST_WARM else FEWEST_WARM)
    return whole * calls, max(runs[0].config.num_iterations, whole * (calls + 2))


def calls_of_a_turn(cell: Cell, call_s: float, turn_s: float, iterations: int) -> int:
    """One that is not counted, and as many as last `turn_s`; one if it is long; no more than there are iterations."""
    if call_s >= LONG_S:
        return 1
    most = iterations // Run.from_dict(dict(cell.run)).length
    return max(FEWEST_CALLS, min(1 + math.ceil(turn_s / call_s), most))


def rounds_of(round_s: float, orders: int, relay_s: float) -> int:
    """Rounds that fit in `relay_s`: every order equally often if that fits, a few in any case."""
    count = int(relay_s / round_s)
    return count // orders * orders if count >= orders else max(count, FEWEST_ROUNDS)
