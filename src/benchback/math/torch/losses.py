"""Terms of policy-gradient losses."""

import torch
from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-8


def standardise(x: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """(x - mean) / (std + 1e-8), with the population standard deviation (ddof 0)."""
    return (x - x.mean()) / (x.std(correction=0) + EPSILON)


def clipped_surrogate(
    log_ratio: Float[Tensor, "B"], advantage: Float[Tensor, "B"], clip: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """-mean min(r A, clip(r, 1 - c, 1 + c) A) with r = exp(log_ratio); equation 7 of Schulman et al. 2017."""
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


def clipped_value_loss(
    value: Float[Tensor, "B"],
    old_value: Float[Tensor, "B"],
    target: Float[Tensor, "B"],
    clip: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """mean max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) / 2."""
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    return 0.5 * torch.maximum((value - target) ** 2, (clipped - target) ** 2).mean()


def approximate_kl(log_ratio: Float[Tensor, "B"]) -> Float[Tensor, ""]:
    """mean (r - 1) - log r: unbiased, low variance, never negative (Schulman's k3 estimator)."""
    return (log_ratio.expm1() - log_ratio).mean()


def clip_fraction(log_ratio: Float[Tensor, "B"], clip: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Fraction of samples whose ratio is outside the clipping range."""
    outside = log_ratio.expm1().abs() > clip
    return outside.to(log_ratio.dtype).mean()
