"""What compiles a function of a state, by mode: (function, positions of the arguments it may overwrite) -> function."""

from collections.abc import Callable
from typing import Any

import jax


def jit(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
    """The function as one program that may overwrite the arguments it consumes."""
    return jax.jit(function, donate_argnums=consumes)


def none(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
    """The function as it is."""
    return function
