"""Shared by the five JAX frameworks: jax.jit modes, units, synchronisation, transfers and weight names."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from benchback.agent import Agent, Backend, Role, Weights, compiled, counter_name, declared_fields, roles
from benchback.errors import InputError

_compile_durations_s: list[float] = []


def _note_compile(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compile_durations_s.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_note_compile)


def compiles() -> int:
    """Number of programs XLA has compiled (or loaded from its cache) in this process."""
    return len(_compile_durations_s)


def block(tree: Any) -> None:
    """Wait until every array in `tree` is computed."""
    jax.block_until_ready(tree)


def mark(tree: Any) -> Callable[[], None] | None:
    """Return a function that waits for `tree` but not for later work; None if it is already computed."""
    return None if all(x.is_ready() for x in jax.tree.leaves(tree)) else partial(block, tree)


def fetch(tree: Any) -> Any:
    """`tree` as NumPy arrays, in one transfer; on a CPU without any."""
    if jax.default_backend() != "cpu":
        return jax.device_get(tree)
    # device_get begins a transfer for every array, from a CPU too, which takes six times as long as reading it.
    leaves, structure = jax.tree.flatten(tree)
    try:
        return structure.unflatten(map(np.asarray, leaves))
    except TypeError:  # a key of random numbers stays one
        return structure.unflatten([np.asarray(x) if isinstance(x.dtype, np.dtype) else x for x in leaves])


def jit(agent: Agent) -> Agent:
    """Mode: jax.jit, donating the arguments listed in `CONSUMES`."""
    return compiled(agent, lambda function, consumes: jax.jit(function, donate_argnums=consumes))


def none(agent: Agent) -> Agent:
    """Mode: no jax.jit; lax.scan still compiles its body."""
    return agent


def eager(agent: Agent) -> Agent:
    """Mode: jax.disable_jit; every operation is dispatched separately and loops run in Python."""
    return compiled(agent, lambda function, _: _without_jit(function))


def _without_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*arguments: Any) -> Any:
        with jax.disable_jit():
            return function(*arguments)

    return run


def phase(agent: Agent, length: int) -> Agent:
    """Unit: rollout and update are separate programs."""
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

BACKEND = Backend(
    modes={"eager": eager, "none": none, "jit": jit},
    compile=jax.jit,
    units=UNITS,
    block=block,
    mark=mark,
    fetch=fetch,
    compiles=compiles,
    put=jnp.asarray,
    functional=none,
    functional_modes={"none": none, "jit": jit},
)
"""The backend of Linen, Haiku and plain JAX; Equinox and NNX have further modes."""


def dtype(name: str) -> jnp.dtype:
    """The floating-point type `name`; InputError if JAX would silently narrow it."""
    if name == "float64" and not jax.config.read("jax_enable_x64"):
        raise InputError("dtype=float64 needs JAX's 64-bit mode; start Python with JAX_ENABLE_X64=1")
    return jnp.dtype(name)


@contextmanager
def optimising(wanted: bool) -> Iterator[None]:
    """Context in which XLA compiles with or without LLVM's optimiser, which does not pay off for programs run once."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", not wanted)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def as_data(hyper: Any, dtype: jnp.dtype) -> Any:
    """Hyper-parameters as scalar arrays on the device, so that changing one does not recompile."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one program, compiled without LLVM's optimiser, which does not pay off for programs run once."""
    program = jax.jit(function)

    @wraps(function)
    def run(*arguments: Any) -> Any:
        with optimising(False):
            return program(*arguments)

    return run


class Layout(NamedTuple):
    """Conversion between a framework's parameters and canonical weights."""

    to_weights: Callable[[Any, str], Weights]
    """(parameters, prefix) -> canonical weights, copied."""
    from_weights: Callable[[Any, Weights, str], Any]
    """(template, weights, prefix) -> parameters like the template."""


def export(layout: Layout, state: Any, role_of: Mapping[str, Role]) -> Weights:
    """The weights of a training state (a NamedTuple or a mapping) under canonical names."""
    weights: Weights = {}
    for field, part in declared_fields(_fields(state), role_of).items():
        match role_of[field]:
            case Role.NETWORK:
                weights |= layout.to_weights(part, "")
            case Role.TARGET:
                weights |= layout.to_weights(part, "target/")
            case Role.OPTIMISER:
                weights |= layout.to_weights(part.mean, f"{field}/mean/")
                weights |= layout.to_weights(part.variance, f"{field}/variance/")
            case Role.DATA:
                weights |= named(part, f"{field}/")
            case Role.MEMORY:
                weights |= named(part, field)
            case Role.COUNTER:
                weights |= named(part, counter_name(field))
            case Role.ENVIRONMENT:
                weights |= _env_to_weights(part, "env/")
            case Role.RANDOMNESS:
                weights |= named(part, "rng")
            case Role.HYPER:
                pass
    return weights


def load(layout: Layout, state: Any, weights: Weights, role_of: Mapping[str, Role]) -> Any:
    """The state with every section in `weights` restored."""
    parts = declared_fields(_fields(state), role_of)
    found = {field: _loaded(layout, weights, field, part, role_of[field]) for field, part in parts.items()}
    return state._replace(**found) if hasattr(state, "_replace") else found


def _fields(state: Any) -> dict[str, Any]:
    return state._asdict() if hasattr(state, "_asdict") else dict(state)


def _loaded(layout: Layout, weights: Weights, field: str, part: Any, role: Role) -> Any:
    match role:
        case Role.NETWORK:
            return layout.from_weights(part, weights, "")
        case Role.TARGET:
            return layout.from_weights(part, weights, "target/")
        case Role.OPTIMISER if _holds(weights, f"{field}/"):
            return part._replace(
                mean=layout.from_weights(part.mean, weights, f"{field}/mean/"),
                variance=layout.from_weights(part.variance, weights, f"{field}/variance/"),
            )
        case Role.COUNTER if counter_name(field) in weights:
            return unnamed(part, weights, counter_name(field))
        case Role.MEMORY if field in weights and _holds(weights, "env/"):  # of the episodes that go on
            return unnamed(part, weights, field)
        case Role.DATA if _holds(weights, f"{field}/"):
            # Arrays of episodes that are not continued are absent from the weights and keep their initial values.
            return unnamed(part, named(part, f"{field}/") | weights, f"{field}/")
        case Role.ENVIRONMENT if "rng" in weights:
            return _env_from_weights(part, weights, "env/")
        case Role.RANDOMNESS if "rng" in weights:
            return unnamed(part, weights, "rng")
    return part


def _holds(weights: Weights, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in weights)


def _env_to_weights(env: Any, prefix: str) -> Weights:
    if hasattr(env.inner, "to_weights"):  # it exports its own arrays
        return env.inner.to_weights(prefix)
    return named(env, prefix)


def _env_from_weights(env: Any, weights: Weights, prefix: str) -> Any:
    # External environments export nothing: keep the new episodes.
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


def agent(state_type: type, layout: Layout, config: Any, env: Any, *, init: Any, **functions: Any) -> Agent:
    """The Agent made of these functions; `load` and `export` follow the roles of the State's fields."""
    role_of = roles(state_type)
    return Agent(
        init=once(init),
        load=lambda state, weights: load(layout, state, weights, role_of),
        export=lambda state: export(layout, state, role_of),
        key=env.random,
        hyper=config.hyper,
        roles=role_of,
        **functions,
    )


TREE = Layout(to_weights=named, from_weights=unnamed)
"""The layout of frameworks whose parameter tree already has the canonical paths."""


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _copy(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.array(leaf)
