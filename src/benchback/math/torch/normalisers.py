"""Running moments and normalisation by them.

Moments are per feature: all other axes, time and environments, are rows.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from benchback.math.records import Moments

EPSILON = 1e-8
LIMIT = 10.0
"""Clipping range of normalised numbers, in standard deviations."""


def no_moments(shape: tuple[int, ...], dtype: torch.dtype) -> Moments:
    """Initial moments of features of that shape."""
    return Moments(torch.zeros((), dtype=dtype), torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype))


def update_moments(moments: Moments, x: Shaped[Tensor, "..."]) -> Moments:
    """Moments updated with the rows of `x`, `[..., *F]`; equal to those of all rows taken together.

    With s the fraction of new rows: mean + s delta, (1 - s) variance + s variance' + s (1 - s) delta^2 (Chan,
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
    """x / sqrt(variance + 1e-8), clipped to +-10; not centred."""
    return (x / (moments.variance + EPSILON).sqrt()).clamp(-LIMIT, LIMIT)
