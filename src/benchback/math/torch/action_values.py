"""Q-values of discrete actions: indexing and epsilon-greedy action selection."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchback.math.torch.categorical import greedy


def q_of_action(value: Float[Tensor, "*B A"], action: Int[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """value[action]."""
    return value.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def epsilon_noise(
    generator: torch.Generator, epsilon: Float[Tensor, ""], shape: tuple[int, ...], num_actions: int
) -> Int[Tensor, "..."]:
    """A uniformly random action with probability `epsilon`, else -1."""
    device = generator.device
    explores = torch.rand(shape, generator=generator, dtype=epsilon.dtype, device=device) < epsilon
    return torch.randint(num_actions, shape, generator=generator, device=device).masked_fill_(~explores, -1)


def epsilon_greedy(value: Float[Tensor, "*B A"], exploration: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
    """The exploratory action where it is not -1, else the greedy action."""
    return torch.where(exploration < 0, greedy(value), exploration)
