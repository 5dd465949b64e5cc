"""Evidence inside the timed runs: from the same weights and keys, their first iterations must compute the same."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchback.analysis.groups import Group, Outcome, comparable, original, reference_variant
from benchback.analysis.reasons import Deviates
from benchback.measure.record import Cell, Record
from benchback.registry import BACKENDS

ITERATIONS = 2
"""Compared from the start: the second shows whether the first update was the same. Later ones amplify rounding."""
LIMIT = 0.01
"""Largest relative deviation of runs that compute the same. Rounding of float32 gives about 1e-6. Rarely it flips one
sampled action; among sixteen thousand, whose means the metrics are, that gives about 1e-3. A different loss, clipping,
order of minibatches or reset gives tens of percent."""
FLOOR = 0.1
"""Values smaller than this are compared as if they were this large: a policy loss is a mean of standardised
advantages, which cancel, so that its own size is no measure of its rounding."""


@dataclass(frozen=True)
class Evidence:
    """How far runs that began with the same weights and keys agree."""

    pairs: int
    """Runs compared with that of the reference in their block."""
    cells: int
    """Cells to which these runs belong."""
    uncompared: int
    """Runs that could not be compared: of another framework, without a note of their weights, or with others."""
    largest: float = 0.0
    """Largest relative deviation."""
    metric: str = ""
    """Where it was found; empty where nothing deviates."""
    iteration: int = 0
    deviating: int = 0
    """Pairs beyond `LIMIT`, which lose their claim."""


def first_iterations(record: Record) -> dict[str, tuple[float | None, ...]]:
    """Losses, gradient norm and return of the first iterations, by metric; None where a value does not exist.

    There is one value per iteration, also where a call has several.
    """
    return {name: tuple(x[:ITERATIONS]) for name, x in sorted(record.samples.items()) if _compared(name)}


def _compared(metric: str) -> bool:
    return metric.endswith("loss") or metric in ("grad_norm", "episode_return")


def deviation(a: Outcome, b: Outcome) -> Deviates | None:
    """The largest deviation of two runs; None where they cannot be compared.

    Only runs of one framework draw the same random numbers from a key, and only from the same weights do they go the
    same way.
    """
    if not _same_start(a.ledger, b.ledger):
        return None
    found = [Deviates(*place, _relative(x, y)) for place, x, y in _values(a.first, b.first)]
    return max(found, key=lambda each: each.deviation, default=None)


def deviates(a: Outcome, b: Outcome) -> Deviates | None:
    """Why two runs must not be compared: they began alike and went apart. None where they did not."""
    found = deviation(a, b)
    return found if found is not None and found.deviation > LIMIT else None


def _same_start(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    weights = a.get("weights"), b.get("weights")
    families = [BACKENDS[x["backend"]].family if x.get("backend") in BACKENDS else None for x in (a, b)]
    return weights[0] is not None and weights[0] == weights[1] and families[0] == families[1] is not None


Series = Mapping[str, Sequence[float | None]]


def _values(a: Series, b: Series) -> Iterator[tuple[tuple[str, int], float | None, float | None]]:
    """Every place (metric, iteration) that both have, with both values."""
    for metric in sorted(a.keys() & b.keys()):
        for iteration, (x, y) in enumerate(zip(a[metric], b[metric], strict=False)):
            yield (metric, iteration), x, y


def _relative(a: float | None, b: float | None) -> float:
    """|a - b| over the larger of both and the floor; 0 where neither exists, infinite where one does."""
    if a is None or b is None:
        return 0.0 if a is b else math.inf
    return abs(a - b) / max(abs(a), abs(b), FLOOR)


def evidence_of(groups: Sequence[Group]) -> Evidence:
    """All runs of the groups against those of their reference, block by block; a twin against its original."""
    found: list[tuple[Cell, Deviates]] = []
    uncompared = 0
    for cell, mine, theirs in _pairs(groups):
        worst = deviation(mine, theirs)
        if worst is None:
            uncompared += 1
        else:
            found.append((cell, worst))
    cells = len({cell.id for cell, _ in found})
    if not found:
        return Evidence(0, 0, uncompared)
    most = max((each for _, each in found), key=lambda each: each.deviation)
    beyond = sum(each.deviation > LIMIT for _, each in found)
    where = (most.metric, most.iteration) if most.deviation else ("", 0)
    return Evidence(len(found), cells, uncompared, most.deviation, *where, deviating=beyond)


def _pairs(groups: Sequence[Group]) -> Iterable[tuple[Cell, Outcome, Outcome]]:
    """Every run that has a result with the one with which it is compared."""
    for _, part in comparable(groups):
        reference = reference_variant(part)
        for group in part:
            for cell in group.cells:
                rival = group.cell(original(cell).variant if cell.twin else reference)
                if rival is None or rival.id == cell.id:
                    continue
                mine, theirs = group.outcomes[cell.id], group.outcomes[rival.id]
                for block in sorted(mine.keys() & theirs.keys()):
                    if mine[block].ledger and theirs[block].ledger:
                        yield cell, mine[block], theirs[block]
