"""The contract: what an algorithm gives (Agent) and what a framework gives (Backend). Nothing else.

Laws, each of them a test:
- Linear state. After `s2, x = f(s1)` nobody touches `s1`: JAX may have donated its buffers, torch and
  NNX may have returned the same object, mutated.
- Floats are data, integers are structure. Float hyper-parameters are leaves of the state.
- A mode is a claim: the same numbers as `none`, and it really compiled.
- An implementation does not measure, log, print, parse, read files or move data to the host.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

State = Any
"""Everything that changes during training; opaque outside its implementation."""

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


@dataclass(frozen=True)
class Agent:
    """An algorithm in one framework, as plain functions."""

    init: Callable[[int, Weights | None], State]
    """(seed, weights=None) -> State; sections present in `weights` are transplanted."""
    rollout: Callable[[State], tuple[State, Any]]
    """State -> State, Batch; acts in the environment, learns nothing."""
    update: Callable[[State, Any], tuple[State, Metrics]]
    """State, Batch -> State, Metrics; learns, leaves the environment alone."""
    learn: Callable[[State, Any], tuple[State, Metrics]]
    """State, Minibatch -> State, Metrics; one gradient step, the surface on which parity is proven."""
    act: Callable[[State, Any], Any]
    """State, observation -> greedy action."""
    export: Callable[[State], Weights]
    """State -> Weights; copies, never views of live buffers."""
    iterate: Callable[[State], tuple[State, Metrics]] | None = None
    """State -> State, Metrics; rollout and update in one call. Set by a unit, absent in unit `phase`."""
    within: Callable[[Callable[[str, Callable[..., Any]], Callable[..., Any]]], "Agent"] | None = None
    """((role, function) -> function) -> the same agent with its inner functions so replaced. For a framework
    that compiles the pieces of a phase rather than the phase; absent in the JAX family."""


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
