"""gymnax environments as vectorised device environments: they are part of the compiled program."""

from typing import Any

import numpy as np

from benchback.envs.interface import Box, Discrete, Env
from benchback.envs.lazy_imports import lazy_imports
from benchback.envs.vectorise import vectorise

with lazy_imports("seaborn", "matplotlib.pyplot"):  # gymnax imports them for rendering only, which takes two seconds
    import gymnax
    from gymnax.environments import spaces


def make(name: str, num_envs: int) -> Env:
    """The gymnax environment `name`, `num_envs` times."""
    environment, params = gymnax.make(name)
    space = environment.action_space(params)
    return vectorise(environment, params, f"gymnax/{name}", num_envs, _actions(space))


def _actions(space: Any) -> Discrete | Box:
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    low, high = (np.broadcast_to(bound, space.shape).ravel().tolist() for bound in (space.low, space.high))
    return Box(tuple(low), tuple(high))
