"""The diagonal Gaussian distribution, given concatenated means and log standard deviations, `[*B, 2 A]`.

One tensor instead of two, so that policy parameters are a single tensor for every distribution; same interface as
`categorical.py`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def parameters(mean: Float[Tensor, "*B A"], log_std: Float[Tensor, "A"]) -> Float[Tensor, "*B P"]:
    """Policy parameters from means and a state-independent log standard deviation."""
    return torch.cat([mean, log_std.expand_as(mean)], -1)


def log_prob(params: Float[Tensor, "*B P"], action: Float[Tensor, "*B A"]) -> Float[Tensor, "*B"]:
    """sum over components of -((a - mu) / sigma)^2 / 2 - log sigma - log(2 pi) / 2."""
    mean, log_std = params.chunk(2, -1)
    deviation = (action - mean) * (-log_std).exp()
    return -(0.5 * deviation**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def entropy(params: Float[Tensor, "*B P"]) -> Float[Tensor, "*B"]:
    """sum over components of log sigma + log(2 pi e) / 2."""
    _, log_std = params.chunk(2, -1)
    return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


def noise(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Standard normal noise."""
    return torch.randn(shape, dtype=dtype, device=generator.device, generator=generator)


def sample(params: Float[Tensor, "*B P"], noise: Float[Tensor, "*B A"]) -> Float[Tensor, "*B A"]:
    """mu + sigma z, given standard normal noise z."""
    mean, log_std = params.chunk(2, -1)
    return mean + log_std.exp() * noise


def greedy(params: Float[Tensor, "*B P"]) -> Float[Tensor, "*B A"]:
    """The most probable action: the mean."""
    return params.chunk(2, -1)[0]
