"""Bounded continuous actions: tanh squashing, exploration noise and uniform sampling."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from benchback.math.records import ActingNoise, Bounds


def bounds(low: tuple[float, ...], high: tuple[float, ...], dtype: jnp.dtype) -> Bounds:
    """Bounds as arrays."""
    return Bounds(jnp.asarray(low, dtype), jnp.asarray(high, dtype))


def squash(head: Float[Array, "*B A"], bounds: Bounds) -> Float[Array, "*B A"]:
    """c + h tanh(head), where c is the centre of the bounds and h half their range."""
    return 0.5 * (bounds.low + bounds.high) + 0.5 * (bounds.high - bounds.low) * jnp.tanh(head)


def add_noise(action: Float[Array, "*B A"], noise: Float[Array, "*B A"], bounds: Bounds) -> Float[Array, "*B A"]:
    """clip(a + h z, low, high): noise z is in units of half the range, h."""
    return jnp.clip(action + 0.5 * (bounds.high - bounds.low) * noise, bounds.low, bounds.high)


def acting_noise(
    key: Key[Array, ""], shape: tuple[int, int, int], inserted: Int[Array, ""], start_steps: int, dtype: jnp.dtype
) -> ActingNoise:
    """Noise of T steps of E environments, with shape (T, E, A); `at_random` in the first `start_steps` of training."""
    normal_key, uniform_key = jax.random.split(key)
    at_random = inserted + shape[1] * jnp.arange(shape[0]) < start_steps
    return ActingNoise(
        jax.random.normal(normal_key, shape, dtype), jax.random.uniform(uniform_key, shape, dtype), at_random
    )


def explore(
    action: Float[Array, "E A"], noise: ActingNoise, bounds: Bounds, scale: Float[Array, ""]
) -> Float[Array, "E A"]:
    """The action with `scale` times normal noise added; uniform within the bounds where `at_random`."""
    anywhere = bounds.low + (bounds.high - bounds.low) * noise.uniform
    return jnp.where(noise.at_random, anywhere, add_noise(action, scale * noise.normal, bounds))
