"""What the five JAX frameworks share: compiling with jax.jit, units, waiting, fetching, counting, naming."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from benchback.agent import Agent, Weights, compiled
from benchback.errors import InputError

_compile_durations_s: list[float] = []


def _note_compile(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compile_durations_s.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_note_compile)


def compiles() -> int:
    """Programs XLA has compiled (or loaded from its cache) in this process."""
    return len(_compile_durations_s)


def block(tree: Any) -> None:
    """Wait until every array in `tree` is computed."""
    jax.block_until_ready(tree)


def mark(tree: Any) -> Callable[[], None] | None:
    """A wait for `tree` alone, later work may be under way already; None if it is computed."""
    return None if all(x.is_ready() for x in jax.tree.leaves(tree)) else partial(block, tree)


def fetch(tree: Any) -> Any:
    """`tree` as NumPy arrays, in one transfer."""
    return jax.device_get(tree)


def jit(agent: Agent) -> Agent:
    """Mode: jax.jit, donating what the contract says a function consumes."""
    return compiled(agent, lambda function, consumes: jax.jit(function, donate_argnums=consumes))


def none(agent: Agent) -> Agent:
    """Mode: nothing compiled on top; loops written as lax.scan still compile their bodies."""
    return agent


def eager(agent: Agent) -> Agent:
    """Mode: jax.disable_jit, every operation dispatched by itself, loops run in Python."""
    return compiled(agent, lambda function, _: _without_jit(function))


def _without_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*arguments: Any) -> Any:
        with jax.disable_jit():
            return function(*arguments)

    return run


def phase(agent: Agent, length: int) -> Agent:
    """Unit: rollout and update are programs of their own."""
    return agent


def iteration(agent: Agent, length: int) -> Agent:
    """Unit: one program for rollout and update."""

    def iterate(state: Any) -> tuple[Any, Any]:
        state, batch = agent.rollout(state)
        return agent.update(state, batch)

    return replace(agent, iterate=iterate)


def chunk(agent: Agent, length: int) -> Agent:
    """Unit: one program for `length` iterations."""

    def one(state: Any, _: None) -> tuple[Any, Any]:
        state, batch = agent.rollout(state)
        return agent.update(state, batch)

    def iterate(state: Any) -> tuple[Any, Any]:
        return jax.lax.scan(one, state, length=length)

    return replace(agent, iterate=iterate)


UNITS = {"phase": phase, "iteration": iteration, "chunk": chunk}


def dtype(name: str) -> jnp.dtype:
    """The floating-point type `name`, refused where this process would silently narrow it."""
    if name == "float64" and not jax.config.read("jax_enable_x64"):
        raise InputError("dtype=float64 needs JAX's 64-bit mode; start Python with JAX_ENABLE_X64=1")
    return jnp.dtype(name)


@contextmanager
def optimising(wanted: bool) -> Iterator[None]:
    """Inside, XLA compiles with LLVM's optimiser or without: a program that runs once would never earn it back."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", not wanted)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def as_data(hyper: Any, dtype: jnp.dtype) -> Any:
    """Hyper-parameters as scalars on the device, so that changing one recompiles nothing."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper)


class Layout(NamedTuple):
    """Where a framework keeps its weights: to canonical names and back."""

    to_weights: Callable[[Any, str], Weights]
    """(parameters, prefix) -> canonical weights, copied."""
    from_weights: Callable[[Any, Weights, str], Any]
    """(template, weights, prefix) -> parameters like the template."""


NETWORKS = {"params": "", "model": "", "target": "target/"}
"""Fields of a State that hold networks -> the section of their canonical names."""
DATA = ("replay", "normaliser")
"""Fields that every backend keeps in the same arrays. What ends in `adam` is an optimiser's state."""


def export(layout: Layout, state: Any) -> Weights:
    """A training state, a NamedTuple or a mapping by field, under canonical names."""
    weights: Weights = {}
    for field, part in _fields(state).items():
        if field in NETWORKS:
            weights |= layout.to_weights(part, NETWORKS[field])
        elif field.endswith("adam"):
            weights[f"{field}/count"] = _copy(part.count)
            weights |= layout.to_weights(part.mu, f"{field}/mean/") | layout.to_weights(part.nu, f"{field}/variance/")
        elif field in DATA:
            weights |= named(part, f"{field}/")
        elif field == "env":
            weights |= _env_to_weights(part, "env/")
        elif field == "key":
            weights |= named(part, "rng")
    return weights


def transplant(layout: Layout, weights: Weights | None, state: Any) -> Any:
    """The state with every section that `weights` holds put in its place."""
    if weights is None:
        return state
    found = {field: _transplanted(layout, weights, field, part) for field, part in _fields(state).items()}
    return state._replace(**found) if hasattr(state, "_replace") else found


def _fields(state: Any) -> dict[str, Any]:
    return state._asdict() if hasattr(state, "_asdict") else dict(state)


def _transplanted(layout: Layout, weights: Weights, field: str, part: Any) -> Any:
    if field in NETWORKS:
        return layout.from_weights(part, weights, NETWORKS[field])
    if field.endswith("adam") and f"{field}/count" in weights:
        return part._replace(
            count=jnp.array(weights[f"{field}/count"], part.count.dtype),
            mu=layout.from_weights(part.mu, weights, f"{field}/mean/"),
            nu=layout.from_weights(part.nu, weights, f"{field}/variance/"),
        )
    if field == "normaliser":  # what belongs to episodes that do not go on is left out, and starts afresh
        return unnamed(part, named(part, "normaliser/") | weights, "normaliser/")
    if field in DATA and any(name.startswith(f"{field}/") for name in weights):
        return unnamed(part, weights, f"{field}/")
    if field == "env" and "rng" in weights:
        return _env_from_weights(part, weights, "env/")
    if field == "key" and "rng" in weights:
        return unnamed(part, weights, "rng")
    return part


def _env_to_weights(env: Any, prefix: str) -> Weights:
    if hasattr(env.inner, "to_weights"):  # it says itself what of it can be written
        return env.inner.to_weights(prefix)
    return named(env, prefix)


def _env_from_weights(env: Any, weights: Weights, prefix: str) -> Any:
    # One that lives in Python has written nothing: the episodes that have just begun stay.
    return unnamed(env, weights, prefix) if any(name.startswith(prefix) for name in weights) else env


def named(tree: Any, prefix: str) -> Weights:
    """Leaves of `tree` as NumPy copies, named by their path; random keys as their raw data."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + _path(path): _copy(leaf) for path, leaf in leaves}


def unnamed(template: Any, weights: Weights, prefix: str) -> Any:
    """The inverse of `named`: the arrays of `weights` in the structure of `template`."""

    def fill(path: Any, leaf: Any) -> Any:
        array = weights[prefix + _path(path)]
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.array(array))
        return jnp.array(array, leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, template)


TREE = Layout(to_weights=named, from_weights=unnamed)
"""The layout of frameworks whose parameter tree already has the canonical paths."""


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _copy(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.array(leaf)
