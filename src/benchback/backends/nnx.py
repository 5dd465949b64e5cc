"""Flax NNX: parameters live in the module, and a state is an object that is mutated in place.

The state that an agent's function returns is therefore the object it was given. The modes rely on this: a
compiled program returns only the other outputs, since tree mode forbids returning an input.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import unwrap
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Shaped

from benchback.agent import Agent, Backend, Compile, Gradients, Role, Weights, compiled, roles
from benchback.backends import xla
from benchback.backends.nnx_layers import CNN, MLP, NatureCNN
from benchback.math.jax import gaussian
from benchback.plugins import Networks


def jit(agent: Agent) -> Agent:
    """Mode: nnx.jit in graph mode, which traverses the state object before and after each call."""
    return compiled(agent, _in_place(_graph_jit))


def cached_partial(agent: Agent) -> Agent:
    """Mode: nnx.jit in graph mode with nnx.cached_partial, which traverses each state object only once."""

    def compile(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        program = _graph_jit(function, consumes)
        return _bound(lambda state: nnx.cached_partial(program, state, graph=True, graph_updates=True))

    return compiled(agent, _in_place(compile))


def jit_partial(agent: Agent) -> Agent:
    """Mode: nnx.jit_partial in tree mode, which flattens and compiles once per state object."""

    def compile(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        return _bound(lambda state: nnx.jit_partial(function, state, donate_argnums=consumes, graph=False))

    return compiled(agent, _in_place(compile))


def _graph_jit(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
    # Explicit: cached_partial needs both, and the defaults can be changed globally.
    return nnx.jit(function, donate_argnums=consumes, graph=True, graph_updates=True)


def _in_place(compile: Compile) -> Compile:
    """`compile` for functions that mutate their state in place: the program does not return it."""

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
    """A function that binds each state object at its first call and drops the binding with the object."""
    programs = WeakKeyDictionary()

    def run(state: Any, *arguments: Any) -> Any:
        program = programs.get(state)
        if program is None:
            program = programs[state] = bind(state)
        return program(*arguments)

    return run


class Split(NamedTuple):
    """A state object split into graph definition and arrays."""

    graphdef: nnx.GraphDef
    leaves: Mapping[str, Any]


def functional(agent: Agent) -> Agent:
    """The agent as pure functions of arrays, for use with any JAX transformation: split outside, merged inside."""

    def pure(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        @wraps(function)
        def run(state: Split, *arguments: Any) -> Any:
            whole = nnx.merge(*state)
            result = function(whole, *arguments)
            return (_split(whole), result[1]) if consumes else result

        return run

    def init(key: Any, hyper: Any) -> Split:
        return _split(unwrap(agent.init)(key, hyper))

    def load(state: Split, weights: Weights) -> Split:
        return _split(agent.load(nnx.merge(*state), weights))

    def export(state: Split) -> Weights:
        return agent.export(nnx.merge(*state))

    return replace(compiled(agent, pure), init=xla.once(init), load=load, export=export)


def split(agent: Agent) -> Agent:
    """Mode: the functional view under jax.jit; the object is split once and stays split between calls."""
    return xla.jit(functional(agent))


def _split(state: Any) -> Split:
    graphdef, leaves = nnx.split(state)
    # Variables are pytree nodes written in Python; jax.jit flattens plain arrays several times faster.
    return Split(graphdef, nnx.as_pure(leaves))


def chunk(agent: Agent, length: int) -> Agent:
    """Unit: one program for `length` iterations."""

    # Tree mode suffices without shared references, and costs half of graph mode when not compiled.
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
    compile=jax.jit,
    units={"phase": xla.phase, "iteration": xla.iteration, "chunk": chunk},
    block=xla.block,
    mark=xla.mark,
    fetch=xla.fetch,
    compiles=xla.compiles,
    put=jnp.asarray,
    parameters=lambda network: nnx.state(network, nnx.Param),
    functional=functional,
    functional_modes={"none": xla.none, "split": xla.jit},
)


def _to_weights(params: Mapping[str, Any], prefix: str) -> Weights:
    return xla.named(_without_lists(params), prefix)


def _from_weights(template: Mapping[str, Any], weights: Weights, prefix: str) -> Mapping[str, Any]:
    return nnx.State(_with_lists(template, xla.unnamed(_without_lists(template), weights, prefix)))


def _without_lists(part: Any) -> Any:
    # An MLP stores its layers in a list; canonical names omit the list: actor/0/kernel.
    if not isinstance(part, Mapping):
        return part
    return _without_lists(part["layers"]) if "layers" in part else {k: _without_lists(x) for k, x in part.items()}


def _with_lists(template: Any, found: Any) -> Any:
    """The inverse of `_without_lists`, in the structure of `template`."""
    if not isinstance(template, Mapping):
        return found
    if "layers" in template:
        return {"layers": _with_lists(template["layers"], found)}
    return {name: _with_lists(part, found[name]) for name, part in template.items()}


LAYOUT = xla.Layout(to_weights=_to_weights, from_weights=_from_weights)
"""Parameters are the pure `nnx.State` of a module."""


STATEFUL = (nnx.Module, nnx.Optimizer, nnx.Variable)
"""Types of the parts of a state object."""


def agent(state_type: type, config: Any, env: Any, *, init: Any, **functions: Any) -> Agent:
    """The Agent made of these functions; `load` and `export` follow the roles of the State's fields."""
    role_of = roles(state_type)
    program = nnx.jit(init)

    @wraps(init)
    def init_once(key: Any, hyper: Any) -> Any:
        with xla.optimising(False):
            return program(key, hyper)

    return Agent(
        init=init_once,
        load=lambda state, weights: _load(state, weights, role_of),
        export=lambda state: xla.export(LAYOUT, _parts(state), role_of),
        key=env.random,
        hyper=config.hyper,
        roles=role_of,
        **functions,
    )


