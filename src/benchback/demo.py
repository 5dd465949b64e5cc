"""A first look at all six backends: a short training each, in a process of its own, and the parity verdict."""

import json
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchback import registry

TAIL = 5
"""Iterations at the end of a run over which its speed and return are taken."""


def compare_backends(out: Path, iterations: int) -> list[dict[str, Any]]:
    """For each backend its speed, return, compile time and parity verdict; runs are kept under `out`."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    outcome = []
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("parity", total=(len(registry.BACKENDS)) * iterations + 1)
        verdict = parity_verdicts()
        bar.advance(task)
        for name, spec in registry.BACKENDS.items():
            bar.update(task, description=f"training {name} ({spec.best})")
            row = {"backend": name, "mode": spec.best, "parity": verdict.get(name, "fail"), "error": ""}
            outcome.append(row | train_one(name, out / name, iterations, lambda: bar.advance(task)))
    return outcome


def parity_verdicts() -> dict[str, str]:
    """`pass` or `fail` for each backend: float32, forward to twenty gradient steps."""
    command = ["parity", "--levels", "L0", "L1", "L2", "--dtypes", "float32", "--json"]
    process = subprocess.run([sys.executable, "-m", "benchback", *command], capture_output=True, text=True)
    if not process.stdout:
        return {}
    ok = dict.fromkeys(registry.BACKENDS, True)
    for row in json.loads(process.stdout)["rows"]:
        ok[row["backend"]] &= row["ok"]
    return {name: "pass" if passed else "fail" for name, passed in ok.items()}


def train_one(backend: str, out: Path, iterations: int, advance: Any) -> dict[str, Any]:
    """Train in a fresh process; steady speed and return over the last iterations, compile time from the first."""
    command = [sys.executable, "-m", "benchback", "train", "ppo", "--backend", backend, "--json"]
    command += ["--num-iterations", str(iterations), "--out", str(out)]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            event = json.loads(line)
            if event["event"] == "iteration":
                rows.append(event)
                advance()
        stderr = process.stderr.read() if process.stderr else ""
    if process.returncode:
        return {"error": (stderr.strip().splitlines() or ["failed"])[-1]}
    durations = [b["seconds"] - a["seconds"] for a, b in pairwise(rows)]
    steady_s = statistics.median(durations[-TAIL:])
    returns = [row["episode_return"] for row in rows[-TAIL:] if row["episode_return"] is not None]
    return {
        "steps_per_s": rows[0]["env_steps"] / steady_s,
        "return": statistics.mean(returns) if returns else float("nan"),
        "compile_s": rows[0]["seconds"] - steady_s,
    }
