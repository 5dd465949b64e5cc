"""Feeds the runs of a campaign to its trackers: each when it ends, and those that an earlier process left out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchback.analysis.reader import stored_attempts
from benchback.errors import InputError
from benchback.measure.process import Interrupted, output_of
from benchback.measure.record import Attempt, Cell, Slot
from benchback.measure.store import Store
from benchback.tools.track import feed, wandb
from benchback.tools.track.run import name_of, tracked

FEED_S = 120.0
"""Time limit of the trackers for a run; a slow network must not hold up a campaign."""
DOTENV = Path(".env")
IN_PROCESS = ("csv",)
COMMAND = (sys.executable, "-m", "benchback.tools.track.feed")


def check(trackers: Sequence[str], online: bool) -> None:
    """Refuse trackers that cannot work, before anything runs."""
    for tracker in trackers:
        feed.check_installed(tracker)
    if online and "wandb" not in trackers:
        raise InputError("--online is for W&B; add --track wandb")
    if online:
        wandb.check_account(os.environ, DOTENV)


def folder_of(store: Path) -> Path:
    """Where the trackers of a store write: beside it."""
    return store.with_suffix(".track")


@dataclass
class Feeder:
    """Feeds trackers; never raises, so that a failing tracker cannot stop a campaign."""

    store: Store
    trackers: Sequence[str]
    online: bool = False
    asked_to_stop: Callable[[], bool] = lambda: False
    log: Callable[[str], None] = lambda line: None
    silenced: set[str] = field(default_factory=set)
    """Trackers whose failure was shown to the user; the store has every failure."""

    def catch_up(self) -> None:
        """Feed every stored run that some tracker does not have yet."""
        for stored in stored_attempts(self.store):
            if self.asked_to_stop():
                return
            self.finished(*stored)

    def finished(self, slot: Slot, cell: Cell, attempt: Attempt) -> None:
        """Feed the run to every tracker that does not have it."""
        if attempt.record is None:
            return
        folder, name = folder_of(self.store.path), name_of(slot, cell, attempt.number)
        missing = [tracker for tracker in self.trackers if not (folder / tracker / name).exists()]
        if not missing:
            return
        run = tracked(self.store.campaign()["study"]["name"], slot, cell, attempt)
        for tracker in [tracker for tracker in missing if tracker in IN_PROCESS]:
            try:
                feed.write(tracker, run, folder)
            except OSError as error:
                self.failed(tracker, slot, feed.one_line(error))
        apart = [tracker for tracker in missing if tracker not in IN_PROCESS]
        for tracker, fault in self.feed_apart(apart, feed.request(apart, run, folder, self.online)).items():
            if fault:
                self.failed(tracker, slot, fault)

    def feed_apart(self, trackers: Sequence[str], request: str) -> dict[str, str]:
        """Tracker -> error, empty if none; from a process that is ended when the user asks to stop."""
        if not trackers:
            return {}
        variables = wandb.variables(os.environ, DOTENV, self.online)
        answers: dict[str, str] = {}
        try:
            output = output_of(COMMAND, FEED_S, lambda: not self.asked_to_stop(), request, variables)
            answers = dict(json.loads(line) for line in output.splitlines())
        except Interrupted:
            return {}
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answers = dict.fromkeys(trackers, feed.one_line(error))
        unanswered = dict.fromkeys(trackers, f"it ended, or was ended after {FEED_S:g} s, without an answer")
        return unanswered | answers

    def failed(self, tracker: str, slot: Slot, fault: str) -> None:
        """Report a failure: one line for the user, an event in the store, both without API keys."""
        if key := wandb.settings(os.environ, DOTENV).get(wandb.KEY):
            fault = fault.replace(key, "[key]")
        self.store.add_event("tracker", {"tracker": tracker, "slot": slot.id, "failed": fault})
        if tracker not in self.silenced:
            self.log(f"warning: {tracker} did not take {slot.id} ({fault}); the run itself is stored")
        self.silenced.add(tracker)
