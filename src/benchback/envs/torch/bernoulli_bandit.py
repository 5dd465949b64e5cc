"""BernoulliBandit-misc: of two arms one pays often and one seldom, drawn for each episode (Wang et al. 2017)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

TIME_LIMIT = 100
SELDOM = 0.1


class State(NamedTuple):
    """How often each arm pays, the last arm and what it paid, and the steps since the start."""

    probability: Float[Tensor, "E 2"]
    arm: Int[Tensor, "E"]
    reward: Float[Tensor, "E"]
    time: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 1"]) -> State:
    """Which arm is the better one is not shown."""
    first = torch.where(noise[:, 0] < 0.5, SELDOM, 1 - SELDOM)
    time = torch.zeros_like(first, dtype=torch.int32)
    return State(torch.stack([first, 1 - first], -1), time, torch.zeros_like(first), time)


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 1"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """1 or 0 from the chosen arm. Nothing but the time limit ends an episode."""
    probability = torch.where(action == 0, state.probability[:, 0], state.probability[:, 1])
    paid = noise[:, 0] < probability
    reward = paid.to(probability.dtype)
    return State(state.probability, action.to(torch.int32), reward, state.time + 1), reward, torch.zeros_like(paid)


def observe(state: State) -> Float[Tensor, "E 4"]:
    """Last reward, last arm as one of two, and time from -1 to 1."""
    arm = state.arm.to(state.reward.dtype)
    return torch.stack([state.reward, 1 - arm, arm, 2 * state.time / TIME_LIMIT - 1], -1)


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
