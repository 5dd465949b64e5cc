"""MuJoCo Playground's DeepMind control suite as vectorised device environments, computed by MJX.

Its tasks never end for themselves, unless the simulation diverges; the time limit is the one each of them is configured
with. Playground's wrapper for training returns to one cached first state unless told otherwise, and drops the last
observation. Ours do neither: see `physics`. Locomotion and manipulation want a download when made and are left out, and
so is the implementation in Warp, its default, which crawls without an NVIDIA GPU.
"""

from typing import Any
from warnings import catch_warnings

from benchback.envs.interface import Box, Env
from benchback.envs.lazy_imports import lazy_imports
from benchback.envs.physics import Simulation, without_warnings
from benchback.envs.vectorise import vectorise

# Playground loads torch for a wrapper that nobody asked for; a JAX backend is to be measured without it.
with lazy_imports("mujoco_playground._src.wrapper_torch"), catch_warnings(action="ignore"):
    from mujoco_playground import dm_control_suite


def make(name: str, num_envs: int) -> Env:
    """The task `name`, `num_envs` times."""
    with without_warnings():
        environment = dm_control_suite.load(name, config_overrides={"impl": "jax"})
    low, high = (tuple(bound.tolist()) for bound in environment.mj_model.actuator_ctrlrange.T)
    limit: Any = dm_control_suite.get_default_config(name).episode_length
    return vectorise(Simulation(environment, limit), None, f"playground/{name}", num_envs, Box(low, high))
