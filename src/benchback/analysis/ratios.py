"""What the claims of a store are made of: seconds of a variant beside those of its reference, round by round.

Only what counts is here: runs whose program is proven and that computed the same as the reference's, in relays whose
ratio is steady. So a claim is the mean of what is left, and anybody can compute it.
"""

from collections.abc import Iterator
from typing import Any

from benchback.analysis.claims import paired
from benchback.analysis.groups import Group, comparable, env_of, model_of, original, reference_variant
from benchback.analysis.source import Source
from benchback.measure.metrics import METRICS
from benchback.measure.record import Cell

COLUMNS = (
    *("stratum", "algorithm", "env", "model", "group", "variant", "reference", "twin"),
    *("metric", "block", "round", "seconds", "reference_seconds"),
)


def ratio_rows(source: Source, stratum: int) -> Iterator[dict[str, Any]]:
    """A row for each round of each relay, or for each block of whole runs (round 0), of all metrics."""
    for _, groups in comparable(source.groups):
        reference = reference_variant(groups)
        for group in groups:
            for cell in group.cells:
                rival = group.cell(original(cell).variant if cell.twin else reference)
                if rival is not None and rival is not cell:
                    for row in _of_pair(source, group, cell, rival):
                        yield {"stratum": stratum} | row


def _of_pair(source: Source, group: Group, cell: Cell, rival: Cell) -> Iterator[dict[str, Any]]:
    who = {"algorithm": cell.run["algorithm"], "env": env_of(cell), "model": model_of(cell), "group": cell.group}
    who |= {"variant": cell.variant, "reference": rival.variant, "twin": cell.twin}
    for metric in METRICS:
        for block, pair in paired(group, cell, rival, metric, source.parity).items():
            if all(isinstance(seconds, float) for seconds in pair):
                for place, mine_s, theirs_s in _rounds(group, cell, rival, metric, block):
                    seconds = {"round": place, "seconds": mine_s, "reference_seconds": theirs_s}
                    yield who | {"metric": metric, "block": block} | seconds


def _rounds(group: Group, cell: Cell, rival: Cell, metric: str, block: int) -> Iterator[tuple[int, Any, Any]]:
    """Round, seconds and the reference's seconds: of every common round, or of the whole run."""
    mine, theirs = group.outcomes[cell.id][block], group.outcomes[rival.id][block]
    turns, other = mine.turns.get(metric), theirs.turns.get(metric)
    if turns and other:
        yield from ((place, turns[place], other[place]) for place in sorted(turns.keys() & other.keys()))
    else:
        yield 0, mine.metrics[metric], theirs.metrics[metric]
