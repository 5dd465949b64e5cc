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


def piecewise_linear(knot: Float[Array, "K"], count: Int[Array, ""], duration: int) -> Float[Array, ""]:
    """Linear between knots that lie evenly over `duration`, from its beginning to its end; then the last knot.

    The sum of knot_k max(0, 1 - |x - k|), with x = (K - 1) count / duration: nothing is indexed by the count.
    """
    last = len(knot) - 1
    place = jnp.minimum(count.astype(knot.dtype) / (duration / last), last)
    return (knot * jnp.maximum(1 - jnp.abs(place - jnp.arange(last + 1, dtype=knot.dtype)), 0)).sum()
