"""One measurement: a fresh process with its own caches, a time limit, and a line of JSON that is checked."""

import json
import math
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchback.measure import machine
from benchback.measure.peers.sides import BASELINES, PROGRAMS, Side
from benchback.measure.peers.work import Workload
from benchback.measure.process import end_group

REQUIRED = ("env_steps", "steady_s", "compile_s", "peak_rss_bytes")
IDENTITY = ("algorithm", "backend", "mode", "unit", "chunk", "seed", "model")
"""Fields of a configuration that name who did the work, not what it was."""


class Failed(Exception):
    """A measurement that gave no figures; the message is the reason."""


def command_for(side: Side, work: Workload, python: Path, seed: int) -> list[str]:
    """How the side is started; all sides of a block are told the same work."""
    return [str(python), str(program_of(side)), json.dumps(work.to_dict(seed)), json.dumps(side.options)]


def program_of(side: Side) -> Path:
    """The side's file, or Failed."""
    found = next((path for path in (PROGRAMS / side.program, BASELINES / side.program) if path.exists()), None)
    if found is None:
        raise Failed(f"{side.program} comes with a checkout of the repository only")
    return found


def measure(command: Sequence[str], threads: int, timeout_s: float) -> dict[str, Any]:
    """What the program found, or Failed."""
    with tempfile.TemporaryDirectory(prefix="benchback-peers-") as caches:
        # What the programs share is found beside most of them, but not beside the baselines.
        variables = machine.variables(threads, caches) | {"PYTHONPATH": str(PROGRAMS)}
        code, stdout, stderr = _run(command, variables, timeout_s)
    if code:
        raise Failed(f"exit code {code}: {last_line(stderr) or 'no message'}")
    return checked(last_line(stdout))


def checked(line: str) -> dict[str, Any]:
    """The outcome in a program's last line; Failed unless it has every figure."""
    try:
        outcome = json.loads(line)
    except ValueError:
        raise Failed(f"printed no JSON: {line[:80]!r}") from None
    if not isinstance(outcome, dict) or not isinstance(outcome.get("config"), dict):
        raise Failed(f"printed no outcome: {line[:80]!r}")
    for name in REQUIRED:
        value = outcome.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Failed(f"{name}={value!r} is not a number")
    if outcome["steady_s"] <= 0 or outcome["env_steps"] <= 0:
        raise Failed(f"env_steps={outcome['env_steps']} in steady_s={outcome['steady_s']} is no speed")
    return outcome


def differences(work: dict[str, Any], config: dict[str, Any], declared: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Field -> (asked, done) for all that the side did otherwise and had not declared."""
    asked = {name: x for name, x in work.items() if name not in IDENTITY} | declared
    optional = ("adam_beta1", "adam_beta2")  # the default of every Adam, and not shown by all
    pairs = {name: (x, config.get(name, x if name in optional else None)) for name, x in asked.items()}
    return {name: (x, y) for name, (x, y) in pairs.items() if not _same(x, y)}


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, float) and isinstance(y, int | float):
        return math.isclose(x, y, rel_tol=1e-6)
    return x == y


def last_line(text: str) -> str:
    """The last line with something in it."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _run(command: Sequence[str], variables: dict[str, str], timeout_s: float) -> tuple[int, str, str]:
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    try:
        process = subprocess.Popen(command, env=variables, start_new_session=True, **options)
    except OSError as error:
        raise Failed(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except BaseException as error:
        end_group(process)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"not done after {timeout_s:g} s") from None
        raise
    return process.returncode, stdout, stderr
