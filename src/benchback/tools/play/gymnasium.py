"""gymnasium environments by their own renderers, without a screen."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchback.agent import Weights
from benchback.envs.ids import split
from benchback.envs.interface import EnvState
from benchback.errors import InputError
from benchback.tools.play import Film, Frame
from benchback.tools.play.steps import Player, played, player
from benchback.training.run import Run

FRAMES_PER_S = 30.0
"""Default where an environment does not specify it."""
SYSTEM_PACKAGES = {"egl": "libegl1 libegl-mesa0 libgl1-mesa-dri", "osmesa": "libosmesa6"}
"""MUJOCO_GL -> Debian packages that it needs."""
GRAPHICS = ("gl", "mesa", "display", "context")
"""Words in MuJoCo's and PyOpenGL's errors when the system's libraries are missing."""


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The policy in the gymnasium environment of that name."""
    without_screen()
    there = replace(run, env=f"gymnasium/{split(run.env).task}")
    with drawing():
        return shown(player(there, weights, seed, "rgb_array"), seed, there.env)


def without_screen() -> None:
    """Make pygame and MuJoCo render off-screen, before either is imported."""
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(name, "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("MUJOCO_GL", "egl")


def shown(playing: Player, seed: int, id: str) -> Film:
    """The policy in an environment in Python, drawn by its own `render`."""
    external = playing.env.external
    render = external.copies.render
    if render is None:
        raise InputError(
            f"env={id} has nothing that draws it; with gymnasium's render_mode rgb_array it would be drawn"
        )
    metadata = getattr(getattr(render, "__self__", None), "metadata", {})
    return Film(_frames(playing, seed, render), float(metadata.get("render_fps") or FRAMES_PER_S))


def _frames(playing: Player, seed: int, render: Callable[[], Any]) -> Iterator[Frame]:
    def look(state: EnvState) -> np.ndarray:
        with drawing():
            return np.asarray(render())

    for step in played(playing, seed, look):
        yield Frame(step.seen, step.episode_return, step.ended)


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Context in which missing rendering libraries raise an InputError that names their packages."""
    from gymnasium.error import DependencyNotInstalled

    try:
        yield
    except DependencyNotInstalled as error:
        raise InputError(f"{str(error).splitlines()[0]}; 'benchback[play]' has what classic control needs") from None
    except (ImportError, AttributeError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) or not any(word in str(error).lower() for word in GRAPHICS):
            raise
        reason, way = " ".join(str(error).split())[:100], os.environ.get("MUJOCO_GL", "")
        remedy = f"apt-get install {SYSTEM_PACKAGES[way]}" if way in SYSTEM_PACKAGES else "set MUJOCO_GL=egl"
        raise InputError(f"MUJOCO_GL={way} cannot draw here ({reason}): {remedy}") from None
