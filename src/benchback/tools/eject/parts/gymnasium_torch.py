"""A gymnasium environment, stepped between two calls of a torch policy."""

from benchback.envs import gymnasium
from benchback.envs.external import ExternalEnv
from benchback.envs.external.torch import serve
from benchback.envs.interface import Env

NAME = "CartPole-v1"


def environment(num_envs: int) -> Env:
    """The environment of this file, `num_envs` times."""
    return serve(ExternalEnv(f"gymnasium/{NAME}", num_envs, gymnasium.make(NAME, num_envs)))
