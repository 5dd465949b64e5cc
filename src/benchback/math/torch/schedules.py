"""Schedules of hyper-parameters."""

from jaxtyping import Float, Int
from torch import Tensor


def linear_anneal(
    initial: Float[Tensor, ""], count: Int[Tensor, ""], *, steps_per_iteration: int, num_iterations: int
) -> Float[Tensor, ""]:
    """initial (1 - i / n), where i is the iteration of gradient step `count` and n the number of iterations."""
    iteration = count // steps_per_iteration
    return initial * (1 - iteration.to(initial.dtype) / num_iterations)


def linear_ramp(
    first: Float[Tensor, ""], last: Float[Tensor, ""], count: int, duration: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """first + (last - first) min(1, count / duration): linear, then constant."""
    return first + (last - first) * (count / duration).clamp(max=1)
