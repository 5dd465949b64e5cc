"""Terms of policy-gradient losses."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from benchback.math.records import DRIFT_FEATURES, DRIFT_MARGIN, WEIGHTS_PER_UNIT

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


def drift_surrogate(
    log_ratio: Float[Array, "B"], advantage: Float[Array, "B"], alpha: Float[Array, ""], beta: Float[Array, ""]
) -> Float[Array, ""]:
    """-mean (r A - drift), the drift of discovered policy optimisation (Lu et al. 2022).

    relu(u - a tanh(u / a)) with u = (r - 1) A and a = alpha where A >= 0, u = A log r and a = beta elsewhere.
    """
    positive = advantage >= 0
    change = jnp.expm1(log_ratio)
    scale = jnp.where(positive, alpha, beta)
    # relu of u in place of the difference, which has the same sign: rounding would decide over it near r = 1, and XLA
    # may compute it twice, with another outcome.
    u = jax.nn.relu(jnp.where(positive, change, log_ratio) * advantage)
    drift = u - scale * jnp.tanh(u / scale)
    return -jnp.mean((1 + change) * advantage - drift)


def learned_surrogate(
    log_ratio: Float[Array, "B"], advantage: Float[Array, "B"], weights: Float[Array, "W"]
) -> Float[Array, ""]:
    """-mean (r A - drift), drift = relu(relu(x K) v - 1e-6), features x of ratio and advantage; K, v from `weights`.

    The features r - 1, (r - 1)^2, log r, (log r)^2 and the same times A vanish at r = 1, and there are no biases: near
    r = 1 the network is below the margin. So for any weights the drift is not negative, and it is zero with zero
    gradient at r = 1. Its mean over actions of the old policy then is a drift functional of mirror learning, whose
    exact updates never lower the return and converge to the optimal one (Kuba et al. 2022, the fundamental theorem).
    """
    change = jnp.expm1(log_ratio)
    plain = jnp.stack([change, change**2, log_ratio, log_ratio**2], axis=-1)
    features = jnp.concatenate([plain, plain * advantage[:, None]], axis=-1)
    table = weights.reshape(WEIGHTS_PER_UNIT, -1)
    kernel, output = table[:DRIFT_FEATURES], table[DRIFT_FEATURES]
    drift = jax.nn.relu(jax.nn.relu(features @ kernel) @ output - DRIFT_MARGIN)
    return -jnp.mean((1 + change) * advantage - drift)


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
    """Fraction of samples whose ratio is outside the clipping range, also where another surrogate is used."""
    outside = jnp.abs(jnp.expm1(log_ratio)) > clip
    return jnp.mean(outside.astype(log_ratio.dtype))
