"""A gymnax environment in the JAX program."""

from benchback.envs import gymnax
from benchback.envs.interface import Env

NAME = "CartPole-v1"


def environment(num_envs: int) -> Env:
    """The environment of this file, `num_envs` times."""
    return gymnax.make(NAME, num_envs)
