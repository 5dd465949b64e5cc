"""Running statistics of what was seen, and what brings numbers to a common scale by them.

Statistics are kept per feature: every other axis, time and environments alike, only adds rows.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from benchback.math.records import Moments

EPSILON = 1e-8
LIMIT = 10.0
"""Standard deviations beyond which a number is clipped."""


def no_moments(shape: tuple[int, ...], dtype: torch.dtype) -> Moments:
    """The statistics of features of that shape before anything was seen."""
    return Moments(torch.zeros((), dtype=dtype), torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype))


def update_moments(moments: Moments, x: Shaped[Tensor, "..."]) -> Moments:
    """The statistics after the rows of `x`, `[..., *F]`, as if all rows had been seen at once.

    With s the share of the new rows: mean + s delta, (1 - s) variance + s variance' + s (1 - s) delta^2 (Chan,
    Golub & LeVeque 1983).
    """
    rows = x.reshape(-1, *moments.mean.shape).to(moments.mean.dtype)
    mean = rows.mean(0)
    variance = ((rows - mean) ** 2).mean(0)
    count = moments.count + len(rows)
    share = len(rows) / count
    delta = mean - moments.mean
    return Moments(
        count=count,
        mean=moments.mean + share * delta,
        variance=(1 - share) * moments.variance + share * variance + share * (1 - share) * delta**2,
    )


def normalise(x: Shaped[Tensor, "*S"], moments: Moments) -> Float[Tensor, "*S"]:
    """(x - mean) / sqrt(variance + 1e-8), clipped to +-10."""
    return ((x.to(moments.mean.dtype) - moments.mean) / (moments.variance + EPSILON).sqrt()).clamp(-LIMIT, LIMIT)


def rescale(x: Shaped[Tensor, "*S"], moments: Moments) -> Float[Tensor, "*S"]:
    """x / sqrt(variance + 1e-8), clipped to +-10: zero stays zero."""
    return (x / (moments.variance + EPSILON).sqrt()).clamp(-LIMIT, LIMIT)
