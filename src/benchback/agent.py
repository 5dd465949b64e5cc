"""The contract: what an algorithm gives (Agent) and what a framework gives (Backend). Nothing else.

Laws, each of them a test:
- `init` is pure: it can be jitted, and vmapped over keys and hyper-parameters.
- Linear state. After `s2, x = f(s1)` nobody touches `s1`: JAX may have donated its buffers, torch and
  NNX may have returned the same object, mutated.
- Every field of a State declares its role; `export` and `load` go by it and refuse a field without one.
- Floats are data, integers are structure. Float hyper-parameters enter by `init` and are leaves of the state.
- A mode is a claim: the same numbers as `none`, and it really compiled.
- An implementation does not measure, log, print, parse, read files or move data to the host.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import get_annotations
from typing import Annotated, Any, TypeVar

import numpy as np

State = Any
"""Everything that changes during training; opaque outside its implementation."""

T = TypeVar("T")


class Role(StrEnum):
    """What a field of a State is for: decides whether and under which name a checkpoint keeps it."""

    NETWORK = "network"
    """Networks that learn; without a section of their own."""
    TARGET = "target"
    """Slow copies of them, under `target/`."""
    OPTIMISER = "optimiser"
    """Moments, under the name of the field."""
    DATA = "data"
    """What was seen (replay, normaliser), under the name of the field; the same arrays in every backend."""
    ENVIRONMENT = "environment"
    """Under `env/`; readable by the same family only."""
    RANDOMNESS = "randomness"
    """The random stream, `rng`; readable by the same family only."""
    HYPER = "hyper"
    """Float hyper-parameters; they come from the config, so checkpoints leave them out."""
    COUNTER = "counter"
    """Equal for all members of a population, so that what is decided by it stays one decision. `replay_inserted` is
    kept as `replay/inserted`."""
    MEMORY = "memory"
    """What a recurrent network carries from step to step; belongs to the environments' episodes."""


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
    """Field -> role of a State class; a TypeError names a field that declares none, e.g. `params: Network[Params]`."""
    found = {}
    for name, hint in get_annotations(state_type).items():
        declared = [x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Role)]
        if len(declared) != 1:
            where = f"{state_type.__module__}.{state_type.__name__}.{name}"
            raise TypeError(f"{where} declares no role; annotate it with one, e.g. {name}: Data[...]")
        found[name] = declared[0]
    return found


Weights = dict[str, np.ndarray]
"""Canonical, framework-free copy of a state: `actor/0/kernel` is `[in, out]` in every backend.

Sections: towers such as `actor/` and `critic/` (the networks that learn), `target/` (slow copies of them), `adam/`
or, where there are several, `actor_adam/` and so on (`count`, `mean/...`, `variance/...`), `replay/` and
`normaliser/` (what was seen), `env/` and `rng` (the environment and the random stream; readable by the same family
only).
"""

BESIDE_NETWORKS = re.compile(r"(target|\w*adam|replay|normaliser|env)/|rng$")


def networks(weights: Weights) -> Weights:
    """The networks that learn, without all that lies beside them."""
    return {name: x for name, x in weights.items() if not BESIDE_NETWORKS.match(name)}


def network_of(weights: Weights, replay: bool = True) -> Weights:
    """Networks, optimisers and what was learnt beside them, without the environment and the random stream."""
    left = ("env/", "rng", "normaliser/ongoing_return") + (() if replay else ("replay/",))
    return {name: x for name, x in weights.items() if not name.startswith(left)}


Metrics = dict[str, Any]
"""Named scalars on the device; one value per iteration where a program covers several."""


def no_memory(num_envs: int) -> tuple[()]:
    """The memory of a network without one."""
    return ()


@dataclass(frozen=True)
class Agent:
    """An algorithm in one framework, as plain functions."""

    init: Callable[[Any, Any], State]
    """(key, hyper) -> State; pure."""
    load: Callable[[State, Weights], State]
    """State, Weights -> State; every section that the weights hold put in its place."""
    rollout: Callable[[State], tuple[State, Any]]
    """State -> State, Batch; acts in the environment, learns nothing."""
    update: Callable[[State, Any], tuple[State, Metrics]]
    """State, Batch -> State, Metrics; learns, leaves the environment alone."""
    learn: Callable[[State, Any], tuple[State, Metrics]]
    """State, Minibatch -> State, Metrics; one gradient step, the surface on which parity is proven."""
    act: Callable[[State, Any, Any], tuple[Any, Any]]
    """State, memory, observation -> memory, greedy action."""
    export: Callable[[State], Weights]
    """State -> Weights; copies, never views of live buffers."""
    key: Callable[[int], Any]
    """Seed -> what `init` draws from: a JAX key, a torch.Generator."""
    hyper: Any
    """Float hyper-parameters of the config it was made from: what `init` is given unless someone varies them."""
    roles: Mapping[str, Role]
    """Field of its State -> role."""
    initial_memory: Callable[[int], Any] = no_memory
    """Number of environments -> the memory at the beginning of their episodes."""
    iterate: Callable[[State], tuple[State, Metrics]] | None = None
    """State -> State, Metrics; rollout and update in one call. Set by a unit, absent in unit `phase`."""
    with_wrapped: Callable[[Callable[[str, Callable[..., Any]], Callable[..., Any]]], "Agent"] | None = None
    """((name, function) -> function) -> the same agent with its inner functions so wrapped. For a framework
    that compiles the pieces of a phase rather than the phase; absent in the JAX family."""


def start(agent: Agent, seed: int, weights: Weights | None = None) -> State:
    """A state from the seed and the agent's own hyper-parameters, with `weights` loaded where given."""
    state = agent.init(agent.key(seed), agent.hyper)
    return state if weights is None else agent.load(state, weights)


Compile = Callable[[Callable[..., Any], tuple[int, ...]], Callable[..., Any]]
"""(function, positions of arguments it may consume) -> the compiled function."""

CONSUMES: Mapping[str, tuple[int, ...]] = {
    "rollout": (0,),
    "update": (0,),
    "learn": (0,),
    "act": (),
    "iterate": (0,),
}
"""Which arguments each function of an Agent may consume (donate), by the law of linear state."""


def compiled(agent: Agent, compile: Compile) -> Agent:
    """The agent with every function that does work replaced by its compiled self."""
    functions = {name: getattr(agent, name) for name in CONSUMES}
    return replace(
        agent,
        **{name: compile(f, CONSUMES[name]) for name, f in functions.items() if f is not None},
    )


@dataclass(frozen=True)
class Backend:
    """A framework: how it compiles, how far one program can reach, how to wait for it and read from it."""

    modes: Mapping[str, Callable[[Agent], Agent]]
    """What compiles it: a mode is a function on agents."""
    compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    """A pure function of arrays that is not the agent's, such as an environment's step, compiled."""
    units: Mapping[str, Callable[[Agent, int], Agent]]
    """How much one program covers: (agent, iterations per program) -> agent."""
    block: Callable[[Any], None]
    """Wait until the device has computed everything in the argument."""
    mark: Callable[[Any], Callable[[], None] | None]
    """A wait for the argument, which has just been asked for, and for nothing asked for later; None: it is there."""
    fetch: Callable[[Any], Any]
    """The argument as NumPy arrays, in one transfer."""
    compiles: Callable[[], int]
    """Programs compiled so far in this process; never decreases."""
