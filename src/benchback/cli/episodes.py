"""Printing of what a trained agent plays: evaluations, and the episodes of a video."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchback.training.run import Run

if TYPE_CHECKING:
    from benchback.tools.play import Episode


def print_evaluation(run: Run, iteration: int, returns: np.ndarray, as_json: bool) -> None:
    """Print mean and spread of the returns of finished episodes."""
    finished = returns[~np.isnan(returns)]
    summary = {
        "env": run.env,
        "backend": run.backend,
        "iteration": iteration,
        "episodes": int(finished.size),
        "unfinished": int(returns.size - finished.size),
        "mean": float(finished.mean()) if finished.size else None,
        "std": float(finished.std()) if finished.size else None,
        "min": float(finished.min()) if finished.size else None,
        "max": float(finished.max()) if finished.size else None,
    }
    if as_json:
        print(json.dumps(summary))
    elif finished.size:
        print(
            "{env} {backend}: return {mean:.1f} +- {std:.1f} (min {min:.1f}, max {max:.1f})".format(**summary),
            end="",
        )
        print(f" over {summary['episodes']} episodes, {summary['unfinished']} unfinished")
    else:
        print(f"{run.env} {run.backend}: no episode finished")


def print_episodes(run: Run, iteration: int, shown: Sequence["Episode"], out: Path, as_json: bool) -> None:
    """Print the outcome of the episodes in a video, and its path."""
    if as_json:
        about = {"env": run.env, "backend": run.backend, "iteration": iteration, "video": str(out)}
        print(json.dumps(about | {"episodes": [asdict(episode) for episode in shown]}))
        return
    for number, episode in enumerate(shown, 1):
        how = "" if episode.ended else ", not ended"
        print(f"episode {number}: return {episode.episode_return:.1f} in {episode.steps} steps{how}")
    print(f"{run.env} {run.backend} after {iteration} iterations; video in {out}")
