"""A peer's run: its program, in its own virtual environment, with the isolation that every run has."""

import json
import math
import sys
from pathlib import Path
from typing import Any

from benchback.algorithms.dqn import config as dqn
from benchback.algorithms.ppo import config as ppo
from benchback.measure.peers.environments import Environment, Unavailable, prepare
from benchback.measure.peers.sides import BASELINES, PROGRAMS, SIDES, Side
from benchback.measure.peers.work import WORKLOADS, told
from benchback.measure.process import Ended, Launch, Tick, supervise, with_record, worker_variables
from benchback.measure.record import Cell, Record
from benchback.measure.wire import Garbled, parse_parts

REQUIRED = ("env_steps", "steady_s", "compile_s")
IDENTITY = ("algorithm", "backend", "mode", "unit", "chunk", "gradients", "seed", "model")
"""Fields of a configuration that name the implementation, not the work."""


def peer_launch() -> Launch:
    """Runs a side's program on its work; creates the virtual environment before the first run that needs it."""
    refused: dict[Environment, Unavailable] = {}

    def launch(cell: Cell, seed: int, timeout_s: float, tick: Tick) -> Ended:
        side = SIDES[cell.run["variant"]]
        try:
            if side.environment in refused:
                raise refused[side.environment]
            python = prepare(side.environment, tick) if side.environment else Path(sys.executable)
            return run_peer(side, cell, seed, python, timeout_s, tick)
        except Unavailable as reason:
            if side.environment:
                refused[side.environment] = reason
            return Ended("error", f"unavailable: {reason}")

    return launch


def run_peer(side: Side, cell: Cell, seed: int, python: Path, timeout_s: float, tick: Tick) -> Ended:
    """One run of a side; an error if its work differs from the request beyond what the side declares."""
    command = [str(python), str(program_of(side))]
    work = told(cell, seed)
    with worker_variables(cell) as variables:
        # The module the programs share is beside most of them, but not beside the baselines.
        variables["PYTHONPATH"] = str(PROGRAMS)
        try:
            job = json.dumps({"work": work, "options": side.options, "demand": demand_of(side, cell)})
            ended = with_record(supervise(command, variables, job, timeout_s, tick), parse_outcome)
        except FileNotFoundError:
            raise Unavailable(f"{python} is not there; remove {python.parents[1]} to have it made anew") from None
    if ended.outcome != "ok":
        return ended
    other = differences(work, ended.messages[0]["record"]["ledger"]["config"], side.differs)
    detail = ", ".join(f"{name}={done!r} instead of {asked!r}" for name, (asked, done) in other.items())
    return Ended("error", f"not the same work: {detail}", ended.log, ended.duration_s) if other else ended


def demand_of(side: Side, cell: Cell) -> dict[str, Any] | None:
    """What an iteration of the cell asks of the machine in the side's own layers; nothing of another kind of layer.

    None of work that is not a workload of the comparison: its limits are not asked for.
    """
    if "network" in side.differs:
        return {}
    work = WORKLOADS.get(cell.run["workload"])
    return work and work.demand(side.differs.get("hidden_sizes", ()))


def program_of(side: Side) -> Path:
    """The side's file, or Unavailable."""
    found = next((path for path in (PROGRAMS / side.program, BASELINES / side.program) if path.exists()), None)
    if found is None:
        raise Unavailable(f"{side.program} comes with a checkout of the repository only")
    return found


def parse_outcome(fields: Any) -> Record:
    """The record of a peer's run, with everything that metrics are computed from; Garbled if it is none."""
    record = parse_parts(fields)
    if not isinstance(record.ledger.get("config"), dict):
        raise Garbled("a peer must say which configuration it ran")
    for name in REQUIRED:
        values = record.samples.get(name) or [None]
        if len(values) != 1 or values[0] is None:
            raise Garbled(f"{name} of a peer must be a number")
    steps, seconds = record.samples["env_steps"][0], record.samples["steady_s"][0]
    if not steps or not seconds or steps <= 0 or seconds <= 0:
        raise Garbled(f"env_steps={steps} in steady_s={seconds} is no speed")
    if "peak_rss_bytes" not in record.memory:
        raise Garbled("a peer must say its peak_rss_bytes")
    return record


def differences(work: dict[str, Any], config: dict[str, Any], declared: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Field -> (requested, actual) where they differ and the side has not declared it."""
    asked = {name: x for name, x in work.items() if name not in IDENTITY} | declared
    # Adam's defaults, an MLP and PPO's clipped objective everywhere, not reported by all.
    mlp = ("network",) if work.get("network", "mlp") == "mlp" else ()
    optional = ("adam_beta1", "adam_beta2", *mlp, *ppo.Config.later, *dqn.Config.later)
    pairs = {name: (x, config.get(name, x if name in optional else None)) for name, x in asked.items()}
    return {name: (x, y) for name, (x, y) in pairs.items() if not _same(x, y)}


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, float) and isinstance(y, int | float):
        return math.isclose(x, y, rel_tol=1e-6)
    return x == y
