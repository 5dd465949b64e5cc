"""Minibatches by permutation; torch.randperm is linear-time, so it is used directly."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


def permutation(generator: torch.Generator, size: int) -> Int[Tensor, "{size}"]:
    """A random permutation of 0 .. size-1."""
    return torch.randperm(size, generator=generator, device=generator.device)


def minibatch_indices(
    generator: torch.Generator, *, batch_size: int, num_epochs: int, num_minibatches: int
) -> Int[Tensor, "updates minibatch"]:
    """Row indices of each gradient step: every row once per epoch, in a new random order."""
    order = torch.stack([permutation(generator, batch_size) for _ in range(num_epochs)])
    return order.reshape(num_epochs * num_minibatches, batch_size // num_minibatches)


def take(data: Any, index: Int[Tensor, "B"]) -> Any:
    """The given rows of every tensor in `data`, a NamedTuple."""
    return type(data)(*(x.index_select(0, index) for x in data))
