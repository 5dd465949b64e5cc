"""Modes of Equinox, for one function of a state and more; it may overwrite the state."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def flatten(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by jax.jit, with its arguments as flat lists of arrays."""
    structures: dict[Any, Any] = {}

    def run(structure: Any, *leaves: Any) -> list[Any]:
        out, structures[structure] = jax.tree.flatten(function(*map(jax.tree.unflatten, structure, leaves)))
        return out

    program = jax.jit(run, static_argnums=0, donate_argnums=1)

    def call(*arguments: Any) -> Any:
        leaves, structure = zip(*map(jax.tree.flatten, arguments), strict=True)
        out = program(structure, *leaves)
        return jax.tree.unflatten(structures[structure], out)

    return call


def filter_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by eqx.filter_jit, which separates arrays from static values at each call."""
    # filter_jit can donate all arguments but the first, so the state is passed second.
    swapped = eqx.filter_jit(lambda rest, state: function(state, *rest), donate="all-except-first")
    return lambda state, *rest: swapped(rest, state)
