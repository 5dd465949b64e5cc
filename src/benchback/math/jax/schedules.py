"""Schedules of hyper-parameters."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def linear_anneal(
    initial: Float[Array, ""], count: Int[Array, ""], *, steps_per_iteration: int, num_iterations: int
) -> Float[Array, ""]:
    """initial (1 - i / n), where i is the iteration of gradient step `count` and n the number of iterations."""
    iteration = count // steps_per_iteration
    return initial * (1 - iteration.astype(initial.dtype) / num_iterations)


def linear_ramp(
    first: Float[Array, ""], last: Float[Array, ""], count: Int[Array, ""], duration: Float[Array, ""]
) -> Float[Array, ""]:
    """first + (last - first) min(1, count / duration): linear, then constant."""
    return first + (last - first) * jnp.minimum(count.astype(duration.dtype) / duration, 1)
