"""The ledger of work in a sentence: whether all variants of a group were given the same to compute."""

from collections.abc import Mapping
from typing import Any

from benchback.analysis.source import Source

COUNTED = ("flops", "evaluations")
"""Fields of a ledger that count work have one of these in their name."""


def work_text(source: Source, names: Mapping[str, str]) -> str:
    """Where variants of a group differ most in what they compute; empty where work is not counted."""
    counts = _counts(source)
    if not counts:
        return ""
    widest, text = 1.0, "All backends compute the same: their ledgers count equal work."
    for group in source.groups:
        for field in counts:
            known = {c.variant: counts[field][c.id] for c in group.cells if counts[field].get(c.id) and not c.twin}
            least, most = (pick(known, key=lambda name: known[name], default="") for pick in (min, max))
            if known and known[most] / known[least] > widest:
                widest = known[most] / known[least]
                pair = f"{names.get(most, most)} has {widest:.3g}x as many as {names.get(least, least)}"
                text = f"Work differs most in {field.replace('_', ' ')}: {pair} ({source.title(group)})."
    return text


def _counts(source: Source) -> dict[str, dict[str, float]]:
    """Field -> cell -> count, of the first run of every cell."""
    found: dict[str, dict[str, float]] = {}
    for run in source.runs:
        ledger: Mapping[str, Any] = run.sampled.ledger if run.sampled else {}
        for field, value in ledger.items():
            if any(word in field for word in COUNTED) and isinstance(value, int | float):
                found.setdefault(field, {}).setdefault(run.cell.id, float(value))
    return found
