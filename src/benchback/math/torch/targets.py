"""What learning aims at: no gradient passes through it, and slow copies of networks estimate it."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def constant(x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """`x`, through which no gradient passes."""
    return x.detach()


@torch.no_grad()
def polyak(target: Any, online: Any, tau: Float[Tensor, ""]) -> Any:
    """(1 - tau) target + tau online, weight by weight, in place; a copy of `online` to the last bit where tau is 1."""
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, tau)
    return target
