"""A relay of candidates that were never run before: those that fail are dropped, and the others go on.

Unlike a block of a campaign, it need not be complete: it ends in time, and keeps what it has when it is interrupted.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchback.measure.process import Ended, Interrupted, Tick
from benchback.measure.record import Cell
from benchback.measure.relay import LONGEST_TURN_S, Failed, Legs, Pace, Relay, Runner, TooLarge

FEWEST_STARTED = 2
"""Candidates that are started even if time is short."""
START_LIMIT_S = 600.0
LEAST_ROUNDS_S = 5.0
"""Seconds of the rounds even if the starts took longer than they should: without rounds they were for nothing."""


@dataclass(frozen=True)
class Trial:
    """What one relay of candidates is given."""

    cells: Sequence[Cell]
    """In the order in which they are started."""
    seed: int
    start_by_s: float
    """Seconds after which no further candidate is started."""
    rounds_s: float
    """Seconds of all rounds, about."""


@dataclass(frozen=True)
class Outcome:
    """How the candidates ended, by cell id; those that were not started are not there."""

    ended: dict[str, Ended]
    interrupted: bool = False


RunTrial = Callable[[Trial, Tick, Callable[[str], None]], Outcome]
"""(trial, tick, show progress) -> its outcome."""


@contextmanager
def trials() -> Iterator[RunTrial]:
    """Runs trials; the first start of a candidate compiles, later ones load its programs."""
    with tempfile.TemporaryDirectory(prefix="benchback-trials-", ignore_cleanup_errors=True) as folder:

        def run(trial: Trial, tick: Tick, show: Callable[[str], None]) -> Outcome:
            relay = Relay(
                trial.cells, trial.seed, START_LIMIT_S, Pace(relay_s=trial.rounds_s), tick, show, Path(folder)
            )
            return Trials(relay).run_trial(trial.start_by_s)

        yield run


@dataclass
class Trials(Legs):
    """Runs a relay of those candidates that start."""

    busy: Runner | None = None
    """Whose turn it is."""

    def run_trial(self, start_by_s: float) -> Outcome:
        """Start all that can be started in time, then let them take turns for the time that is left."""
        interrupted, began = False, time.monotonic()
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="benchback-weights-") as folder:
            try:
                self.start_all(stack, Path(folder) / "weights.safetensors", began + start_by_s)
                pace = self.relay.pace
                left_s = began + start_by_s + pace.relay_s - time.monotonic()
                self.relay = replace(
                    self.relay, pace=replace(pace, relay_s=max(LEAST_ROUNDS_S, min(pace.relay_s, left_s)))
                )
                if self.runners:
                    self.take_turns(list(self.runners.values()))
            except Interrupted:
                interrupted = True
                self.relay = replace(self.relay, tick=lambda: True)
                self.let_finish_turn()
            except Failed as failed:
                self.drop(failed)
            for runner in list(self.runners.values()):
                self.finish_or_drop(runner)
        return Outcome(self.ended, interrupted)

    def start_all(self, stack: ExitStack, weights: Path, deadline: float) -> None:
        """Start the candidates one after another, as far as time and memory allow."""
        for cell in self.relay.cells:
            if len(self.runners) >= FEWEST_STARTED and time.monotonic() > deadline:
                return
            try:
                self.start(cell, stack, weights)
            except TooLarge:
                return
            except Failed as failed:
                self.drop(failed)

    def turn(self, runner: Runner, position: int) -> None:
        """One turn of one runner."""
        self.busy = runner
        super().turn(runner, position)
        self.busy = None

    def let_finish_turn(self) -> None:
        """Wait for the turn that was interrupted: its answer would be taken for the record."""
        if self.busy is not None:
            listener = self.busy.listener
            listener.listen(time.monotonic() + LONGEST_TURN_S, self.relay.tick, lambda: bool(listener.messages))
            listener.messages.clear()

    def finish_or_drop(self, runner: Runner) -> None:
        """Ask for a record; of one that is still starting there is none."""
        if not runner.call_s:
            return
        try:
            self.finish(runner)
        except Failed as failed:
            self.drop(failed)

    def drop(self, failed: Failed) -> None:
        """Go on without a candidate."""
        self.runners.pop(failed.cell.id, None)
        self.ended[failed.cell.id] = failed.ended
