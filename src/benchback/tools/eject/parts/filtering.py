"""Mode filter_jit of Equinox, for one function."""

from collections.abc import Callable
from typing import Any

import equinox as eqx


def filter_jit(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
    """The function compiled by eqx.filter_jit, which separates arrays from static values at each call."""
    if not consumes:
        return eqx.filter_jit(function)
    # filter_jit can donate all arguments but the first, so the state is passed second.
    swapped = eqx.filter_jit(lambda rest, state: function(state, *rest), donate="all-except-first")
    return lambda state, *rest: swapped(rest, state)
