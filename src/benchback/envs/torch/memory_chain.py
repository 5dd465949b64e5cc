"""MemoryChain-bsuite: repeat in the last step the bit that was shown in the first (Osband et al. 2020).

With one bit there is one query, number 0, so that the observation's second element, which names it, is always 0.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

LENGTH = 5


class State(NamedTuple):
    """The bit, and the steps since the start."""

    bit: Int[Tensor, "E"]
    time: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 1"]) -> State:
    """A random bit."""
    bit = (noise[:, 0] < 0.5).to(torch.int32)
    return State(bit, torch.zeros_like(bit))


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """1 or -1 for the last action, which is right or wrong; 0 before it."""
    asked = state.time >= LENGTH
    reward = torch.where(action == state.bit, 1.0, -1.0) * asked
    return State(state.bit, state.time + 1), reward, state.time == LENGTH


def observe(state: State) -> Float[Tensor, "E 3"]:
    """Time that remains, query and, at the start, the bit as 1 or -1.

    As in gymnax, a step shows the state before it: the first observation is seen twice.
    """
    time = (state.time - 1).clamp(min=0)
    remaining = 1 - time / LENGTH
    shown = (2 * state.bit - 1) * (time == 0)
    return torch.stack([remaining, torch.zeros_like(remaining), shown.to(remaining.dtype)], -1)


GAME = Game(
    observation_shape=(3,),
    actions=Discrete(2),
    start_noise=1,
    step_noise=0,
    time_limit=1000,
    start=start,
    advance=advance,
    observe=observe,
)
