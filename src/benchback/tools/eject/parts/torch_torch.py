"""A native torch environment."""

from benchback.envs.interface import Env
from benchback.envs.torch import vectorise
from benchback.envs.torch.cartpole import GAME

NAME = "CartPole-v1"


def environment(num_envs: int) -> Env:
    """The environment of this file, `num_envs` times."""
    return vectorise(GAME, f"torch/{NAME}", num_envs)
