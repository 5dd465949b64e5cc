"""Whether the best point is better than the defaults: both are trained again, on seeds that the search has not seen.

The best of many points was chosen because its returns were high, by merit or by luck, so they overstate it (the
winner's curse). Fresh seeds do not know about the choice.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchback.errors import InputError
from benchback.stats.ratios import bounds, estimate
from benchback.stats.returns import Difference, paired_difference
from benchback.tools.tune.programs import fits, programs_of
from benchback.tools.tune.searching import Search, Settings, train_programs
from benchback.training.run import Run

DEFAULTS, BEST = 0, 1
"""Numbers of the two points."""


@dataclass(frozen=True)
class Confirmation:
    """Returns of the best point and of the defaults on the same fresh seeds; NaN where no episode ended."""

    seeds: tuple[int, ...]
    best: np.ndarray
    defaults: np.ndarray

    @property
    def difference(self) -> Difference:
        """How much higher the returns of the best are."""
        return paired_difference(self.best, self.defaults)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with None for what is not there."""
        found = self.difference
        told = {"mean": found.mean, "low": found.low, "high": found.high}
        return {
            "seeds": list(self.seeds),
            "best": [_known(x) for x in self.best],
            "defaults": [_known(x) for x in self.defaults],
            "difference": {name: _known(x) for name, x in told.items()} | {"sign": found.sign},
        }


def _known(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def fresh_seeds(seed: int, count: int, used: Collection[int]) -> tuple[int, ...]:
    """So many seeds that are not among the used ones; a longer list begins with the shorter one."""
    check_count(count)
    random, taken, found = np.random.default_rng([seed, 5]), set(used), []
    while len(found) < count:
        drawn = int(random.integers(2**32))
        if drawn not in taken:
            taken.add(drawn)
            found.append(drawn)
    return tuple(found)


def check_count(count: int) -> None:
    """Raise an InputError unless so many seeds give an interval."""
    if count < 2:
        raise InputError(f"--confirm {count} must be at least 2 seeds: one has no interval")


def confirm(search: Search, values: Mapping[str, Any], count: int, used: Collection[int] = ()) -> Confirmation:
    """Train the point and the defaults to full length with `count` fresh seeds, as populations, into `confirm-COUNT`.

    The defaults are the run that all points share: what the user set, and the algorithm's own values for the rest.
    """
    seeds = fresh_seeds(search.seed, count, {*search.seeds, *used})
    programs = programs_of(search.space.base, [{}, dict(values)], seeds)
    for program in programs:
        check_can_confirm(program.run)
    options = search.settings
    plain = replace(search, settings=Settings(group=options.group, devices=options.devices))
    rows = train_programs(plain, programs, f"confirm-{count}")
    scores = {row["point"]: np.array([np.nan if x is None else x for x in row["scores"]]) for row in rows}
    return Confirmation(seeds, scores[BEST], scores[DEFAULTS])


def check_can_confirm(run: Run) -> None:
    """Raise an InputError unless the run can be a population."""
    if not fits(run):
        raise InputError(
            f"--confirm trains populations, and backend={run.backend} with env={run.env} has none; leave it out, and "
            "train best.yaml with other seeds"
        )


def sentences(found: Confirmation) -> list[str]:
    """What the fresh seeds say, in two sentences."""
    difference, count = found.difference, len(found.seeds)
    told = f"{_mean(found.best)} against {_mean(found.defaults)} of the defaults"
    on = f"On {count} fresh seeds, which the search has not seen, the best returns {told}."
    if difference.seeds < 2:
        return [on, "Too few episodes ended to compare them."]
    by = f"{difference.mean:.4g} [{difference.low:.4g}, {difference.high:.4g}]"
    if difference.sign > 0:
        return [on, f"It is better than the defaults by {by}."]
    if difference.sign < 0:
        return [on, f"It is worse than the defaults, by {by}: the search has found luck."]
    return [on, f"It cannot be told apart from the defaults: the difference is {by}."]


def _mean(scores: np.ndarray) -> str:
    known = scores[np.isfinite(scores)]
    if len(known) < 2:
        return "nothing" if not len(known) else f"{known[0]:.4g}"
    low, high = bounds(estimate(known))
    return f"{known.mean():.4g} [{low:.4g}, {high:.4g}]"
