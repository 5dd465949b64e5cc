"""The ledger of work in a sentence: whether all variants of a group were given the same to compute."""

from collections.abc import Mapping
from typing import Any

from benchback.analysis.source import Source
from benchback.analysis.wording import extra_work_text
from benchback.measure.flops import ExtraWork, extra_work


def work_text(source: Source, names: Mapping[str, str]) -> str:
    """Who evaluates most beyond the leanest of its group; empty where work is not counted."""
    ledgers: dict[str, Mapping[str, Any]] = {}
    for run in source.runs:
        if run.sampled and "forward_flops" in run.sampled.ledger:
            ledgers.setdefault(run.cell.id, run.sampled.ledger)
    if not ledgers:
        return ""
    most: ExtraWork | None = None
    text = "All backends compute the same: their ledgers count equal work."
    for group in source.groups:
        counted = [cell for cell in group.cells if cell.id in ledgers and not cell.twin]
        for cell in counted:
            found = extra_work(ledgers[cell.id], [ledgers[other.id] for other in counted])
            if found and (most is None or found.share > most.share):
                most = found
                name = names.get(cell.variant, cell.variant)
                text = f"{name} evaluates {extra_work_text(found)} than the leanest ({source.title(group)})."
    return text
