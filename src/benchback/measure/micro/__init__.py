"""Operation by operation: what a forward pass, a step of experience and an update cost in each backend and idiom.

Every backend lives in one process of its own for the whole comparison, and only one of them works at a time: samples
are taken round-robin in an order that is shuffled anew in each round. Cost is split into compute and dispatch by a
hollow twin: the same program with layers of width one, which has as many arrays and operations and nothing to compute.
"""

from typing import Any

from benchback.measure.micro.campaign import Plan, Progress, plan_for, run
from benchback.measure.micro.summary import summarise

__all__ = ["Plan", "measure", "plan_for", "run", "summarise"]


def measure(plan: Plan, progress: Progress = lambda what, done, total: None) -> list[dict[str, Any]]:
    """One row for each operation, batch, backend and mode."""
    return summarise(plan, run(plan, progress))
