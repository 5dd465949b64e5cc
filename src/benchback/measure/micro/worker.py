"""One backend in a process of its own, asked for one sample after another, so that backends can be interleaved.

Reads a line of JSON per request from its standard input, answers with a frame to the file descriptor named on its
command line. `prepare` builds a program's operations and runs each once, `sample` times one of them, `limit` the
product of matrices that dominates an update.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchback.measure.micro.operations import Program, operations
from benchback.measure.micro.work import product
from benchback.measure.wire import write_frame

CALLS_TO_SETTLE = 3


def main() -> None:
    """Answer requests until standard input ends."""
    ready: dict[Program, dict[str, Callable[[], None]]] = {}
    with os.fdopen(int(sys.argv[1]), "wb") as stream:
        for line in sys.stdin:
            request = json.loads(line)
            write_frame(stream, {"kind": "answer", "number": request["number"]} | answer(request, ready))


def answer(request: dict[str, Any], ready: dict[Program, dict[str, Callable[[], None]]]) -> dict[str, Any]:
    """The answer to a request."""
    program = Program(**{**request["program"], "hidden": tuple(request["program"]["hidden"])})
    if request["do"] == "prepare":
        ready[program] = operations(program)
        return {"compile_s": {name: first_call_s(call) for name, call in ready[program].items()}}
    if request["do"] == "limit":
        return {"seconds": sample_s(product(program.batch, program.hidden[-1]), request["duration_s"])}
    return {"seconds": sample_s(ready[program][request["operation"]], request["duration_s"])}


def first_call_s(call: Callable[[], None]) -> float:
    """Seconds of the first call, which compiles; a few more calls follow as warm-up."""
    started = time.perf_counter()
    call()
    seconds = time.perf_counter() - started
    for _ in range(CALLS_TO_SETTLE):
        call()
    return seconds


def sample_s(call: Callable[[], None], duration_s: float) -> float:
    """Median seconds of a call over about `duration_s`: the median is robust to interruptions by the system."""
    call()
    times, end = [], time.perf_counter() + duration_s
    while (started := time.perf_counter()) < end or not times:
        call()
        times.append(time.perf_counter() - started)
    times.sort()
    return times[len(times) // 2]


if __name__ == "__main__":
    main()
