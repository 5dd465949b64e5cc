"""Terms of policy-gradient losses."""

import torch
from jaxtyping import Float
from torch import Tensor

from benchback.math.records import DRIFT_FEATURES, DRIFT_MARGIN, WEIGHTS_PER_UNIT

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


def drift_surrogate(
    log_ratio: Float[Tensor, "B"], advantage: Float[Tensor, "B"], alpha: Float[Tensor, ""], beta: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """-mean (r A - drift), the drift of discovered policy optimisation (Lu et al. 2022).

    relu(u - a tanh(u / a)) with u = (r - 1) A and a = alpha where A >= 0, u = A log r and a = beta elsewhere.
    """
    positive = advantage >= 0
    change = log_ratio.expm1()
    scale = torch.where(positive, alpha, beta)
    # relu of u in place of the difference, which has the same sign: rounding would decide over it near r = 1.
    u = (torch.where(positive, change, log_ratio) * advantage).relu()
    drift = u - scale * (u / scale).tanh()
    return -((1 + change) * advantage - drift).mean()


def learned_surrogate(
    log_ratio: Float[Tensor, "B"], advantage: Float[Tensor, "B"], weights: Float[Tensor, "W"]
) -> Float[Tensor, ""]:
    """-mean (r A - drift), drift = relu(relu(x K) v - 1e-6), features x of ratio and advantage; K, v from `weights`.

    The features r - 1, (r - 1)^2, log r, (log r)^2 and the same times A vanish at r = 1, and there are no biases: near
    r = 1 the network is below the margin. So for any weights the drift is not negative, and it is zero with zero
    gradient at r = 1. Its mean over actions of the old policy then is a drift functional of mirror learning, whose
    exact updates never lower the return and converge to the optimal one (Kuba et al. 2022, the fundamental theorem).
    """
    change = log_ratio.expm1()
    plain = torch.stack([change, change**2, log_ratio, log_ratio**2], dim=-1)
    features = torch.cat([plain, plain * advantage[:, None]], dim=-1)
    table = weights.reshape(WEIGHTS_PER_UNIT, -1)
    kernel, output = table[:DRIFT_FEATURES], table[DRIFT_FEATURES]
    drift = ((features @ kernel).relu() @ output - DRIFT_MARGIN).relu()
    return -((1 + change) * advantage - drift).mean()


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
    """Fraction of samples whose ratio is outside the clipping range, also where another surrogate is used."""
    outside = log_ratio.expm1().abs() > clip
    return outside.to(log_ratio.dtype).mean()
