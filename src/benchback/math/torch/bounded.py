"""Bounded continuous actions: tanh squashing, exploration noise and uniform sampling."""

import torch
from jaxtyping import Float
from torch import Tensor

from benchback.math.records import ActingNoise, Bounds


def bounds(low: tuple[float, ...], high: tuple[float, ...], dtype: torch.dtype) -> Bounds:
    """Bounds as arrays."""
    return Bounds(torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype))


def squash(head: Float[Tensor, "*B A"], bounds: Bounds) -> Float[Tensor, "*B A"]:
    """c + h tanh(head), where c is the centre of the bounds and h half their range."""
    return 0.5 * (bounds.low + bounds.high) + 0.5 * (bounds.high - bounds.low) * head.tanh()


def add_noise(action: Float[Tensor, "*B A"], noise: Float[Tensor, "*B A"], bounds: Bounds) -> Float[Tensor, "*B A"]:
    """clip(a + h z, low, high): noise z is in units of half the range, h."""
    return (action + 0.5 * (bounds.high - bounds.low) * noise).clip(bounds.low, bounds.high)


def acting_noise(
    generator: torch.Generator, shape: tuple[int, int, int], inserted: int, start_steps: int, dtype: torch.dtype
) -> ActingNoise:
    """Noise of T steps of E environments, with shape (T, E, A); `at_random` in the first `start_steps` of training."""
    normal = torch.randn(shape, dtype=dtype, device=generator.device, generator=generator)
    uniform = torch.rand(shape, dtype=dtype, device=generator.device, generator=generator)
    at_random = inserted + shape[1] * torch.arange(shape[0], device=generator.device) < start_steps
    return ActingNoise(normal, uniform, at_random)


def explore(
    action: Float[Tensor, "E A"], noise: ActingNoise, bounds: Bounds, scale: Float[Tensor, ""]
) -> Float[Tensor, "E A"]:
    """The action with `scale` times normal noise added; uniform within the bounds where `at_random`."""
    anywhere = bounds.low + (bounds.high - bounds.low) * noise.uniform
    return torch.where(noise.at_random, anywhere, add_noise(action, scale * noise.normal, bounds))
