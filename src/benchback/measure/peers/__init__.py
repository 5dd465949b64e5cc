"""benchback beside its peers: the same PPO work in rejax, stable-baselines3, sbx and two baselines, interleaved.

`compare` measures, `summarise` turns the rows into one line for each side. Neither prints, and importing this
imports no framework.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.measure.peers.campaign import Plan, Progress, run, schedule
from benchback.measure.peers.sides import SIDES
from benchback.measure.peers.summary import summarise
from benchback.measure.peers.work import QUICK_ITERATIONS, WORKLOADS

__all__ = ["SIDES", "WORKLOADS", "Plan", "compare", "plan_for", "run", "schedule", "summarise"]

QUICK_BLOCKS = 2


def compare(plan: Plan, out: Path | None = None, progress: Progress = lambda what, done, total: None) -> list[dict]:
    """Measure what the plan asks; one row per measurement, also written to `out` as JSON lines."""
    if out and out.exists():
        raise InputError(f"{out} exists; choose another --out or remove it")
    return run(plan, out, progress)


def plan_for(
    *,
    quick: bool = False,
    blocks: int | None = None,
    workloads: Sequence[str] = (),
    sides: Sequence[str] = (),
    **options: Any,
) -> Plan:
    """A plan of named workloads and sides, by default all; quick: workload A, short, in two blocks."""
    blocks = blocks if blocks is not None else QUICK_BLOCKS if quick else Plan.blocks
    if blocks < 1:
        raise InputError(f"blocks={blocks} must be at least 1")
    for name in ("threads", "timeout_s"):
        if options.get(name, 1) < 1:
            raise InputError(f"{name}={options[name]} must be at least 1")
    works = [_known("workload", name, WORKLOADS) for name in workloads or (("A",) if quick else tuple(WORKLOADS))]
    chosen = [_known("side", name, SIDES) for name in sides or SIDES]
    if quick:
        works = [work.shortened(QUICK_ITERATIONS) for work in works]
    return Plan(tuple(works), tuple(chosen), blocks, **options)


def _known(kind: str, name: str, known: dict[str, Any]) -> Any:
    from benchback.registry import choose

    return known[choose(kind, name, known)]
