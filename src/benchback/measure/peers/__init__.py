"""benchback beside its peers: the same work in rejax, stable-baselines3, sbx and baselines, interleaved.

A comparison is a study of kind `peer`: a group for each workload, and in it a cell for each side. It is scheduled,
isolated, stored, stopped and continued as every study is. `summarise` turns its store into one line for each side.
Importing this imports no framework.
"""

from collections.abc import Sequence

from benchback.errors import InputError
from benchback.measure.peers.sides import SIDES
from benchback.measure.peers.summary import rows, summarise
from benchback.measure.peers.work import FIELDS_OF_CELL, WORKLOADS, Workload
from benchback.measure.study import Product, Study
from benchback.registry import choose

__all__ = ["SIDES", "WORKLOADS", "rows", "study_for", "summarise"]

BLOCKS, QUICK_BLOCKS = 5, 2
TIMEOUT_S = 300.0


def study_for(
    *,
    quick: bool = False,
    blocks: int | None = None,
    workloads: Sequence[str] = (),
    sides: Sequence[str] = (),
    threads: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> Study:
    """The named workloads in the named sides, by default all; quick: workload A, short, in two blocks."""
    blocks = blocks if blocks is not None else QUICK_BLOCKS if quick else BLOCKS
    if blocks < 1:
        raise InputError(f"blocks={blocks} must be at least 1")
    works = [WORKLOADS[choose("workload", name, WORKLOADS)] for name in workloads or (("A",) if quick else WORKLOADS)]
    chosen = [choose("side", name, SIDES) for name in sides or SIDES]
    if quick:
        works = [work.with_iterations(work.quick_iterations) for work in works]
    return Study(
        name="peers-quick" if quick else "peers",
        kind="peer",
        products=tuple(filter(len, (product_of(work, chosen) for work in works))),
        min_blocks=blocks,
        max_blocks=blocks,
        timeout_s=timeout_s,
        aa=False,
        rerun_noisy=False,
        threads=threads,
    )


def product_of(work: Workload, sides: Sequence[str]) -> Product:
    """The product of the workload and the sides that can do it; none is pinned to processors."""
    able = [name for name in sides if SIDES[name].does(work)]
    fixed = {FIELDS_OF_CELL[0]: work.name} | work.to_dict()
    return Product(axes={"variant": able}, label=work.name, fixed=fixed)
