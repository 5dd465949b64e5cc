"""A gymnax environment, compiled by JAX and served to torch."""

from benchback.envs import gymnax
from benchback.envs.interface import Env
from benchback.tools.eject.parts.bridging import to_torch

NAME = "CartPole-v1"


def environment(num_envs: int) -> Env:
    """The environment of this file, `num_envs` times."""
    return to_torch(gymnax.make(NAME, num_envs))
