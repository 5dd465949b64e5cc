"""From samples to rows: medians with intervals, ratios within rounds, dispatch apart from compute."""

import statistics
from dataclasses import asdict
from typing import Any

from benchback.measure.micro.campaign import Found, Plan, hollow
from benchback.measure.micro.operations import OPERATIONS, Subject
from benchback.measure.micro.work import matmul_flops, update_flops
from benchback.stats import median_interval, paired_ratio

REFERENCE = ("linen", "jit")
"""Whom the others are compared with; the first subject where it was not asked for."""


def summarise(plan: Plan, found: Found) -> list[dict[str, Any]]:
    """One row for each subject and operation."""
    taken: dict[tuple[Subject, str], list[float]] = {}
    for sample in sorted(found.samples, key=lambda sample: sample.round):
        taken.setdefault((sample.subject, sample.operation), []).append(sample.seconds)
    return [
        row(subject, operation, reference(plan, subject), taken)
        | {"compile_s": found.compile_s[subject][operation]}
        | (arithmetic(subject, taken[subject, operation], found) if operation == "update" else {})
        for operation in OPERATIONS
        for batch in dict.fromkeys(subject.batch for subject in plan.subjects)
        for subject in plan.subjects
        if subject.batch == batch
    ]


def arithmetic(subject: Subject, seconds: list[float], found: Found) -> dict[str, float]:
    """How fast an update multiplies, and which part that is of what the machine can do with the same shapes."""
    rate = update_flops(subject.batch, subject.hidden) / statistics.median(seconds)
    limit = matmul_flops(subject.batch, subject.hidden[-1]) / statistics.median(found.product_s[subject.batch])
    return {"flops_per_s": rate, "limit_flops_per_s": limit, "fraction_of_limit": rate / limit}


def reference(plan: Plan, subject: Subject) -> Subject:
    """Who does the same work in the reference's way."""
    rivals = [other for other in plan.subjects if other.batch == subject.batch]
    return next((other for other in rivals if (other.backend, other.mode) == REFERENCE), rivals[0])


def row(subject: Subject, operation: str, rival: Subject, taken: dict[Any, list[float]]) -> dict[str, Any]:
    """What is known of one operation of one subject."""
    mine, empty = taken[subject, operation], taken[hollow(subject), operation]
    call, dispatch = median_interval(mine), median_interval(empty)
    ratio = paired_ratio(mine, taken[rival, operation])
    return {
        "operation": operation,
        "batch": subject.batch,
        "backend": subject.backend,
        "mode": subject.mode,
        "idiom": "closed over" if operation == "closed" else subject.idiom,
        "call_s": call.value,
        "call_low_s": call.low,
        "call_high_s": call.high,
        "dispatch_s": dispatch.value,
        "compute_s": max(0.0, call.value - dispatch.value),
        "rival": f"{rival.backend}/{rival.mode}",
        "ratio": asdict(ratio),
        "rounds": len(mine),
    }
