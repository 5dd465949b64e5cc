"""DiscountingChain-bsuite: the first action chooses how late a reward comes (Osband et al. 2020)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

TIME_LIMIT = 100
REWARD_TIMES = (1, 3, 10, 30, 100)
BEST, BEST_REWARD = 0, 1.1
"""The choice that earns more than 1, and what it earns."""


class State(NamedTuple):
    """The choice, -1 before the first action, and the steps since the start."""

    choice: Int[Tensor, "E"]
    time: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 0"]) -> State:
    """Nothing chosen."""
    time = torch.zeros(len(noise), dtype=torch.int32, device=noise.device)
    return State(time - 1, time)


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """Only the first action matters. Nothing but the time limit ends an episode."""
    choice = torch.where(state.time == 0, action.to(torch.int32), state.choice)
    time = state.time + 1
    due = torch.stack([(choice == k) & (time == t) for k, t in enumerate(REWARD_TIMES)]).any(0)
    reward = torch.where(choice == BEST, BEST_REWARD, 1.0) * due
    return State(choice, time), reward, torch.zeros_like(due)


def observe(state: State) -> Float[Tensor, "E 2"]:
    """The choice and the share of the episode that is over."""
    return torch.stack([state.choice.to(torch.float32), state.time / TIME_LIMIT], -1)


GAME = Game(
    observation_shape=(2,),
    actions=Discrete(len(REWARD_TIMES)),
    start_noise=0,
    step_noise=0,
    time_limit=TIME_LIMIT,
    start=start,
    advance=advance,
    observe=observe,
)
