"""brax environments, drawn by MuJoCo's renderer; brax's own page of HTML would load its viewer from the network."""

import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from benchback.agent import Weights
from benchback.envs.ids import split
from benchback.tools.play import Film, Frame
from benchback.tools.play.gymnasium import drawing, without_screen
from benchback.tools.play.steps import Played, played, player
from benchback.training.run import Run

HEIGHT, WIDTH = 480, 640
CAMERA = "track"


def film(run: Run, weights: Weights, seed: int) -> Film:
    """The policy in the brax environment of that name."""
    without_screen()
    with warnings.catch_warnings(action="ignore"):  # brax says at every step that it is no longer maintained
        from brax import envs

        environment: Any = envs.get_environment(split(run.env).name)
    return Film(_frames(environment, run, weights, seed), 1 / float(environment.dt))


def _frames(environment: Any, run: Run, weights: Weights, seed: int) -> Iterator[Frame]:
    mujoco: Any = import_module("mujoco")  # compiled, so its names are unknown to the type checker
    model = environment.sys.mj_model
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.5, 0.6  # some of brax's scenes have no light
    cameras = [model.camera(i).name for i in range(model.ncam)]
    with drawing():
        renderer = mujoco.Renderer(model, height=HEIGHT, width=WIDTH)
    for step in played(player(run, weights, seed), seed):
        scene = mujoco.MjData(model)
        pose = posed(step)
        scene.qpos, scene.qvel = pose.q, pose.qd
        mujoco.mj_forward(model, scene)
        renderer.update_scene(scene, camera=CAMERA if CAMERA in cameras else -1)
        yield Frame(np.asarray(renderer.render()), step.episode_return, step.ended)


def posed(step: Played) -> Any:
    """Positions and velocities of all joints."""
    return step.seen.state.pipeline_state
