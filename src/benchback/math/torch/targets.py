"""TD targets and target networks."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def stop_gradient(x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """`x` without gradient."""
    return x.detach()


@torch.no_grad()
def polyak(target: Any, online: Any, tau: Float[Tensor, ""]) -> Any:
    """(1 - tau) target + tau online, weight by weight, in place; an exact copy of `online` if tau is 1."""
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, tau)
    return target


def smoothing_noise(
    noise: Float[Tensor, "B A"], scale: Float[Tensor, ""], limit: Float[Tensor, ""]
) -> Float[Tensor, "B A"]:
    """clip(sigma z, -c, c), given standard normal noise z (Fujimoto et al. 2018, equation 14)."""
    return (scale * noise).clip(-limit, limit)


def twin_target(
    reward: Float[Tensor, "B"],
    terminated: Bool[Tensor, "B"],
    next_value1: Float[Tensor, "B"],
    next_value2: Float[Tensor, "B"],
    gamma: Float[Tensor, ""],
) -> Float[Tensor, "B"]:
    """r + gamma (1 - terminated) min(Q1', Q2') (Fujimoto et al. 2018, equation 10)."""
    return reward + gamma * torch.minimum(next_value1, next_value2).masked_fill(terminated, 0)
