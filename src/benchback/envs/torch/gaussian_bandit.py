"""GaussianBandit-misc: one arm pays nothing, the other a mean drawn for each episode (Lange & Sprekeler 2022)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

TIME_LIMIT = 100
MEAN, DEVIATION_OF_MEAN, DEVIATION = -1.0, 1.0, 0.1


class State(NamedTuple):
    """The mean of the second arm, the last arm and what it paid, and the steps since the start."""

    mean: Float[Tensor, "E"]
    arm: Int[Tensor, "E"]
    reward: Float[Tensor, "E"]
    time: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 1"]) -> State:
    """The mean is not shown."""
    mean = MEAN + DEVIATION_OF_MEAN * normal(noise[:, 0])
    time = torch.zeros_like(mean, dtype=torch.int32)
    return State(mean, time, torch.zeros_like(mean), time)


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 1"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """0 from the first arm. Nothing but the time limit ends an episode."""
    reward = torch.where(action == 0, 0.0, state.mean + DEVIATION * normal(noise[:, 0]))
    ended = torch.zeros_like(action, dtype=torch.bool)
    return State(state.mean, action.to(torch.int32), reward, state.time + 1), reward, ended


def observe(state: State) -> Float[Tensor, "E 4"]:
    """Last reward, last arm as one of two, and time from -1 to 1."""
    arm = state.arm.to(state.reward.dtype)
    return torch.stack([state.reward, 1 - arm, arm, 2 * state.time / TIME_LIMIT - 1], -1)


def normal(noise: Float[Tensor, "E"]) -> Float[Tensor, "E"]:
    """The standard normal number at each quantile, as JAX computes it; that of 0 is finite."""
    return 2**0.5 * (2 * noise - (1 - 2**-24)).erfinv()


GAME = Game(
    observation_shape=(4,),
    actions=Discrete(2),
    start_noise=1,
    step_noise=1,
    time_limit=TIME_LIMIT,
    start=start,
    advance=advance,
    observe=observe,
)
