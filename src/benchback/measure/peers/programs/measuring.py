"""What every program shares: the clock, peak memory and the line it prints. Standard library only."""

import json
import math
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

WARM_UP_ITERATIONS = 2


def main(measure: Callable[[SimpleNamespace, dict[str, str]], dict[str, Any]]) -> None:
    """Do the work named on the command line and print what `measure` found as one JSON line."""
    work, options = SimpleNamespace(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    outcome = measure(work, options) | {"peak_rss_bytes": peak_bytes()}
    if math.isnan(outcome["episode_return"]):
        outcome["episode_return"] = None
    print(json.dumps(outcome))


def time_twice(train: Callable[[int], Any], work: SimpleNamespace) -> tuple[dict[str, Any], Any]:
    """For whole trainings as one program: the second execution is steady, the first beyond it is compiling.

    `train` must not return before its results are there.
    """
    first_s, _ = clocked(lambda: train(work.seed))
    steady_s, result = clocked(lambda: train(work.seed + 1))
    env_steps = work.num_iterations * work.num_envs * work.num_steps
    return {"env_steps": env_steps, "steady_s": steady_s, "compile_s": max(0.0, first_s - steady_s)}, result


def time_after_warm_up(advance: Callable[[int], Any], work: SimpleNamespace) -> dict[str, Any]:
    """For trainings that Python drives, `advance(iterations)` at a time: all but the first iterations are steady."""
    warm_up_s, _ = clocked(lambda: advance(WARM_UP_ITERATIONS))
    iterations = work.num_iterations - WARM_UP_ITERATIONS
    steady_s, _ = clocked(lambda: advance(iterations))
    compile_s = max(0.0, warm_up_s - steady_s / iterations * WARM_UP_ITERATIONS)
    env_steps = iterations * work.num_envs * work.num_steps
    return {"env_steps": env_steps, "steady_s": steady_s, "compile_s": compile_s}


def clocked(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def peak_bytes() -> int:
    """Largest resident set of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike ru_maxrss this starts anew at exec, so it holds nothing of the parent's.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
