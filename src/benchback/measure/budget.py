"""Time for a campaign: how it is written, and what a study makes of it."""

import re
from dataclasses import replace

from benchback.errors import InputError
from benchback.measure.study import Study

FEWEST_BLOCKS = 3
"""Blocks of every group that a budget asks for before it adds some where they are needed most."""
MOST_BLOCKS = 30
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(budget: str) -> float:
    """Seconds of `90s`, `5m` or `1h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise InputError(f"--budget {budget} must be a time greater than 0 with its unit, e.g. 90s, 5m or 1h")
    return seconds


def within(study: Study, budget_s: float) -> Study:
    """The study with as many blocks as fit in the budget, a few at least."""
    return replace(study, budget_s=budget_s, min_blocks=min(study.min_blocks, FEWEST_BLOCKS), max_blocks=MOST_BLOCKS)
