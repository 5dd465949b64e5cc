"""MuJoCo Playground's DeepMind control suite as vectorised device environments, computed by MJX.

Its tasks terminate only if the simulation diverges; the time limit is that of each task's config. Playground's training
wrapper resets to one cached first state by default and drops the last observation. Ours do neither: see `physics`.
Locomotion and manipulation tasks, which need a download, are left out, and so is the default implementation in Warp,
which is very slow without an NVIDIA GPU.
"""

from typing import Any
from warnings import catch_warnings

from benchback.envs.interface import Box, Env
from benchback.envs.lazy_imports import lazy_imports
from benchback.envs.physics import Simulation, without_warnings
from benchback.envs.vectorise import vectorise

# Playground imports torch for an unused wrapper; JAX backends are measured without it.
with lazy_imports("mujoco_playground._src.wrapper_torch"), catch_warnings(action="ignore"):
    from mujoco_playground import dm_control_suite


def make(name: str, num_envs: int) -> Env:
    """The task `name`, `num_envs` times."""
    with without_warnings():
        environment = dm_control_suite.load(name, config_overrides={"impl": "jax"})
    low, high = (tuple(bound.tolist()) for bound in environment.mj_model.actuator_ctrlrange.T)
    limit: Any = dm_control_suite.get_default_config(name).episode_length
    return vectorise(Simulation(environment, limit), None, f"playground/{name}", num_envs, Box(low, high))
