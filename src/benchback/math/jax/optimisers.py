"""Adam behind a global-norm clip, with hyper-parameters that are data."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchback.math.jax.schedules import linear_anneal


def adam(
    *,
    anneal: bool = False,
    steps_per_iteration: int = 1,
    num_iterations: int = 1,
    clip: bool = True,
    rate: str = "learning_rate",
) -> optax.GradientTransformationExtraArgs:
    """Clipped Adam (Kingma & Ba 2015) as an optax transformation; `update(..., hyper=hyper)`.

    Its floats arrive with every update instead of being baked in, so that agents that differ in them
    share one program. Gradients g become min(1, c / |g|) g before they enter the moments, if `clip`; the step size
    is the hyper-parameter named `rate`.
    """

    def init(params: Any) -> Any:
        return optax.scale_by_adam().init(params)

    def update(updates: Any, state: Any, params: Any = None, **data: Any) -> tuple[Any, Any]:
        hyper = data["hyper"]
        learning_rate = getattr(hyper, rate)
        if anneal:
            learning_rate = linear_anneal(
                learning_rate,
                jnp.asarray(state.count),
                steps_per_iteration=steps_per_iteration,
                num_iterations=num_iterations,
            )
        moments = optax.scale_by_adam(hyper.adam_beta1, hyper.adam_beta2, hyper.adam_epsilon)
        if clip:
            updates = clip_by_global_norm(updates, hyper.max_grad_norm)
        direction, state = moments.update(updates, state)
        return jax.tree.map(lambda d: -learning_rate * d, direction), state

    return optax.GradientTransformationExtraArgs(init, update)


def clip_by_global_norm(gradient: Any, limit: Any) -> Any:
    """The gradient, brought to norm `limit` where it exceeds it.

    By a factor where optax.clip_by_global_norm divides: XLA fuses a product into the moments, but not a quotient.
    """
    factor = limit / jnp.maximum(optax.tree.norm(gradient), limit)
    return jax.tree.map(lambda g: factor * g, gradient)
