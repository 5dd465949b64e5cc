"""Terms of policy-gradient losses."""

import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-8


def standardise(x: Float[Array, "B"]) -> Float[Array, "B"]:
    """(x - mean) / (std + 1e-8), with the population standard deviation (ddof 0)."""
    return (x - jnp.mean(x)) / (jnp.std(x) + EPSILON)


def clipped_surrogate(
    log_ratio: Float[Array, "B"], advantage: Float[Array, "B"], clip: Float[Array, ""]
) -> Float[Array, ""]:
    """-mean min(r A, clip(r, 1 - c, 1 + c) A) with r = exp(log_ratio); equation 7 of Schulman et al. 2017."""
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def clipped_value_loss(
    value: Float[Array, "B"], old_value: Float[Array, "B"], target: Float[Array, "B"], clip: Float[Array, ""]
) -> Float[Array, ""]:
    """mean max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) / 2."""
    clipped = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.mean(jnp.maximum((value - target) ** 2, (clipped - target) ** 2))


def approximate_kl(log_ratio: Float[Array, "B"]) -> Float[Array, ""]:
    """mean (r - 1) - log r: unbiased, low variance, never negative (Schulman's k3 estimator)."""
    return jnp.mean(jnp.expm1(log_ratio) - log_ratio)


def clip_fraction(log_ratio: Float[Array, "B"], clip: Float[Array, ""]) -> Float[Array, ""]:
    """Fraction of samples whose ratio is outside the clipping range."""
    outside = jnp.abs(jnp.expm1(log_ratio)) > clip
    return jnp.mean(outside.astype(log_ratio.dtype))
