"""The agent of an ejected file in NNX: its state object is split once and stays split between calls."""

from collections.abc import Callable
from typing import Any

from flax import nnx

from benchback.tools.eject.parts.compiling import jit as compiled
from benchback.tools.eject.parts.loop import Agent, started


def agent(
    state_type: type,
    config: Any,
    env: Any,
    *,
    init: Any,
    rollout: Any,
    update: Any,
    learn: Any,
    act: Any,
    initial_memory: Any = None,
) -> Agent:
    """Each as one program of arrays; rollout and update may overwrite the state they are given."""
    return started(lambda key, hyper: split(init(key, hyper))), program(rollout), program(update)


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that changes a state object, as a program of the object's arrays."""

    def run(state: Any, *arguments: Any) -> tuple[Any, Any]:
        whole = nnx.merge(*state)
        _, result = function(whole, *arguments)
        return split(whole), result

    return compiled(run)


def with_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that changes a state object, as a function of the object's arrays."""

    def run(state: Any, *arguments: Any) -> tuple[Any, Any]:
        whole = nnx.merge(*state)
        _, result = function(whole, *arguments)
        return split(whole), result

    return run


def split(state: Any) -> tuple[Any, Any]:
    """The graph definition of a state object, and its arrays."""
    graphdef, leaves = nnx.split(state)
    # Variables are pytree nodes written in Python; jax.jit flattens plain arrays several times faster.
    return graphdef, nnx.as_pure(leaves)
