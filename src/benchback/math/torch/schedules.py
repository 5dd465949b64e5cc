"""Hyper-parameters that change over a run."""

from jaxtyping import Float, Int
from torch import Tensor


def linear_anneal(
    initial: Float[Tensor, ""], count: Int[Tensor, ""], *, steps_per_iteration: int, num_iterations: int
) -> Float[Tensor, ""]:
    """initial (1 - i / n) where i is the iteration to which gradient step `count` belongs, n their number."""
    iteration = count // steps_per_iteration
    return initial * (1 - iteration.to(initial.dtype) / num_iterations)


def linear_ramp(
    first: Float[Tensor, ""], last: Float[Tensor, ""], count: int, duration: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """first + (last - first) min(1, count / duration): a straight line, then constant."""
    return first + (last - first) * (count / duration).clamp(max=1)
