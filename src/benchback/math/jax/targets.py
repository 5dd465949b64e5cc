"""What learning aims at: no gradient passes through it, and slow copies of networks estimate it."""

from typing import Any

import jax
from jaxtyping import Array, Float


def constant(x: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """`x`, through which no gradient passes."""
    return jax.lax.stop_gradient(x)


def polyak(target: Any, online: Any, tau: Float[Array, ""]) -> Any:
    """(1 - tau) target + tau online, weight by weight; a copy of `online` to the last bit where tau is 1."""
    return jax.tree.map(lambda slow, fast: (1 - tau) * slow + tau * fast, target, online)
