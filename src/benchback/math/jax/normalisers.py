"""Running moments and normalisation by them.

Moments are per feature: all other axes, time and environments, are rows.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from benchback.math.records import Moments

EPSILON = 1e-8
LIMIT = 10.0
"""Clipping range of normalised numbers, in standard deviations."""


def no_moments(shape: tuple[int, ...], dtype: jnp.dtype) -> Moments:
    """Initial moments of features of that shape."""
    return Moments(jnp.zeros((), dtype), jnp.zeros(shape, dtype), jnp.ones(shape, dtype))


def update_moments(moments: Moments, x: Shaped[Array, "..."]) -> Moments:
    """Moments updated with the rows of `x`, `[..., *F]`; equal to those of all rows taken together.

    With s the fraction of new rows: mean + s delta, (1 - s) variance + s variance' + s (1 - s) delta^2 (Chan,
    Golub & LeVeque 1983).
    """
    rows = x.reshape(-1, *moments.mean.shape).astype(moments.mean.dtype)
    mean = jnp.mean(rows, 0)
    variance = jnp.mean((rows - mean) ** 2, 0)
    count = moments.count + len(rows)
    share = len(rows) / count
    delta = mean - moments.mean
    return Moments(
        count=count,
        mean=moments.mean + share * delta,
        variance=(1 - share) * moments.variance + share * variance + share * (1 - share) * delta**2,
    )


def normalise(x: Shaped[Array, "*S"], moments: Moments) -> Float[Array, "*S"]:
    """(x - mean) / sqrt(variance + 1e-8), clipped to +-10."""
    return jnp.clip((x.astype(moments.mean.dtype) - moments.mean) / jnp.sqrt(moments.variance + EPSILON), -LIMIT, LIMIT)


def rescale(x: Shaped[Array, "*S"], moments: Moments) -> Float[Array, "*S"]:
    """x / sqrt(variance + 1e-8), clipped to +-10; not centred."""
    return jnp.clip(x / jnp.sqrt(moments.variance + EPSILON), -LIMIT, LIMIT)
