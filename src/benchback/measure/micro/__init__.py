"""Micro-benchmarks: the cost of a forward pass, a rollout step and an update in each backend and idiom.

Every backend has one process, and only one of them runs at a time: samples are taken round-robin in an order that is
shuffled in each round. A comparison is a study of kind `operations` with one cell, whose blocks are
the rounds. Cost is split into compute and dispatch by a hollow twin: the same program with layers of width one, which
has as many arrays and operations and nothing to compute. Importing this imports no framework.
"""

from collections.abc import Sequence
from dataclasses import asdict

from benchback import registry
from benchback.errors import InputError
from benchback.measure.micro.operations import IDIOMS, Program
from benchback.measure.micro.summary import summarise
from benchback.measure.study import Product, Study

__all__ = ["study_for", "summarise"]

BATCHES = (1, 32, 1024)
HIDDEN = (64, 64)
TIMEOUT_S = 7200.0
"""Time limit of a round; the first one compiles everything."""


def study_for(
    *,
    quick: bool = False,
    backends: Sequence[str] = (),
    batches: Sequence[int] = (),
    rounds: int | None = None,
    threads: int = 1,
) -> Study:
    """The comparison of the given choices; everything where nothing was chosen."""
    for name in backends:
        registry.choose("backend", name, registry.BACKENDS)
    for batch in batches:
        if batch < 1:
            raise InputError(f"batches={batch} must be at least 1")
    if rounds is not None and rounds < 2:
        raise InputError(f"rounds={rounds} gives no interval; choose at least 2")
    chosen = batches or ((32,) if quick else BATCHES)
    variants = [
        (name, mode)
        for name in backends or registry.BUILT_IN_BACKENDS
        for mode in registry.BACKENDS[name].modes
        if mode in IDIOMS and (not quick or mode == registry.BACKENDS[name].best)
    ]
    programs = [asdict(Program(*variant, batch, HIDDEN)) for variant in variants for batch in chosen]
    fixed = {"algorithm": "ppo", "env": "CartPole-v1", "programs": programs, "duration_s": 0.01 if quick else 0.02}
    return Study(
        name="micro-quick" if quick else "micro",
        kind="operations",
        products=(Product(axes={"variant": ["operations"]}, fixed=fixed),),
        min_blocks=rounds or (5 if quick else 20),
        max_blocks=rounds or (5 if quick else 20),
        timeout_s=TIMEOUT_S,
        aa=False,
        rerun_noisy=False,
        threads=threads,
    )
