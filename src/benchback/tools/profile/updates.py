"""The updates of two backends side by side, timed until they return and until they are done.

An asynchronous framework returns before it is done. A clock stopped then has timed the dispatch only, and makes the
asynchronous framework look faster.
"""

import math
import statistics
import time
from dataclasses import replace
from typing import Any

from benchback import registry, stats
from benchback.agent import start
from benchback.tools.profile.plan import ProfilePlan
from benchback.training.run import Run, build

KINDS = {"returned": "until the call returns", "done": "until the result is there"}


class Updater:
    """A run that advances one iteration at a time; only its updates are timed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.agent, self.backend = build(run)
        self.state = start(self.agent, run.seed)
        self.taken: dict[str, list[float]] = {name: [] for name in KINDS}

    def update(self) -> None:
        """Run one iteration."""
        state, batch = self.agent.rollout(self.state)
        self.backend.block(batch)
        started = time.perf_counter()
        self.state, metrics = self.agent.update(state, batch)
        returned = time.perf_counter()
        self.backend.block(metrics)
        self.taken["done"].append(time.perf_counter() - started)
        self.taken["returned"].append(returned - started)


def compare(plan: ProfilePlan) -> dict[str, Any]:
    """Seconds of an update of both backends, and their ratio, by the moment at which the clock was stopped."""
    sides = [Updater(replace(plan.run, unit="phase")), Updater(plan.rival())]
    for side in sides:
        for _ in range(plan.warmup):
            side.update()
        for taken in side.taken.values():
            taken.clear()
    for number in range(plan.iterations):
        # In turn, with alternating order: a slower machine slows both.
        for side in sides if number % 2 else reversed(sides):
            side.update()
    return {
        "between": [f"{side.run.backend}/{side.run.compile_mode}" for side in sides],
        "rows": [_row(name, *(side.taken[name] for side in sides)) for name in KINDS],
        "titles": [registry.BACKENDS[side.run.backend].title for side in sides],
    }


def _row(kind: str, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    low, high = stats.interval(stats.estimate(logs)) if len(logs) > 1 else (None, None)
    return {
        "clock": kind,
        "what": KINDS[kind],
        "seconds": [statistics.median(ours), statistics.median(theirs)],
        "ratio": math.exp(statistics.fmean(logs)),
        "low": low,
        "high": high,
    }
