"""The parity gate: a speed claim is made only for backends that were proven equal on the same code."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchback.measure import machine
from benchback.measure.process import output_of
from benchback.measure.record import digest

LEVELS = ("L0", "L1", "L2")
"""Forward pass to twenty gradient steps against the oracle: what fits in a minute."""
CODE = ("code", "python", "cpu")
"""Parts of a fingerprint, besides the versions, on which the numbers depend."""
TIMEOUT_S = 1800.0
Tick = Callable[[], bool]
"""Called a few times a second; False ends what is under way (Interrupted)."""


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
    """What is remembered of these backends, and what is not, measured now."""
    relevant = {name: x for name, x in fingerprint.items() if name in CODE or name.startswith("version ")}
    file = cache / f"{digest([algorithm, LEVELS, relevant])}.json"
    known = _remembered(file)
    missing = [backend for backend in backends if backend not in known]
    if not missing:
        return known
    found = measure(algorithm, missing, tick)
    # A failure may be the machine's of the moment; only success is remembered.
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
    """The verdict of each backend; none where it did not come to one. Nothing is timed, so all processors help."""
    count = min(len(backends), len(machine.allowed_processors()))
    parts = [backends[i::count] for i in range(count)]
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(lambda part: _measure_part(algorithm, part, tick), parts))
    return {backend: verdict for part in found for backend, verdict in part.items()}


def _measure_part(algorithm: str, backends: Sequence[str], tick: Tick) -> dict[str, str]:
    command = [sys.executable, "-m", "benchback.cli", "parity", "--algorithm", algorithm, "--backends", *backends]
    output = output_of([*command, "--levels", *LEVELS, "--dtypes", "float32", "--json"], TIMEOUT_S, tick)
    try:
        rows = json.loads(output)["rows"]
    except (ValueError, KeyError):
        return {}
    found = {row["backend"]: "pass" for row in rows}
    for row in rows:
        if not row["ok"]:
            found[row["backend"]] = f"fail: {row['level']} {row['quantity']} off by {row['deviation']:.1e}"
    return found
