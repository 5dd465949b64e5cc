"""Schedules of hyper-parameters."""

import torch
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


def piecewise_linear(knot: Float[Tensor, "K"], count: int, duration: int) -> Float[Tensor, ""]:
    """Linear between knots that lie evenly over `duration`, from its beginning to its end; then the last knot.

    The sum of knot_k max(0, 1 - |x - k|), with x = (K - 1) count / duration: nothing is indexed by the count.
    """
    last = len(knot) - 1
    place = (count / torch.full((), duration / last, dtype=knot.dtype, device=knot.device)).clamp(max=last)
    each = torch.arange(last + 1, dtype=knot.dtype, device=knot.device)
    return (knot * (1 - (place - each).abs()).clamp(min=0)).sum()
