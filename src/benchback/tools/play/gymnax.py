"""gymnax environments as its own visualiser draws them: classic control by gymnasium, boards by matplotlib."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchback.agent import Weights
from benchback.envs.ids import split
from benchback.envs.names import MINATAR
from benchback.errors import InputError
from benchback.tools.play import Film, Frame
from benchback.tools.play.gymnasium import without_screen
from benchback.tools.play.steps import played, player
from benchback.training.run import Run

BOARDS = (
    *MINATAR,
    "Pong-misc",
    "Catch-bsuite",
    "MetaMaze-misc",
    "FourRooms-misc",
    "PointRobot-misc",
)
"""Environments it draws with matplotlib; others but classic control give empty pictures."""
BOARD_FRAMES_PER_S = 10.0

Draw = Callable[[Any, Frame | None], np.ndarray]
"""(state, the frame before it) -> picture."""


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The policy in the gymnax environment of that name, which a native torch one equals step by step."""
    parts = split(run.env)
    without_screen()
    draw, frames_per_s = _drawing(parts.name)
    return Film(_frames(replace(run, env=f"gymnax/{parts.task}"), weights, seed, draw), frames_per_s)


def _frames(run: Run, weights: Weights, seed: int, draw: Draw) -> Iterator[Frame]:
    frame = None
    for step in played(player(run, weights, seed), seed):
        frame = Frame(draw(step.seen, frame), step.episode_return, step.ended)
        yield frame


def _drawing(name: str) -> tuple[Draw, float]:
    from gymnax.visualize import vis_gym

    import benchback.envs.gymnax  # noqa: F401  (imports gymnax without its optional dependencies)

    if name in vis_gym.SUPPORTED_GYM_ENVS:
        return _classic(name)
    if name in BOARDS:
        return _board(name), BOARD_FRAMES_PER_S
    known = ", ".join((*vis_gym.SUPPORTED_GYM_ENVS, *BOARDS))
    raise InputError(f"env=gymnax/{name}: gymnax draws nothing of it; what it draws: {known}")


def _classic(name: str) -> tuple[Draw, float]:
    """gymnasium's renderer, kept open: gymnax's own opens one for every frame."""
    import gymnasium
    import gymnax
    import pygame  # noqa: F401  (needed by the renderer, whose own error is less clear)
    from gymnax.visualize import vis_gym

    _, params = gymnax.make(name)
    scene: Any = gymnasium.make(name, render_mode="rgb_array").unwrapped
    scene.reset(seed=0)
    vis_gym.set_gym_params(scene, name, params)

    def draw(state: Any, before: Frame | None) -> np.ndarray:
        scene.state = vis_gym.get_gym_state(state, name)
        if name == "Pendulum-v1":
            scene.last_u = np.asarray(state.last_u, float)
        return scene.render()

    return draw, float(scene.metadata["render_fps"])


def _board(name: str) -> Draw:
    """gymnax's visualiser, restarted with every episode: static parts are drawn once."""
    import gymnax
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from gymnax.visualize import Visualizer

    environment, params = gymnax.make(name)
    scenes: list[Any] = []

    def draw(state: Any, before: Frame | None) -> np.ndarray:
        if before is None or before.ended:
            for scene in scenes:
                plt.close(scene.fig)
            scenes[:] = [Visualizer(environment, params, [state])]
            scenes[0].init()
        scene = scenes[0]
        scene.state_seq = [state]
        scene.update(0)
        so_far = 0.0 if before is None or before.ended else before.episode_return
        scene.ax.set_title(f"{name}: return {so_far:.1f}")
        scene.fig.canvas.draw()
        return np.asarray(scene.fig.canvas.buffer_rgba())[..., :3].copy()

    return draw
