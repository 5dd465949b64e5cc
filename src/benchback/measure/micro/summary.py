"""From a store to rows: medians with intervals, ratios within rounds, dispatch and compute separately."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchback.errors import InputError
from benchback.measure.micro.launch import limit_name, programs_of
from benchback.measure.micro.operations import OPERATIONS, Program, hollow, sample_name
from benchback.measure.micro.work import matmul_flops, update_flops
from benchback.measure.results import failure, latest
from benchback.measure.store import Store
from benchback.registry import BACKENDS, DEFAULT_BACKEND
from benchback.stats import median_interval, paired_ratio

REFERENCE = (DEFAULT_BACKEND, BACKENDS[DEFAULT_BACKEND].best)
"""Reference of the ratios; the first program if this one was not measured."""
Samples = dict[str, list[float]]
"""Seconds by name, one for each round."""


def summarise(store: Store) -> list[dict[str, Any]]:
    """One row for each program and operation."""
    (cell,) = store.cells().values()
    return rows(programs_of(cell), samples_of(store))


def samples_of(store: Store) -> Samples:
    """The samples of all rounds that have a result, in their order."""
    taken: Samples = {}
    tried = sorted(latest(store), key=lambda found: found[0].block)
    for _, attempt in tried:
        for name, values in (attempt.record.samples if attempt.record else {}).items():
            taken.setdefault(name, []).extend(x for x in values if x is not None)
    if not taken:
        raise InputError(f"no round has a result: {failure(tried[0][1]) if tried else 'none was run'}")
    return taken


def rows(programs: Sequence[Program], taken: Samples) -> list[dict[str, Any]]:
    """One row for each operation, batch, backend and mode."""
    return [
        row(program, operation, reference(programs, program), taken)
        | {"compile_s": taken[sample_name(program, operation, first=True)][0]}
        | (arithmetic(program, taken) if operation == "update" else {})
        for operation in OPERATIONS
        for batch in dict.fromkeys(program.batch for program in programs)
        for program in programs
        if program.batch == batch
    ]


def arithmetic(program: Program, taken: Samples) -> dict[str, float]:
    """FLOP rate of an update, and its share of the machine's rate on the same matrix shapes."""
    update_s = statistics.median(taken[sample_name(program, "update")])
    product_s = statistics.median(taken[limit_name(program.batch)])
    rate = update_flops(program.batch, program.hidden) / update_s
    limit = matmul_flops(program.batch, program.hidden[-1]) / product_s
    return {"flops_per_s": rate, "limit_flops_per_s": limit, "fraction_of_limit": rate / limit}


def reference(programs: Sequence[Program], program: Program) -> Program:
    """The program of the reference backend that does the same work."""
    candidates = [other for other in programs if other.batch == program.batch]
    return next((other for other in candidates if (other.backend, other.mode) == REFERENCE), candidates[0])


def row(program: Program, operation: str, rival: Program, taken: Samples) -> dict[str, Any]:
    """The row of one operation of one program."""
    mine, empty = taken[sample_name(program, operation)], taken[sample_name(hollow(program), operation)]
    call, dispatch = median_interval(mine), median_interval(empty)
    ratio = paired_ratio(mine, taken[sample_name(rival, operation)])
    return {
        "operation": operation,
        "batch": program.batch,
        "backend": program.backend,
        "mode": program.mode,
        "idiom": "closed over" if operation == "closed" else program.idiom,
        "call_s": call.value,
        "call_low_s": call.low,
        "call_high_s": call.high,
        "dispatch_s": dispatch.value,
        "compute_s": max(0.0, call.value - dispatch.value),
        "rival": f"{rival.backend}/{rival.mode}",
        "ratio": asdict(ratio),
        "rounds": len(mine),
    }
