"""What is watched while an agent trains: greedy evaluations with the best weights kept, a return to stop at, and
numbers that are no longer finite.

None of it changes the training: evaluations have environments and random numbers of their own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchback.agent import Weights, network_of, networks
from benchback.errors import InputError
from benchback.training import checkpoint
from benchback.training.checkpoint import Checkpoint
from benchback.training.evaluate import Evaluator
from benchback.training.rows import append_rows, read_rows
from benchback.training.run import Run

EVALUATION_SEED = 1
"""As `benchback eval` has it, which therefore repeats an evaluation exactly. Always the same: evaluations compare
weights, and equal starts compare them better."""
RECENT = 10
"""Iterations whose mean return is compared with `stop_at` where nothing is evaluated."""
OF_EPISODES = ("episode_return", "episode_length")
"""Metrics that are NaN whenever no episode ended."""


@dataclass(frozen=True)
class Monitor:
    """What to watch."""

    evaluate_every: int | None = None
    """Environment steps between greedy evaluations, of which there is also one at the end; None: none at all."""
    evaluate_episodes: int = 16
    """Episodes of an evaluation."""
    stop_at: float | None = None
    """Return at which training ends: the mean of an evaluation, or of the last ten iterations in which episodes ended
    where nothing is evaluated."""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise InputError(f"evaluate_every={self.evaluate_every} must be at least 1 environment step")
        if self.evaluate_episodes < 1:
            raise InputError(f"evaluate_episodes={self.evaluate_episodes} must be at least 1")
        if self.stop_at is not None and not math.isfinite(self.stop_at):
            raise InputError(f"stop_at={self.stop_at} must be a finite return, e.g. 475")


class Diverged(Exception):
    """Training produced numbers that are not finite; the message is one line and names the remedy."""

    def __init__(self, run: Run, iteration: int, what: str, folder: Path, saved: int):
        rates = [name for name in vars(run.config) if name.endswith("learning_rate")]
        remedy = ", ".join(f"{name} below {getattr(run.config, name):g}" for name in rates) or "smaller steps"
        kept = f"the checkpoint of iteration {saved} is in {folder}" if saved else f"no checkpoint yet in {folder}"
        stopped = f"{what} is not finite in iteration {iteration}, so training stopped"
        super().__init__(f"{stopped}; {kept}; try {remedy}")
        self.iteration, self.saved = iteration, saved
        self.without_folder = (f"{stopped}; try {remedy}",)
        """Its `args` where the folder is gone."""


def first_not_finite(run: Run, rows: Sequence[Mapping[str, Any]]) -> tuple[int, str] | None:
    """The first iteration in which a metric of learning is not finite, and that metric."""
    for row in rows:
        if row["iteration"] <= run.config.iterations_before_learning:
            continue
        for name in learning_metrics(run, row):
            if not math.isfinite(row[name]):
                return row["iteration"], name
    return None


def learning_metrics(run: Run, names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Those of the metrics that every iteration which learns has."""
    missing = (*OF_EPISODES, *getattr(run.config, "delayed_metrics", ()))
    return [name for name in names if name not in missing]


def weights_not_finite(weights: Weights) -> str | None:
    """The name of an array of the networks that has numbers which are not finite."""
    return next((name for name, x in networks(weights).items() if not np.isfinite(x).all()), None)


class Watch:
    """Evaluates an agent while it trains, keeps the best weights, and tells when it has reached the wanted return."""

    def __init__(self, run: Run, monitor: Monitor, evaluations: Path, best: Path, metrics: Path):
        self.run, self.monitor, self.evaluations, self.best_path = run, monitor, evaluations, best
        self.evaluator: Evaluator | None = None
        means = [float(row["return_mean"]) for row in read_rows(evaluations)]
        self.best = max((x for x in means if not math.isnan(x)), default=-math.inf)
        self.recent = _ended(float(row["episode_return"]) for row in read_rows(metrics)[-100 * RECENT :])
        self.reached: float | None = None
        """The return that was at least `stop_at`."""

    def after(self, rows: Sequence[Mapping[str, Any]], export: Any) -> dict[str, Any] | None:
        """Watch the iterations of a program call; returns the evaluation if one was due."""
        self.recent = _ended([*self.recent, *(row["episode_return"] for row in rows)])
        if self.monitor.evaluate_every is None:
            if len(self.recent) == RECENT:
                self._compare(float(np.mean(self.recent)))
            return None
        if not self._due(rows[0]["iteration"] - 1, rows[-1]["iteration"]):
            return None
        row = self._evaluate(rows[-1], export())
        self._compare(row["return_mean"])
        return row

    def _due(self, before: int, done: int) -> bool:
        """Whether a multiple of the wanted number of steps lies between two iterations, or this is the last one."""
        every, steps = self.monitor.evaluate_every or 0, self.run.config.batch_size
        return done * steps // every > before * steps // every or done >= self.run.config.num_iterations

    def _evaluate(self, at: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
        self.evaluator = self.evaluator or Evaluator(self.run, self.monitor.evaluate_episodes)
        returns = self.evaluator(weights, EVALUATION_SEED)
        ended = returns[~np.isnan(returns)]
        spread = {name: float(f(ended)) if ended.size else math.nan for name, f in SPREAD.items()}
        row = {"iteration": at["iteration"], "env_steps": at["env_steps"], "episodes": int(ended.size)} | spread
        append_rows(self.evaluations, [row])
        if row["return_mean"] > self.best:
            self.best = row["return_mean"]
            kept = Checkpoint(network_of(weights, replay=False), at["iteration"], self.run.to_dict())
            checkpoint.write(self.best_path, kept)
        return row

    def _compare(self, found: float) -> None:
        if self.monitor.stop_at is not None and found >= self.monitor.stop_at:
            self.reached = found


SPREAD = {"return_mean": np.mean, "return_std": np.std, "return_min": np.min, "return_max": np.max}


def _ended(returns: Any) -> list[float]:
    """The last returns of iterations in which episodes ended."""
    return [x for x in returns if not math.isnan(x)][-RECENT:]
