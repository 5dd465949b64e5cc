"""One backend in a process of its own, asked for one sample after another, so that backends can be interleaved.

Reads a line of JSON per request from its standard input, answers with a line to the descriptor named on its command
line. `prepare` builds a subject's operations and runs each once, `sample` times one of them, `limit` the product of
matrices that dominates an update.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchback.measure.micro.operations import Subject, operations
from benchback.measure.micro.work import product

CALLS_TO_SETTLE = 3


def main() -> None:
    """Answer until the requests end."""
    ready: dict[Subject, dict[str, Callable[[], None]]] = {}
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(answer(request, ready)), file=answers, flush=True)


def answer(request: dict[str, Any], ready: dict[Subject, dict[str, Callable[[], None]]]) -> dict[str, Any]:
    """What a request asks for."""
    who = Subject(**{**request["subject"], "hidden": tuple(request["subject"]["hidden"])})
    if request["do"] == "prepare":
        ready[who] = operations(who)
        return {"compile_s": {name: first_call_s(call) for name, call in ready[who].items()}}
    if request["do"] == "limit":
        return {"seconds": sample_s(product(who.batch, who.hidden[-1]), request["duration_s"])}
    return {"seconds": sample_s(ready[who][request["operation"]], request["duration_s"])}


def first_call_s(call: Callable[[], None]) -> float:
    """Seconds of the first call, after which it is compiled; then a few more to settle."""
    started = time.perf_counter()
    call()
    seconds = time.perf_counter() - started
    for _ in range(CALLS_TO_SETTLE):
        call()
    return seconds


def sample_s(call: Callable[[], None], duration_s: float) -> float:
    """Median seconds of a call over about `duration_s`: the median leaves out interruptions by the system."""
    call()
    times, end = [], time.perf_counter() + duration_s
    while (started := time.perf_counter()) < end or not times:
        call()
        times.append(time.perf_counter() - started)
    times.sort()
    return times[len(times) // 2]


if __name__ == "__main__":
    main()
