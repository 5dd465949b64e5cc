"""What the clock costs: the same calls in a bare loop and under `record_calls`, taking turns.

    python benchmarks/overhead.py [--calls 100] [--rounds 15] [--budget 0.5]

The calls are those of an agent that spins for a known time, so that whatever is longer is the harness. Also printed:
the cost of a call that does nothing, from which follows the share at any other duration. Exit code 1 above the budget,
which is in per cent of an iteration of 10 ms.
"""

import argparse
import statistics
import sys
import time
from functools import partial
from itertools import pairwise
from typing import Any, get_args

from benchback.agent import Agent, Backend
from benchback.measure.clock import record_calls
from benchback.measure.record import Timing

ITERATION_S = 0.010
INTERRUPTED_S = 0.0002
"""Beyond its duration: a call that took this much longer was not alone on its processor."""


def spinning(duration_s: float, starts: list[float]) -> tuple[Agent, Backend]:
    """An agent whose iteration takes that long and notes when it begins, on a device that is never behind."""

    def iterate(state: int) -> tuple[int, dict[str, float]]:
        starts.append(time.perf_counter())
        end = starts[-1] + duration_s
        while time.perf_counter() < end:
            pass
        return state + 1, {"loss": 0.0}

    def absent(*_: Any) -> Any:
        raise NotImplementedError

    def wait(found: Any) -> None:
        """Nothing to wait for."""

    backend = Backend(
        modes={},
        compile=absent,
        units={},
        block=wait,
        mark=lambda found: partial(wait, found),
        fetch=lambda x: x,
        compiles=int,
    )
    functions = dict.fromkeys(("init", "load", "rollout", "update", "learn", "act", "export", "key"), absent)
    return Agent(**functions, hyper=None, roles={}, iterate=iterate), backend


def bare(agent: Agent, calls: int) -> None:
    """What anybody would write who measures nothing."""
    assert agent.iterate is not None
    state = 0
    for _ in range(calls):
        state, _ = agent.iterate(state)


def cost_s(duration_s: float, timing: Timing, calls: int, rounds: int) -> float:
    """Seconds that the clock adds to a call: the difference of means from one beginning to the next.

    Calls that another process interrupted are left out on both sides: what it takes is not the clock's. Sides take
    turns, because the machine drifts.
    """
    starts: list[float] = []
    agent, backend = spinning(duration_s, starts)
    sides = [partial(bare, agent, calls), partial(record_calls, agent, backend, 0, calls, timing, lambda: None)]
    periods: tuple[list[float], list[float]] = [], []
    for turn in range(rounds + 1):
        for side in (0, 1) if turn % 2 else (1, 0):
            starts.clear()
            sides[side]()
            if turn:
                periods[side].extend(later - earlier for earlier, later in pairwise(starts))
    bare_s, timed_s = (statistics.fmean(x for x in side if x < duration_s + INTERRUPTED_S) for side in periods)
    return timed_s - bare_s


def main() -> None:
    parser = argparse.ArgumentParser(description="what the clock costs per iteration")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=0.5, help="per cent of an iteration of 10 ms")
    options = parser.parse_args()
    within = True
    for timing in get_args(Timing):
        empty_s = cost_s(0.0, timing, 1000, options.rounds)
        full_s = cost_s(ITERATION_S, timing, options.calls, options.rounds)
        share = 100 * full_s / ITERATION_S
        within &= share <= options.budget
        print(f"{timing:5}: {1e6 * empty_s:5.1f} us on an empty call; {share:6.3f} % of an iteration of 10 ms")
    print(f"budget {options.budget:g} %: {'kept' if within else 'exceeded'}")
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
