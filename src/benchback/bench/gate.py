"""The parity gate: a speed claim is made only for backends that were proven equal on the same code."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchback.bench.record import digest

LEVELS = ("L0", "L1", "L2")
"""Forward pass to twenty gradient steps against the oracle: what fits in a minute."""
CODE = ("code", "python", "cpu")
"""Parts of a fingerprint, besides the versions, on which the numbers depend."""


def verdicts(
    algorithms: Iterable[str], backends: Iterable[str], fingerprint: Mapping[str, Any], cache: Path | None = None
) -> dict[str, str]:
    """`algorithm/backend` -> `pass` or why not; measured once for each state of code, versions and processor."""
    found = {}
    for algorithm in sorted(set(algorithms)):
        known = _known(algorithm, fingerprint, cache or default_cache())
        for backend in sorted(set(backends)):
            found[f"{algorithm}/{backend}"] = known.get(backend, "not measured")
    return found


def default_cache() -> Path:
    """Where verdicts are kept between campaigns."""
    root = os.environ.get("BENCHBACK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(root) / "benchback" / "parity"


def _known(algorithm: str, fingerprint: Mapping[str, Any], cache: Path) -> dict[str, str]:
    relevant = {name: x for name, x in fingerprint.items() if name in CODE or name.startswith("version ")}
    file = cache / f"{digest([algorithm, LEVELS, relevant])}.json"
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        pass
    found = measure(algorithm)
    # A failure may be the machine's of the moment; only success is remembered.
    if found and set(found.values()) == {"pass"}:
        cache.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(found))
        draft.replace(file)
    return found


def measure(algorithm: str) -> dict[str, str]:
    """Every backend's verdict, from a process of its own."""
    command = [sys.executable, "-m", "benchback", "parity", "--algorithm", algorithm, "--levels", *LEVELS]
    process = subprocess.run([*command, "--dtypes", "float32", "--json"], capture_output=True, text=True)
    try:
        rows = json.loads(process.stdout)["rows"]
    except (ValueError, KeyError):
        return {}
    found = {row["backend"]: "pass" for row in rows}
    for row in rows:
        if not row["ok"]:
            found[row["backend"]] = f"fail: {row['level']} {row['quantity']} off by {row['deviation']:.1e}"
    return found
