"""The parity gate: a speed is claimed only for a cell whose own program was proven equal to the oracle on this code."""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchback.errors import install
from benchback.measure import caches, machine
from benchback.measure.process import Tick, isolated
from benchback.measure.record import digest
from benchback.plugins import imports
from benchback.registry import BACKENDS

LEVELS = ("L0", "L1", "L2", "L3")
"""Levels checked: from the forward pass to whole iterations against the oracle."""
SEVERAL = "/population"
"""End of the proof of several agents: that they compute what one computes alone, which has a proof of its own."""
CODE = ("code", "python", "cpu")
"""Parts of a fingerprint, besides the versions, on which the numbers depend."""
TIMEOUT_S = 1800.0
COMMAND = (sys.executable, "-m", "benchback.measure.parity_worker")


def verdicts(
    proofs: Iterable[str],
    fingerprint: Mapping[str, Any],
    tick: Tick = lambda: True,
    cache: Path | None = None,
) -> dict[str, str]:
    """Proof (see `Cell.proof`) -> `pass` or why not; measured once for each state of code, versions and processor.

    Several agents pass if they compute what one computes alone, and that one passes.
    """
    relevant = {name: x for name, x in fingerprint.items() if name in CODE or name.startswith("version ")}
    file = (cache or caches.cache_folder("parity")) / f"{digest([LEVELS, relevant])}.json"
    wanted = sorted(set(proofs))
    known = _remembered(file)
    missing = sorted({part for proof in wanted for part in parts_of(proof)} - known.keys())
    found = measure(missing, tick) if missing else {}
    passed = {proof: verdict for proof, verdict in found.items() if verdict == "pass"}
    if passed:
        # A failure may be a passing fault of the machine; only passes are cached.
        caches.keep(file, json.dumps(known | passed))
    return {proof: _verdict(proof, known | found) for proof in wanted}


def parts_of(proof: str) -> tuple[str, ...]:
    """What has to be measured for a proof: that of one agent, and then that of several."""
    return (proof.removesuffix(SEVERAL), proof) if proof.endswith(SEVERAL) else (proof,)


def _verdict(proof: str, measured: Mapping[str, str]) -> str:
    """The first of its parts that did not pass; else a pass."""
    found = [measured.get(part, "not measured") for part in parts_of(proof)]
    return next((verdict for verdict in found if verdict != "pass"), "pass")


def _remembered(file: Path) -> dict[str, str]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {name: x for name, x in known.items() if x == "pass"} if isinstance(known, dict) else {}


def measure(proofs: Sequence[str], tick: Tick = lambda: True) -> dict[str, str]:
    """The verdict of each proof that came to one. Nothing is timed, so all processors are used."""
    if find_spec("jax") is None:  # all backends are given the same draws, made by JAX
        return dict.fromkeys(proofs, f"fail: a proof needs jax, which is not installed: {install('jax')}")
    deadline = time.monotonic() + TIMEOUT_S
    variables = {**os.environ, **dict.fromkeys(machine.THREADS, "1"), **imports.variables()}
    shares = shared_out(proofs, len(machine.allowed_processors()))
    with ExitStack() as stack:
        workers = [stack.enter_context(isolated(COMMAND, variables)) for _ in shares]
        for worker, share in zip(workers, shares, strict=True):
            worker.tell(json.dumps(share))
            worker.hang_up()
        for worker in workers:
            worker.listen(deadline, tick)
    return verdicts_of([row for worker in workers for message in worker.messages for row in message["rows"]])


def shared_out(proofs: Sequence[str], count: int) -> list[list[str]]:
    """The proofs in at most `count` shares that take about as long; in each, the longest are first."""
    shares: list[list[str]] = [[] for _ in range(min(count, len(proofs)))]
    for proof in sorted(proofs, key=_cost, reverse=True):
        min(shares, key=lambda share: sum(map(_cost, share))).append(proof)
    return shares


def _cost(proof: str) -> float:
    """How long a proof takes, roughly: torch compiles for three times as long as XLA."""
    return 3.0 if BACKENDS[proof.split("/")[1]].family == "torch" else 1.0


def verdicts_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Proof -> `pass`, its last deviation beyond tolerance, or why it could not be measured."""
    found = {row["proof"]: "pass" for row in rows}
    for row in rows:
        if not row["ok"]:
            found[row["proof"]] = f"fail: {row['error']}" if "error" in row else f"fail: {_deviation(row)}"
    return found


def _deviation(row: Mapping[str, Any]) -> str:
    size = "no number" if row["deviation"] is None else f"off by {row['deviation']:.1e}"
    return f"{row['level']} {row['quantity']} {size}"
