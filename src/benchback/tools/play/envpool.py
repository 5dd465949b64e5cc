"""envpool's environments: images as the agent sees them, the others by gymnasium, which has their twins."""

from collections.abc import Iterator

import numpy as np

from benchback.agent import Weights
from benchback.envs.interface import EnvState
from benchback.tools.play import Film, Frame, gymnasium
from benchback.tools.play.steps import Player, played, player
from benchback.training.run import Run, environment

FRAMES_PER_S = 15.0
"""Atari draws 60 frames a second, of which every fourth is seen."""
ENLARGED = 4
"""Pixels of the video for each of a frame, along each side."""


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The policy in the environment itself or, where that has no images, in gymnasium's of the same name."""
    if len(environment(run, 1).observation_shape) != 3:
        return gymnasium.film(run, weights, seed)
    return Film(_frames(player(run, weights, seed), seed), FRAMES_PER_S)


def _frames(playing: Player, seed: int) -> Iterator[Frame]:
    def look(state: EnvState) -> np.ndarray:
        newest = np.asarray(playing.backend.fetch({"obs": state.obs})["obs"])[0, ..., -1]
        picture = np.kron(newest, np.ones((ENLARGED, ENLARGED), np.uint8))
        return np.repeat(picture[..., None], 3, axis=-1)

    for step in played(playing, seed, look):
        yield Frame(step.seen, step.episode_return, step.ended)
