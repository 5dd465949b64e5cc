"""The parity gate: a speed claim is made only for backends that were proven equal on the same code."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchback.bench import host
from benchback.bench.launch import TICK_S, Interrupted, end_group
from benchback.bench.record import digest

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
        known = _known(algorithm, fingerprint, tick, cache or host.cache_folder("parity"))
        for backend in sorted(set(backends)):
            found[f"{algorithm}/{backend}"] = known.get(backend, "not measured")
    return found


def _known(algorithm: str, fingerprint: Mapping[str, Any], tick: Tick, cache: Path) -> dict[str, str]:
    relevant = {name: x for name, x in fingerprint.items() if name in CODE or name.startswith("version ")}
    file = cache / f"{digest([algorithm, LEVELS, relevant])}.json"
    with suppress(OSError, ValueError):
        remembered = json.loads(file.read_text())
        if isinstance(remembered, dict):
            return remembered
    found = measure(algorithm, tick)
    # A failure may be the machine's of the moment; only success is remembered.
    if found and set(found.values()) == {"pass"}:
        with suppress(OSError):  # remembering saves a minute; a home that cannot be written costs nothing else
            cache.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(found))
            draft.replace(file)
    return found


def measure(algorithm: str, tick: Tick = lambda: True) -> dict[str, str]:
    """Every backend's verdict, from a process of its own; none if it did not come to one."""
    command = [sys.executable, "-m", "benchback", "parity", "--algorithm", algorithm, "--levels", *LEVELS]
    output = _output([*command, "--dtypes", "float32", "--json"], tick)
    try:
        rows = json.loads(output)["rows"]
    except (ValueError, KeyError):
        return {}
    found = {row["backend"]: "pass" for row in rows}
    for row in rows:
        if not row["ok"]:
            found[row["backend"]] = f"fail: {row['level']} {row['quantity']} off by {row['deviation']:.1e}"
    return found


def _output(command: list[str], tick: Tick) -> str:
    """What a command prints, while `tick` lets it."""
    deadline = time.monotonic() + TIMEOUT_S
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if not tick():
                    raise Interrupted
                with suppress(subprocess.TimeoutExpired):
                    process.wait(TICK_S)
        finally:
            end_group(process)
        output.seek(0)
        return output.read()
