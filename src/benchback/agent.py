"""The interface between the parts: an algorithm provides an Agent, a framework provides a Backend.

Invariants, each checked by a test:

- `init` is pure: it can be jitted, and vmapped over keys and hyper-parameters.
- State is used linearly. After `s2, x = f(s1)`, `s1` must not be used: JAX may have donated its buffers, torch and
  NNX may have mutated and returned the same object.
- Every field of a State declares its role; `export` and `load` depend on it and reject a field without one.
- Floats are data, integers are static. Float hyper-parameters are passed to `init` and are leaves of the state.
- A compile mode computes the same numbers as `none`, and actually compiles.
- An implementation does not measure, log, print, parse, read files or move data to the host.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from inspect import get_annotations
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

State = Any
"""Everything that changes during training; opaque outside its implementation."""

Gradients = Literal["framework", "reordered"]
"""How kernels' gradients are computed: as the framework does it, or with factors in the order fastest on a CPU."""

T = TypeVar("T")


class Role(StrEnum):
    """The role of a field of a State: determines whether and under which name a checkpoint stores it."""

    NETWORK = "network"
    """Online networks; stored without a prefix."""
    TARGET = "target"
    """Target networks, under `target/`."""
    OPTIMISER = "optimiser"
    """Optimiser moments, under the name of the field."""
    DATA = "data"
    """Collected data (replay, normaliser), under the name of the field; the same arrays in every backend."""
    ENVIRONMENT = "environment"
    """Environment state, under `env/`; readable by the same framework family only."""
    RANDOMNESS = "randomness"
    """Random number generator state, `rng`; readable by the same framework family only."""
    HYPER = "hyper"
    """Float hyper-parameters; they come from the config, so checkpoints leave them out."""
    COUNTER = "counter"
    """Step counter shared by all members of a population, so that a `cond` on it stays a `cond` under `vmap`.
    `replay_inserted` is stored as `replay/inserted`."""
    MEMORY = "memory"
    """Hidden state of a recurrent network, one per environment; reset with the episode."""


Network = Annotated[T, Role.NETWORK]
Target = Annotated[T, Role.TARGET]
Optimiser = Annotated[T, Role.OPTIMISER]
Data = Annotated[T, Role.DATA]
Environment = Annotated[T, Role.ENVIRONMENT]
Randomness = Annotated[T, Role.RANDOMNESS]
HyperParameters = Annotated[T, Role.HYPER]
Counter = Annotated[T, Role.COUNTER]
Memory = Annotated[T, Role.MEMORY]


def roles(state_type: type) -> dict[str, Role]:
    """Role of each field of a State class, e.g. `params: Network[Params]`; TypeError if a field declares none."""
    found = {}
    for name, hint in get_annotations(state_type).items():
        declared = [x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Role)]
        if len(declared) != 1:
            where = f"{state_type.__module__}.{state_type.__name__}.{name}"
            raise TypeError(f"{where} declares no role; annotate it with one, e.g. {name}: Data[...]")
        found[name] = declared[0]
    return found


def declared_fields(fields: Mapping[str, Any], role_of: Mapping[str, Role]) -> dict[str, Any]:
    """The fields of a state by name; TypeError if one declares no role."""
    for name in fields:
        if name not in role_of:
            raise TypeError(f"State.{name} declares no role, so a checkpoint would silently leave it out; annotate it")
    return dict(fields)


def counter_name(field: str) -> str:
    """`replay_inserted` -> `replay/inserted`."""
    return "/".join(field.rsplit("_", 1))


Weights = dict[str, np.ndarray]
"""Canonical, framework-free copy of a state: `actor/0/kernel` is `[in, out]` in every backend.

Sections: towers such as `actor/` and `critic/` (online networks), `target/` (target networks), `adam/`
or, where there are several, `actor_adam/` and so on (`count`, `mean/...`, `variance/...`), `replay/` and
`normaliser/` (collected data), `env/` and `rng` (environment and random stream; readable by the same framework
family only), `memory` (what a recurrent network remembers of the episodes in `env/`).
"""

BESIDE_NETWORKS = re.compile(r"(target|\w*adam|replay|normaliser|env)/|(rng|memory)$")
OF_EPISODES = re.compile(r"env/|(rng|memory)$|normaliser/ongoing_return")


def networks(weights: Weights) -> Weights:
    """The weights of the online networks only."""
    return {name: x for name, x in weights.items() if not BESIDE_NETWORKS.match(name)}


