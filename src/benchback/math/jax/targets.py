"""What critics that learn from replay aim at."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def polyak(target: Any, online: Any, decay: Float[Array, ""]) -> Any:
    """rho t + (1 - rho) p: the slow copy moves a little towards what learns."""
    return jax.tree.map(lambda t, p: decay * t + (1 - decay) * p, target, online)


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
