"""The parity gate: a speed claim is made only for backends that were proven equal on the same code."""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchback.measure import machine
from benchback.measure.process import Tick, isolated
from benchback.measure.record import digest

LEVELS = ("L0", "L1", "L2")
"""Levels checked: forward pass to twenty gradient steps against the oracle, which takes under a minute."""
CODE = ("code", "python", "cpu")
"""Parts of a fingerprint, besides the versions, on which the numbers depend."""
TIMEOUT_S = 1800.0
COMMAND = (sys.executable, "-m", "benchback.measure.parity_worker")


def verdicts(
    algorithms: Iterable[str],
    backends: Iterable[str],
    fingerprint: Mapping[str, Any],
    tick: Tick = lambda: True,
    cache: Path | None = None,
) -> dict[str, str]:
    """`algorithm/backend` -> `pass` or why not; measured once for each state of code, versions and processor."""
    found = {}
    for algorithm in sorted(set(algorithms)):
        known = _known(algorithm, sorted(set(backends)), fingerprint, tick, cache or machine.cache_folder("parity"))
        for backend in sorted(set(backends)):
            found[f"{algorithm}/{backend}"] = known.get(backend, "not measured")
    return found


def _known(
    algorithm: str, backends: Sequence[str], fingerprint: Mapping[str, Any], tick: Tick, cache: Path
) -> dict[str, str]:
    """Cached verdicts of these backends; missing ones are measured now."""
    relevant = {name: x for name, x in fingerprint.items() if name in CODE or name.startswith("version ")}
    file = cache / f"{digest([algorithm, LEVELS, relevant])}.json"
    known = _remembered(file)
    missing = [backend for backend in backends if backend not in known]
    if not missing:
        return known
    found = measure(algorithm, missing, tick)
    # A failure may be a passing fault of the machine; only passes are cached.
    known |= {backend: verdict for backend, verdict in found.items() if verdict == "pass"}
    machine.keep(file, json.dumps(known))
    return known | found


def _remembered(file: Path) -> dict[str, str]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {name: x for name, x in known.items() if x == "pass"} if isinstance(known, dict) else {}


def measure(algorithm: str, backends: Sequence[str], tick: Tick = lambda: True) -> dict[str, str]:
    """The verdict of each backend that came to one. Nothing is timed, so all processors are used."""
    count = min(len(backends), len(machine.allowed_processors()))
    deadline = time.monotonic() + TIMEOUT_S
    variables = {**os.environ, **dict.fromkeys(machine.THREADS, "1")}
    with ExitStack() as stack:
        workers = [stack.enter_context(isolated(COMMAND, variables)) for _ in range(count)]
        for i, worker in enumerate(workers):
            job = {"algorithm": algorithm, "backends": backends[i::count], "levels": LEVELS, "dtypes": ["float32"]}
            worker.tell(json.dumps(job))
            worker.hang_up()
        for worker in workers:
            worker.listen(deadline, tick)
    return verdicts_of([row for worker in workers for message in worker.messages for row in message["rows"]])


def verdicts_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Backend -> `pass`, or its last deviation beyond tolerance."""
    found = {row["backend"]: "pass" for row in rows}
    for row in rows:
        if not row["ok"]:
            size = "no number" if row["deviation"] is None else f"off by {row['deviation']:.1e}"
            found[row["backend"]] = f"fail: {row['level']} {row['quantity']} {size}"
    return found
