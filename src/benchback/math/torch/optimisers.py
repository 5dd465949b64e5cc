"""Adam with global-norm clipping and hyper-parameters that are data."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchback.math.torch.schedules import linear_anneal


class AdamState(NamedTuple):
    """Number of gradient steps and the concatenated moments of all parameters; updated in place."""

    count: Int[Tensor, ""]
    mean: Float[Tensor, "N"]
    variance: Float[Tensor, "N"]


class Adam(NamedTuple):
    """An optimiser as two functions, after optax."""

    init: Callable[[Sequence[Tensor]], AdamState]
    """Parameters -> zero moments."""
    update: Callable[..., Float[Tensor, ""]]
    """(gradient, state, parameters, hyper=hyper) -> norm of the gradient; changes state and parameters."""


def adam(
    *,
    anneal: bool = False,
    steps_per_iteration: int = 1,
    num_iterations: int = 1,
    clip: bool = True,
    rate: str = "learning_rate",
) -> Adam:
    """Clipped Adam (Kingma & Ba 2015) that works in place; `update(..., hyper=hyper)`.

    Its float hyper-parameters are tensor arguments of each update (torch.optim.Adam allows only the learning rate),
    so that changing one neither recompiles nor synchronises with the device. Gradients g become min(1, c / |g|) g
    before they enter the moments, if `clip`; the learning rate is the hyper-parameter named `rate`. The moments
    are one vector: a small network has a dozen parameters, and in eager torch one operation on all of them takes a
    fifth of the time of a dozen operations.
    """

    def init(params: Sequence[Tensor]) -> AdamState:
        zero = torch.cat([torch.zeros_like(p).flatten() for p in params])
        return AdamState(torch.zeros((), dtype=torch.int32, device=zero.device), zero, zero.clone())

    @torch.no_grad()
    def update(
        gradient: Sequence[Tensor], state: AdamState, params: Sequence[Tensor], *, hyper: Any
    ) -> Float[Tensor, ""]:
        learning_rate = getattr(hyper, rate)
        if anneal:
            learning_rate = linear_anneal(
                learning_rate,
                state.count,
                steps_per_iteration=steps_per_iteration,
                num_iterations=num_iterations,
            )
        flat = torch.cat([g.flatten() for g in gradient])
        flat, norm = clip_by_global_norm(flat, hyper.max_grad_norm) if clip else (flat, torch.linalg.vector_norm(flat))
        step = _direction(flat, state, hyper).mul_(learning_rate)
        for param, change in zip(params, step.split([p.numel() for p in params]), strict=True):
            param.sub_(change.view_as(param))
        return norm

    return Adam(init, update)


def clip_by_global_norm(
    gradient: Float[Tensor, "N"], limit: Float[Tensor, ""]
) -> tuple[Float[Tensor, "N"], Float[Tensor, ""]]:
    """The gradient, scaled to norm `limit` if its norm is larger, and its norm before clipping.

    torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6, optax by the norm. Parity needs them equal.
    """
    norm = torch.linalg.vector_norm(gradient)
    return torch.where(norm < limit, gradient, gradient / norm * limit), norm


def _direction(gradient: Float[Tensor, "N"], state: AdamState, hyper: Any) -> Float[Tensor, "N"]:
    """m / (1 - beta1^k) / (sqrt(v / (1 - beta2^k)) + epsilon) after k gradient steps, including this one."""
    count, mean, variance = state
    count.add_(1)
    mean.lerp_(gradient, 1 - hyper.adam_beta1)
    variance.lerp_(gradient.square(), 1 - hyper.adam_beta2)
    denominator = (variance / (1 - hyper.adam_beta2**count)).sqrt_().add_(hyper.adam_epsilon)
    return (mean / (1 - hyper.adam_beta1**count)).div_(denominator)
