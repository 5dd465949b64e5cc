"""Modes of Equinox, for one function of a state and more; it may overwrite the state."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from benchback.backends.equinox import _flat


def flatten(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by jax.jit with its arguments as flat lists of arrays."""
    return _flat(function, (0,))


def filter_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by eqx.filter_jit, which separates arrays from static values at each call."""
    # filter_jit can donate all arguments but the first, so the state is passed second.
    swapped = eqx.filter_jit(lambda rest, state: function(state, *rest), donate="all-except-first")
    return lambda state, *rest: swapped(rest, state)
