"""TD targets and target networks."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def stop_gradient(x: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """`x` without gradient."""
    return jax.lax.stop_gradient(x)


def polyak(target: Any, online: Any, tau: Float[Array, ""]) -> Any:
    """(1 - tau) target + tau online, weight by weight; an exact copy of `online` if tau is 1."""
    return jax.tree.map(lambda slow, fast: (1 - tau) * slow + tau * fast, target, online)


def smoothing_noise(
    noise: Float[Array, "B A"], scale: Float[Array, ""], limit: Float[Array, ""]
) -> Float[Array, "B A"]:
    """clip(sigma z, -c, c), given standard normal noise z (Fujimoto et al. 2018, equation 14)."""
    return jnp.clip(scale * noise, -limit, limit)


def twin_target(
    reward: Float[Array, "B"],
    terminated: Bool[Array, "B"],
    next_value1: Float[Array, "B"],
    next_value2: Float[Array, "B"],
    gamma: Float[Array, ""],
) -> Float[Array, "B"]:
    """r + gamma (1 - terminated) min(Q1', Q2') (Fujimoto et al. 2018, equation 10)."""
    return reward + gamma * jnp.where(terminated, 0, jnp.minimum(next_value1, next_value2))
