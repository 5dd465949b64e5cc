"""The diagonal Gaussian distribution, given concatenated means and log standard deviations, `[*B, 2 A]`.

One array instead of two, so that policy parameters are a single array for every distribution; same interface as
`categorical.py`.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def parameters(mean: Float[Array, "*B A"], log_std: Float[Array, "A"]) -> Float[Array, "*B P"]:
    """Policy parameters from means and a state-independent log standard deviation."""
    return jnp.concatenate([mean, jnp.broadcast_to(log_std, mean.shape)], axis=-1)


def log_prob(params: Float[Array, "*B P"], action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """sum over components of -((a - mu) / sigma)^2 / 2 - log sigma - log(2 pi) / 2."""
    mean, log_std = jnp.split(params, 2, axis=-1)
    deviation = (action - mean) * jnp.exp(-log_std)
    return -jnp.sum(0.5 * deviation**2 + log_std + 0.5 * math.log(2 * math.pi), axis=-1)


def entropy(params: Float[Array, "*B P"]) -> Float[Array, "*B"]:
    """sum over components of log sigma + log(2 pi e) / 2."""
    _, log_std = jnp.split(params, 2, axis=-1)
    return jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


def noise(key: Key[Array, ""], shape: tuple[int, ...], dtype: jnp.dtype) -> Float[Array, "..."]:
    """Standard normal noise."""
    return jax.random.normal(key, shape, dtype)


def sample(params: Float[Array, "*B P"], noise: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
    """mu + sigma z, given standard normal noise z."""
    mean, log_std = jnp.split(params, 2, axis=-1)
    return mean + jnp.exp(log_std) * noise


def greedy(params: Float[Array, "*B P"]) -> Float[Array, "*B A"]:
    """The most probable action: the mean."""
    return jnp.split(params, 2, axis=-1)[0]
