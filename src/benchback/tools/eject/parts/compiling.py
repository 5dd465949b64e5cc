"""What compiles a function of a state and more, by mode; it may overwrite the state."""

from collections.abc import Callable
from typing import Any

import jax


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one program that may overwrite the state."""
    return jax.jit(function, donate_argnums=0)


def none(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is."""
    return function
