"""Flax NNX: parameters live in the module, and a state is an object that is mutated in place.

What an agent's function returns first is therefore the object it was given. The modes rely on it: a
compiled program returns the rest only, since tree mode forbids returning an input.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Shaped

from benchback.agent import Agent, Backend, Compile, Weights, compiled
from benchback.backends import xla


def jit(agent: Agent) -> Agent:
    """Mode: nnx.jit in graph mode, which walks the state object before and after each call."""
    return compiled(agent, _in_place(_graph_jit))


def cached_partial(agent: Agent) -> Agent:
    """Mode: nnx.jit in graph mode, which walks each state object only once."""

    def compile(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        program = _graph_jit(function, consumes)
        return _bound(lambda state: nnx.cached_partial(program, state, graph=True, graph_updates=True))

    return compiled(agent, _in_place(compile))


def jit_partial(agent: Agent) -> Agent:
    """Mode: nnx.jit_partial in tree mode, which flattens each state object once, and compiles for each."""

    def compile(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        return _bound(lambda state: nnx.jit_partial(function, state, donate_argnums=consumes, graph=False))

    return compiled(agent, _in_place(compile))


def _graph_jit(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
    # Spelled out: cached_partial needs both, and the defaults can be changed from outside.
    return nnx.jit(function, donate_argnums=consumes, graph=True, graph_updates=True)


def _in_place(compile: Compile) -> Compile:
    """`compile` for functions that mutate the state they consume: the program does not return it."""

    def compile_in_place(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        if not consumes:
            return compile(function, consumes)

        @wraps(function)
        def result(*arguments: Any) -> Any:
            return function(*arguments)[1]

        program = compile(result, consumes)

        @wraps(function)
        def run(state: Any, *arguments: Any) -> tuple[Any, Any]:
            return state, program(state, *arguments)

        return run

    return compile_in_place


def _bound(bind: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """A function that binds each state object at its first call, and forgets it with the object."""
    programs = WeakKeyDictionary()

    def run(state: Any, *arguments: Any) -> Any:
        program = programs.get(state)
        if program is None:
            program = programs[state] = bind(state)
        return program(*arguments)

    return run


class Split(NamedTuple):
    """A state object taken apart."""

    graphdef: nnx.GraphDef
    leaves: Mapping[str, Any]


def split(agent: Agent) -> Agent:
    """Mode: the object is split once and stays so between calls; jax.jit takes arrays and merges inside."""

    def compile(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        @wraps(function)
        def program(state: Split, *arguments: Any) -> Any:
            whole = nnx.merge(*state)
            result = function(whole, *arguments)
            return (_split(whole), result[1]) if consumes else result

        return jax.jit(program, donate_argnums=consumes)

    def init(seed: int, weights: Weights | None = None) -> Split:
        return _split(agent.init(seed, weights))

    def export(state: Split) -> Weights:
        return agent.export(nnx.merge(*state))

    return replace(compiled(agent, compile), init=init, export=export)


def _split(state: Any) -> Split:
    graphdef, leaves = nnx.split(state)
    # Variables are pytree nodes written in Python; jax.jit flattens plain arrays several times faster.
    return Split(graphdef, nnx.as_pure(leaves))


def chunk(agent: Agent, length: int) -> Agent:
    """Unit: one program for `length` iterations."""

    # Tree mode suffices where nothing is shared, and costs half of graph mode where nothing is compiled.
    @nnx.scan(graph=False, length=length, in_axes=nnx.Carry, out_axes=(nnx.Carry, 0))
    def iterate(state: Any) -> tuple[Any, Any]:
        state, batch = agent.rollout(state)
        return agent.update(state, batch)

    return replace(agent, iterate=iterate)


backend = Backend(
    modes={
        "eager": xla.eager,
        "none": xla.none,
        "jit": jit,
        "cached_partial": cached_partial,
        "jit_partial": jit_partial,
        "split": split,
    },
    units={"phase": xla.phase, "iteration": xla.iteration, "chunk": chunk},
    block=xla.block,
    mark=xla.mark,
    fetch=xla.fetch,
    compiles=xla.compiles,
)


def _to_weights(params: Mapping[str, Any], prefix: str) -> Weights:
    return xla.named(_towers(params), prefix)


def _from_weights(template: Mapping[str, Any], weights: Weights, prefix: str) -> Mapping[str, Any]:
    found = xla.unnamed(_towers(template), weights, prefix)
    return nnx.State(
        {name: {"layers": found[name]} if _is_mlp(part) else found[name] for name, part in template.items()}
    )


def _towers(params: Mapping[str, Any]) -> dict[str, Any]:
    # An MLP keeps its layers in a list; canonical names leave the list out: actor/0/kernel.
    return {name: part["layers"] if _is_mlp(part) else part for name, part in params.items()}


def _is_mlp(part: Any) -> bool:
    return isinstance(part, Mapping) and "layers" in part


LAYOUT = xla.Layout(to_weights=_to_weights, from_weights=_from_weights)
"""Parameters are the pure `nnx.State` of a module made of MLPs."""


STATEFUL = (nnx.Module, nnx.Optimizer, nnx.Variable)
"""What a state object is made of."""


def exported(state: Any) -> Weights:
    """A state object under canonical names."""
    return xla.export(LAYOUT, _parts(state))


def transplant(weights: Weights | None, state: Any) -> Any:
    """The state object with every section that `weights` holds put in its place."""
    if weights is None:
        return state
    found = xla.transplant(LAYOUT, weights, _parts(state))
    for name, part in vars(state).items():
        if isinstance(part, nnx.Optimizer):
            nnx.update(part.opt_state, nnx.state(found[name]))
        elif isinstance(part, nnx.Variable):
            part.set_value(found[name])
        elif isinstance(part, nnx.Module):
            nnx.update(part, nnx.state(found[name]))
    return state


def _parts(state: Any) -> dict[str, Any]:
    """The fields of a state object as plain arrays; of an optimiser, its moments."""
    parts = {name: part for name, part in vars(state).items() if isinstance(part, STATEFUL)}
    return {name: nnx.as_pure(_bare(part)) for name, part in parts.items()}


def _bare(part: Any) -> Any:
    if isinstance(part, nnx.Optimizer):
        return part.opt_state
    return part if isinstance(part, nnx.Variable) else nnx.state(part)


class MLP(nnx.Module):
    """Layers with orthogonal weights and zero biases, then a linear head of its own scale."""

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        activation: str = "tanh",
        *,
        rngs: nnx.Rngs,
    ) -> None:
        widths = (inputs, *hidden, outputs)
        scales = (*(2**0.5 for _ in hidden), head_scale)
        self.dtype, self.activation = dtype, activation
        self.layers = nnx.List(
            nnx.Linear(
                fan_in,
                width,
                kernel_init=nnx.initializers.orthogonal(scale),
                dtype=dtype,
                param_dtype=dtype,
                rngs=rngs,
            )
            for fan_in, width, scale in zip(widths[:-1], widths[1:], scales, strict=True)
        )

    def __call__(self, x: Shaped[Array, "*B I"]) -> Float[Array, "*B O"]:
        *hidden, head = self.layers
        x = x.astype(self.dtype)
        for layer in hidden:
            x = getattr(nnx, self.activation)(layer(x))
        return head(x)
