"""A user's own environments, drawn by themselves: a JAX environment's `render_state`, or what Python's renders."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchback.agent import Weights
from benchback.errors import InputError
from benchback.tools.play import Film, Frame
from benchback.tools.play.gymnasium import drawing, shown, without_screen
from benchback.tools.play.steps import Player, played, player
from benchback.training.run import Run

FRAMES_PER_S = 10.0


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The policy in that environment."""
    without_screen()
    with drawing():
        playing = player(run, weights, seed, "rgb_array")
    if playing.env.external is not None:
        return shown(playing, seed, run.env)
    if playing.env.render is None:
        raise InputError(
            f"env={run.env} has nothing that draws it; give it render_state(state, params), "
            "which returns a picture [height, width, 3] in bytes"
        )
    return Film(_frames(playing, seed, playing.env.render), FRAMES_PER_S)


def _frames(playing: Player, seed: int, render: Callable[[Any], Any]) -> Iterator[Frame]:
    for step in played(playing, seed):
        yield Frame(np.asarray(render(step.seen), np.uint8), step.episode_return, step.ended)
