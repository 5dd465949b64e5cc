"""What was found, on seeds that the search has not seen and on environments it was not evolved on.

Contestants have the same fresh seeds, so that differences are paired. Importing this module imports jax.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchback.stats.ratios import bounds, estimate
from benchback.stats.returns import Difference, paired_difference
from benchback.tools.discover.fitness import Trainings
from benchback.tools.discover.genomes import Floats
from benchback.training.run import Run

FOUND = "discovered"


@dataclass(frozen=True)
class Contest:
    """Returns of every contestant in one environment, by seed."""

    env: str
    evolved_on: bool
    scores: Mapping[str, np.ndarray]

    def against(self, other: str) -> Difference:
        """How much higher the returns of what was found are than those of another contestant."""
        return paired_difference(self.scores[FOUND], self.scores[other])

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with None for what is not there."""
        others = {name: vars(self.against(name)) for name in self.scores if name != FOUND}
        told = {name: {k: _known(x) for k, x in found.items()} for name, found in others.items()}
        scores = {name: [_known(x) for x in each] for name, each in self.scores.items()}
        return {"env": self.env, "evolved_on": self.evolved_on, "scores": scores, "against": told}


def _known(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def contest(
    run: Run,
    vectors: Mapping[str, np.ndarray],
    rivals: Mapping[str, Run],
    trainings: Trainings,
    seeds: Sequence[int],
    *,
    evolved_on: bool,
) -> Contest:
    """Train vectors and rivals with the same seeds: vectors as one population, each rival as one."""
    found = trainings.scores(run, np.stack(list(vectors.values())), seeds)
    scores = dict(zip(vectors, found, strict=True))
    for name, rival in rivals.items():
        scores[name] = Trainings(Floats({}, {})).scores(replace(rival, env=run.env), np.zeros((1, 0)), seeds)[0]
    return Contest(run.env, evolved_on, scores)


def rivals_of(run: Run) -> dict[str, Run]:
    """What a discovered drift is compared with: the usual clip, and DPO. Nothing for hyper-parameters."""
    if getattr(run.config, "surrogate", None) != "learned":
        return {}
    return {name: replace(run, config=replace(run.config, surrogate=name, objective=())) for name in ("clip", "drift")}


def sentence(found: Contest, other: str) -> str:
    """What the seeds say about what was found and another contestant."""
    difference = found.against(other)
    if difference.seeds < 2:
        return f"{found.env}: too few episodes ended to compare it with {other}"
    by = f"{difference.mean:.4g} [{difference.low:.4g}, {difference.high:.4g}]"
    verdict = {1: f"better than {other} by", -1: f"worse than {other}:", 0: f"no better than {other}:"}[difference.sign]
    return f"{found.env}: {verdict} {by}"


def mean_text(scores: np.ndarray) -> str:
    """Mean and 95 % interval over the seeds."""
    known = scores[np.isfinite(scores)]
    if len(known) < 2:
        return "nothing" if not len(known) else f"{known[0]:.4g}"
    low, high = bounds(estimate(known))
    return f"{known.mean():.4g} [{low:.4g}, {high:.4g}]"
