"""Videos of a trained agent: its greedy policy acts, and every step is a frame.

`steps.py` runs the episodes, `gymnax.py`, `gymnasium.py`, `envpool.py`, `brax.py` and, for a user's own environments,
`own.py` draw them, `video.py` writes the file. All of it works without a screen. Importing this imports no framework.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np

from benchback.agent import Weights
from benchback.envs.ids import OWN, split
from benchback.errors import InputError
from benchback.tools.play import video
from benchback.training.run import Run

DRAWN_AS = {"gymnax": "gymnax", "torch": "gymnax", "gymnasium": "gymnasium", "envpool": "envpool", "brax": "brax"}
"""Suite -> the suite that draws it: native torch environments have twins in gymnax."""
DRAWN_AS |= dict.fromkeys(OWN, "own")


@dataclass(frozen=True)
class Frame:
    """The picture before a step, and the step's outcome."""

    image: np.ndarray
    """`[height, width, 3]`, bytes."""
    episode_return: float
    """Rewards of the episode so far, this step's included."""
    ended: bool
    """Whether the step ended the episode."""


@dataclass(frozen=True)
class Film:
    """Frames as they are played, one episode after another."""

    frames: Iterator[Frame]
    frames_per_s: float
    """Frames per second at which the environment runs in real time, or is easy to follow."""


@dataclass(frozen=True)
class Episode:
    """Outcome of an episode in the video."""

    episode_return: float
    steps: int
    ended: bool
    """False if the step limit came first."""


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The greedy policy of `run` in its environment, without end; refused where nothing can draw it."""
    suite = split(run.env).suite
    if suite not in DRAWN_AS:
        raise InputError(f"env={run.env} cannot be drawn; play knows {', '.join(sorted(DRAWN_AS))}")
    with video.needed("play"):
        return import_module(f"benchback.tools.play.{DRAWN_AS[suite]}").film(run, weights, seed)


def record(
    run: Run,
    weights: Weights,
    out: Path,
    *,
    seed: int = 1,
    episodes: int = 1,
    max_steps: int = 1000,
    frames_per_s: float | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Episode]:
    """Write a video of `episodes` episodes, of at most `max_steps` steps in all; returns their outcomes."""
    video.check(out)
    shown: list[Episode] = []
    playing = film(run, weights, seed)
    with video.writer(out, frames_per_s or playing.frames_per_s) as write:
        steps = 0
        for number, frame in enumerate(islice(playing.frames, max_steps), 1):
            write(frame.image)
            steps += 1
            if frame.ended or number == max_steps:
                shown.append(Episode(frame.episode_return, steps, frame.ended))
                steps = 0
            progress(f"episode {len(shown) + (steps > 0)}, return {frame.episode_return:.1f}", number, max_steps)
            if len(shown) == episodes:
                break
    return shown
