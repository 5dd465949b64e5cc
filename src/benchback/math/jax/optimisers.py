"""Adam with global-norm clipping and hyper-parameters that are data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from benchback.math.jax.schedules import linear_anneal


class AdamState(NamedTuple):
    """Moments of the gradient, in the structure of the parameters. The step count is a separate counter."""

    mean: Any
    variance: Any


class Adam(optax.GradientTransformationExtraArgs):
    """An optimiser as two functions, after optax.GradientTransformation."""

    init: Callable[[Any], AdamState]
    """Parameters -> zero moments."""
    update: Callable[..., tuple[Any, AdamState]]
    """(gradient, state, count=count, hyper=hyper) -> parameter updates, state."""


def adam(
    *,
    anneal: bool = False,
    steps_per_iteration: int = 1,
    num_iterations: int = 1,
    clip: bool = True,
    rate: str = "learning_rate",
) -> Adam:
    """Clipped Adam (Kingma & Ba 2015) as an optax transformation; `update(..., count=count, hyper=hyper)`.

    Its float hyper-parameters are arguments of each update instead of constants, so that agents that differ in
    them share one program; so is the count of earlier updates, which is the same for all of them. Gradients g become
    min(1, c / |g|) g before they enter the moments, if `clip`; the learning rate is the hyper-parameter named `rate`.
    """

    def init(params: Any) -> AdamState:
        return AdamState(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(updates: Any, state: Any, params: Any = None, **data: Any) -> tuple[Any, AdamState]:
        count, hyper = data["count"], data["hyper"]
        if clip:
            updates = clip_by_global_norm(updates, hyper.max_grad_norm)
        moments: Any = optax.ScaleByAdamState(count, state.mean, state.variance)
        scale = optax.scale_by_adam(hyper.adam_beta1, hyper.adam_beta2, hyper.adam_epsilon)
        direction, moments = scale.update(updates, moments)
        learning_rate = rate_at(getattr(hyper, rate), count)
        return jax.tree.map(lambda d: -learning_rate * d, direction), AdamState(moments.mu, moments.nu)

    def rate_at(learning_rate: Any, count: Int[Array, ""]) -> Any:
        if not anneal:
            return learning_rate
        return linear_anneal(
            learning_rate, count, steps_per_iteration=steps_per_iteration, num_iterations=num_iterations
        )

    return Adam(init, update)


def clip_by_global_norm(gradient: Any, limit: Any) -> Any:
    """The gradient, scaled to norm `limit` if its norm is larger.

    Multiplies where optax.clip_by_global_norm divides: XLA fuses a product into the moments, but not a quotient.
    """
    factor = limit / jnp.maximum(optax.tree.norm(gradient), limit)
    return jax.tree.map(lambda g: factor * g, gradient)