def network_of(weights: Weights, replay: bool = True) -> Weights:
    """Networks, optimisers and collected data, without the random stream and what belongs to episodes."""
    kept = {name: x for name, x in weights.items() if not OF_EPISODES.match(name)}
    return {name: x for name, x in kept.items() if replay or not name.startswith("replay/")}


Metrics = dict[str, Any]
"""Named scalars on the device; one value per iteration where a program covers several."""


def no_memory(num_envs: int) -> tuple[()]:
    """Empty memory, for feed-forward networks."""
    return ()


@dataclass(frozen=True)
class Agent:
    """An algorithm in one framework, as plain functions."""

    init: Callable[[Any, Any], State]
    """(key, hyper) -> State; pure."""
    load: Callable[[State, Weights], State]
    """State, Weights -> State; restores every section that the weights contain."""
    rollout: Callable[[State], tuple[State, Any]]
    """State -> State, Batch; steps the environment without learning."""
    update: Callable[[State, Any], tuple[State, Metrics]]
    """State, Batch -> State, Metrics; learns without stepping the environment."""
    learn: Callable[[State, Any], tuple[State, Metrics]]
    """State, Minibatch -> State, Metrics; one gradient step; parity is tested on this function."""
    act: Callable[[State, Any, Any], tuple[Any, Any]]
    """State, memory, observation -> memory, greedy action."""
    export: Callable[[State], Weights]
    """State -> Weights; copies, never views of live buffers."""
    key: Callable[[int], Any]
    """Seed -> source of randomness for `init`: a JAX key or a torch.Generator."""
    hyper: Any
    """Float hyper-parameters of the config; passed to `init` unless they are varied."""
    roles: Mapping[str, Role]
    """Field of its State -> role."""
    initial_memory: Callable[[int], Any] = no_memory
    """Number of environments -> memory at the start of an episode."""
    iterate: Callable[[State], tuple[State, Metrics]] | None = None
    """State -> State, Metrics; rollout and update in one call. Set by the unit; None in unit `phase`."""
    with_wrapped: Callable[[Callable[[str, Callable[..., Any]], Callable[..., Any]]], "Agent"] | None = None
    """((name, function) -> function) -> the same agent with its inner functions wrapped. For frameworks that
    compile parts of a phase rather than the whole phase; None in the JAX family."""


def start(agent: Agent, seed: int, weights: Weights | None = None) -> State:
    """Initial state from the seed and the agent's hyper-parameters; loads `weights` if given."""
    state = agent.init(agent.key(seed), agent.hyper)
    return state if weights is None else agent.load(state, weights)


Compile = Callable[[Callable[..., Any], tuple[int, ...]], Callable[..., Any]]
"""(function, positions of donated arguments) -> compiled function."""

CONSUMES: Mapping[str, tuple[int, ...]] = {
    "rollout": (0,),
    "update": (0,),
    "learn": (0,),
    "act": (),
    "iterate": (0,),
}
"""Arguments that each function of an Agent may donate; its caller must not use them again."""


def compiled(agent: Agent, compile: Compile) -> Agent:
    """The agent with every computing function compiled."""
    functions = {name: getattr(agent, name) for name in CONSUMES}
    return replace(
        agent,
        **{name: compile(f, CONSUMES[name]) for name, f in functions.items() if f is not None},
    )


@dataclass(frozen=True)
class Backend:
    """A framework: its compile modes, its units, and how to wait for and read its arrays."""

    modes: Mapping[str, Callable[[Agent], Agent]]
    """Compile modes: name -> function from agent to compiled agent."""
    compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Compile a pure function of arrays that is not part of an agent, such as an environment's step."""
    units: Mapping[str, Callable[[Agent, int], Agent]]
    """How much one program covers: (agent, iterations per program) -> agent."""
    block: Callable[[Any], None]
    """Wait until all arrays in the argument are computed."""
    mark: Callable[[Any], Callable[[], None] | None]
    """Return a function that waits for the argument but for no work queued later; None if it is already computed."""
    fetch: Callable[[Any], Any]
    """The argument as NumPy arrays, in one transfer."""
    compiles: Callable[[], int]
    """Number of programs compiled so far in this process; never decreases."""
    put: Callable[[np.ndarray], Any] = lambda array: array
    """A NumPy array as one of the framework, the inverse of `fetch`."""
    parameters: Callable[[Any], Any] = lambda network: network
    """A network of a State as users of the framework pass parameters to a module of their own."""
    functional: Callable[[Agent], Agent] | None = None
    """The agent as pure functions of trees of arrays, as populations need it; None if the framework has none."""
    functional_modes: Mapping[str, Callable[[Agent], Agent]] = field(default_factory=dict)
    """Compile modes of functional agents."""
