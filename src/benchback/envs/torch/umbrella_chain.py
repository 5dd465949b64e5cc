"""UmbrellaChain-bsuite: the first action earns its reward in the last step, among random ones (Osband et al. 2020)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

LENGTH = 10


class State(NamedTuple):
    """Whether an umbrella will be needed, whether one was taken, and the steps since the start."""

    need: Int[Tensor, "E"]
    has: Int[Tensor, "E"]
    time: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 2"]) -> State:
    """Rain or not, with an umbrella or without; the first action decides about the umbrella."""
    need, has = ((noise[:, k] < 0.5).to(torch.int32) for k in range(2))
    return State(need, has, torch.zeros_like(need))


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 1"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """1 or -1 at random; in the last step 1 if the umbrella is there just when it is needed, -1 if not."""
    has = torch.where(state.time == 0, action.to(torch.int32), state.has)
    time = state.time + 1
    last = time == LENGTH
    good = torch.where(last, has == state.need, noise[:, 0] < 0.5)
    return State(state.need, has, time), torch.where(good, 1.0, -1.0), last


def observe(state: State) -> Float[Tensor, "E 3"]:
    """Need, umbrella and the time that remains."""
    remaining = 1 - state.time / LENGTH
    return torch.stack([state.need.to(remaining.dtype), state.has.to(remaining.dtype), remaining], -1)


GAME = Game(
    observation_shape=(3,),
    actions=Discrete(2),
    start_noise=2,
    step_noise=1,
    time_limit=100,
    start=start,
    advance=advance,
    observe=observe,
)
