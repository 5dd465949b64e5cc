"""gymnasium environments by their own renderers, without a screen."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchback.agent import Weights
from benchback.errors import InputError
from benchback.runs import Run
from benchback.tools.play import Film, Frame
from benchback.tools.play.steps import chooser

FRAMES_PER_S = 30.0
"""Default where an environment does not specify it."""
SYSTEM_PACKAGES = {"egl": "libegl1 libegl-mesa0 libgl1-mesa-dri", "osmesa": "libosmesa6"}
"""MUJOCO_GL -> Debian packages that it needs."""
GRAPHICS = ("gl", "mesa", "display", "context")
"""Words in MuJoCo's and PyOpenGL's errors when the system's libraries are missing."""


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The policy in the gymnasium environment of that name."""
    without_screen()
    scene = opened(run.env.partition("/")[2])
    frames_per_s = float(scene.metadata.get("render_fps") or FRAMES_PER_S)
    return Film(_frames(scene, run, weights, seed), frames_per_s)


def without_screen() -> None:
    """Make pygame and MuJoCo render off-screen, before either is imported."""
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(name, "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("MUJOCO_GL", "egl")


def opened(name: str) -> Any:
    """The environment, ready to be drawn; an InputError names what is missing."""
    import gymnasium

    try:
        with drawing():
            return gymnasium.make(name, render_mode="rgb_array")
    except gymnasium.error.Error as error:
        raise InputError(f"env=gymnasium/{name}: {str(error).splitlines()[0]}") from None


def _frames(scene: Any, run: Run, weights: Weights, seed: int) -> Iterator[Frame]:
    choose, observe = chooser(run, weights, seed), _observing(scene.observation_space, run.env)
    obs, _ = scene.reset(seed=seed)
    total, first = 0.0, True
    with contextlib.closing(scene):
        while True:
            with drawing():
                image = np.asarray(scene.render())
            action = fitting(scene.action_space, choose(observe(obs), first))
            obs, reward, terminated, truncated, _ = scene.step(action)
            total += float(reward)
            first = bool(terminated or truncated)
            yield Frame(image, total, first)
            if first:
                obs, _ = scene.reset()
                total = 0.0


def _observing(space: Any, id: str) -> Callable[[Any], np.ndarray]:
    """A function from the scene's observation to the one the agent was trained on."""
    from benchback.envs.gymnasium import encoding, layout

    encode, (_, dtype) = encoding(space), layout(space, id)
    return lambda obs: encode(obs).astype(dtype)


def fitting(space: Any, action: np.ndarray) -> Any:
    """The action as an element of the space: an int, or an array of its shape within its bounds."""
    if not hasattr(space, "low"):
        return int(action) + int(getattr(space, "start", 0))
    return np.clip(action.reshape(space.shape), space.low, space.high).astype(space.dtype)


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
