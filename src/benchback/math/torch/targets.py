"""What critics that learn from replay aim at."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@torch.no_grad()
def polyak(target: Sequence[Tensor], online: Sequence[Tensor], decay: Float[Tensor, ""]) -> None:
    """rho t + (1 - rho) p, in place: the slow copy moves a little towards what learns."""
    torch._foreach_mul_(target, decay)
    torch._foreach_add_(target, torch._foreach_mul(online, 1 - decay))


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
