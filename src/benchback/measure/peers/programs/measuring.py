"""Shared by every program: the clock, peak memory and the message it sends. Standard library, and `limits` beside it.

A peer's virtual environment has no benchback in it, so the frame format is repeated here; a test checks it against
the reader of `benchback.measure.wire`.
"""

import json
import math
import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from limits import of_machine  # pyright: ignore[reportMissingImports]

MAGIC = b"\xb5BW1"
WARM_UP_ITERATIONS = 2
LATE_ITERATIONS = 2
"""Learning starts with the last of the steps that are asked for, or after it, or in the iteration after that one."""


def main(measure: Callable[[SimpleNamespace, dict[str, str]], dict[str, Any]]) -> None:
    """Measure the work given on standard input; send the result to the file descriptor on the command line.

    Beside its metrics a measurement may have `env_alone`, a function that times the environment by itself. It is called
    after the peak of memory is read, which is that of the training. Without a demand neither it nor the machine is
    timed.
    """
    job = json.load(sys.stdin)
    work = SimpleNamespace(**job["work"])
    outcome = measure(work, job["options"])
    config, env_alone, peak = outcome.pop("config"), outcome.pop("env_alone", None), float(peak_bytes())
    if job["demand"] is not None:
        outcome |= of_machine(job["demand"]) | ({"env_step_s": env_alone()} if env_alone else {})
    record = {
        "samples": {name: [number(x)] for name, x in outcome.items()},
        "marks": {},
        "ledger": {"seed": work.seed, "config": config},
        "memory": {"peak_rss_bytes": peak},
    }
    with os.fdopen(int(sys.argv[1]), "wb") as stream:
        stream.write(frame({"kind": "record", "record": record}))


def frame(message: dict[str, Any]) -> bytes:
    """A message as the coordinator reads it: magic, length, checksum of both, body."""
    body = json.dumps(message, allow_nan=False).encode()
    length = len(body).to_bytes(4, "big")
    return MAGIC + length + zlib.crc32(length + body).to_bytes(4, "big") + body


def number(value: float) -> float | None:
    """JSON has no NaN: None where no episode ended."""
    return None if math.isnan(value) else float(value)


def time_twice(train: Callable[[int], Any], work: SimpleNamespace) -> tuple[dict[str, Any], Any]:
    """For whole trainings as one program: the second execution is steady, the first beyond it is compiling.

    `train` must wait for its results before it returns.
    """
    first_s, _ = clocked(lambda: train(work.seed))
    steady, result = without_others(lambda: train(work.seed + 1))
    env_steps = getattr(work, "agents", 1) * work.num_iterations * work.num_envs * work.num_steps
    return {"env_steps": env_steps, "compile_s": max(0.0, first_s - steady["steady_s"])} | steady, result


def warm_up_iterations(work: SimpleNamespace) -> int:
    """Iterations before the first that does all the work of later ones, and two more."""
    starts = [getattr(work, name, 0) for name in ("learning_starts", "start_steps", "update_after")]
    return WARM_UP_ITERATIONS + math.ceil(max(starts) / (work.num_envs * work.num_steps))


def gradient_steps(work: SimpleNamespace) -> int:
    """Of a whole training of DQN or of TD3's critics: in every iteration that ends with enough transitions."""
    starts = getattr(work, "learning_starts", None) or work.update_after
    before = math.ceil(starts / (work.num_envs * work.num_steps)) - 1
    return work.num_updates * (work.num_iterations - before)


def check_gradient_steps(done: int, work: SimpleNamespace) -> None:
    """Refuse a training that took another number of gradient steps; a library may start two iterations later."""
    asked = gradient_steps(work)
    if not asked - LATE_ITERATIONS * work.num_updates <= done <= asked:
        raise ValueError(f"{done} gradient steps instead of {asked}")


def time_after_warm_up(advance: Callable[[int], Any], work: SimpleNamespace) -> dict[str, Any]:
    """For trainings that Python drives, `advance(iterations)` at a time: all but the first iterations are steady."""
    warm_up = warm_up_iterations(work)
    warm_up_s, _ = clocked(lambda: advance(warm_up))
    iterations = work.num_iterations - warm_up
    steady, _ = without_others(lambda: advance(iterations))
    return of_steady(warm_up_s, steady["steady_s"], warm_up, iterations, work) | steady


def time_between(started: float, moments: Sequence[float], work: SimpleNamespace) -> dict[str, Any]:
    """For trainings that cannot be interrupted: from one moment in each iteration; all but the first are steady."""
    warm_up = warm_up_iterations(work)
    iterations = len(moments) - 1 - warm_up
    return of_steady(moments[warm_up] - started, moments[-1] - moments[warm_up], warm_up, iterations, work)


def of_steady(
    warm_up_s: float, steady_s: float, warm_up: int, iterations: int, work: SimpleNamespace
) -> dict[str, Any]:
    """Speed of the steady iterations; compiling is what the others took beyond it."""
    compile_s = max(0.0, warm_up_s - steady_s / iterations * warm_up)
    env_steps = iterations * work.num_envs * work.num_steps
    return {"env_steps": env_steps, "steady_s": steady_s, "compile_s": compile_s}


def clocked(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def without_others(function: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of a call, those of them in which other processes had its only processor, and its result."""
    queued_s, busy_s = queueing_s(), time.process_time()
    steady_s, result = clocked(function)
    queued_s, busy_s = queueing_s() - queued_s, time.process_time() - busy_s
    return {"steady_s": steady_s, "waited_s": max(0.0, min(queued_s, steady_s - busy_s))}, result


def queueing_s() -> float:
    """Seconds that the threads of this process have been ready to run without a processor; 0 where Linux is not."""
    tasks = Path("/proc/self/task")
    stats = [task / "schedstat" for task in tasks.iterdir()] if tasks.exists() else []
    return sum(int(file.read_text().split()[1]) for file in stats if file.exists()) / 1e9


def peak_bytes() -> int:
    """Largest resident set of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike ru_maxrss this is reset at exec, so it does not include the parent's peak.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