def _load(state: Any, weights: Weights, role_of: Mapping[str, Role]) -> Any:
    """The state object with every section in `weights` restored."""
    found = xla.load(LAYOUT, _parts(state), weights, role_of)
    for name, part in vars(state).items():
        if isinstance(part, nnx.Optimizer):
            nnx.update(part.opt_state, nnx.state(found[name]))
        elif isinstance(part, nnx.Variable):
            part.set_value(found[name])
        elif isinstance(part, nnx.Module):
            nnx.update(part, nnx.state(found[name]))
    return state


def _parts(state: Any) -> dict[str, Any]:
    """The fields of a state object as plain arrays; for an optimiser, its moments."""
    parts = {name: part for name, part in vars(state).items() if isinstance(part, STATEFUL)}
    return {name: nnx.as_pure(_bare(part)) for name, part in parts.items()}


def _bare(part: Any) -> Any:
    if isinstance(part, nnx.Optimizer):
        return part.opt_state
    return part if isinstance(part, nnx.Variable) else nnx.state(part)


class ActorCritic(nnx.Module):
    """Separate actor and critic networks."""

    tower: ClassVar[Any] = MLP

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        initial_log_std: Float[Array, ""] | None,
        gradients: Gradients = "framework",
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.actor = self.tower(observation_shape, hidden, num_actions, 0.01, dtype, gradients=gradients, rngs=rngs)
        self.critic = self.tower(observation_shape, hidden, 1, 1.0, dtype, gradients=gradients, rngs=rngs)
        # Log standard deviation of continuous actions.
        if initial_log_std is not None:
            self.log_std = nnx.Param(jnp.full(num_actions, initial_log_std, dtype))

    def __call__(self, obs: Shaped[Array, "B *O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        out = self.actor(obs)
        return gaussian.parameters(out, self.log_std[...]) if hasattr(self, "log_std") else out

    def value(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        return self.critic(obs).squeeze(-1)


class ConvolutionalActorCritic(ActorCritic):
    """Separate actor and critic for images of MinAtar."""

    tower = CNN


class NatureActorCritic(ActorCritic):
    """Separate actor and critic for images of Atari."""

    tower = NatureCNN


class SharedActorCritic(ActorCritic):
    """A convolutional trunk, and an actor and a critic of one layer each on it."""

    tower = CNN

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        initial_log_std: Float[Array, ""] | None,
        gradients: Gradients = "framework",
        *,
        rngs: nnx.Rngs,
    ) -> None:
        *inner, width = hidden
        self.trunk = self.tower(observation_shape, tuple(inner), width, 2**0.5, dtype, gradients=gradients, rngs=rngs)
        self.actor = MLP((width,), (), num_actions, 0.01, dtype, gradients=gradients, rngs=rngs)
        self.critic = MLP((width,), (), 1, 1.0, dtype, gradients=gradients, rngs=rngs)
        if initial_log_std is not None:
            self.log_std = nnx.Param(jnp.full(num_actions, initial_log_std, dtype))

    def __call__(self, obs: Shaped[Array, "B *O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        features = nnx.relu(self.trunk(obs))
        return super().policy(features), super().value(features)

    def policy(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        return super().policy(nnx.relu(self.trunk(obs)))

    def value(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        return super().value(nnx.relu(self.trunk(obs)))


class SharedNatureActorCritic(SharedActorCritic):
    """A convolutional trunk for images of Atari, and an actor and a critic of one layer each on it."""

    tower = NatureCNN


NETWORKS = Networks(
    "nnx",
    "ActorCritic",
    mlp=ActorCritic,
    cnn=ConvolutionalActorCritic,
    nature_cnn=NatureActorCritic,
    shared_cnn=SharedActorCritic,
    shared_nature_cnn=SharedNatureActorCritic,
)
