"""The laws of an Agent (see `agent.py`) and whether its mode compiles: what every backend keeps, a plug-in's too.

Each is a function of an executed agent and its backend that returns whether the law is kept.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from benchback.agent import Agent, Backend, Weights, networks, start
from benchback.errors import InputError
from benchback.parity.deviation import Deviation
from benchback.parity.small import small_config
from benchback.parity.subject import Subject
from benchback.training import advance

NOT_COMPILING = ("eager", "none", "env_jit")
"""Modes in which a framework compiles nothing by itself, or only an environment."""


def trained(agent: Agent, seed: int, iterations: int = 2) -> Weights:
    """The exported state after a few iterations."""
    state = start(agent, seed)
    for _ in range(iterations):
        state, _ = advance(agent, state)
    return agent.export(state)


def different(a: Weights, b: Weights) -> list[str]:
    """Names of the arrays that differ; of two states of one agent."""
    assert a.keys() == b.keys()
    return [name for name in a if not np.array_equal(a[name], b[name])]


def of_episodes(name: str) -> bool:
    """Whether an array is what a rollout changes, besides the random stream."""
    return name.startswith("env/") or name == "memory"


def learnt(changed: list[str], weights: Weights) -> bool:
    """Whether weights of a network are among what changed."""
    return bool(networks(weights).keys() & set(changed))


def seeds_decide(agent: Agent, backend: Backend) -> bool:
    """Equal seeds reproduce bit for bit; other seeds give other kernels, episodes and random streams."""
    first = trained(agent, seed=1)
    kernels = {name for name, x in networks(first).items() if name.endswith("/kernel")}
    streams = {"env/obs", "rng"} & first.keys()
    return not different(first, trained(agent, seed=1)) and kernels | streams <= set(
        different(first, trained(agent, 2))
    )


def exports_are_copies(agent: Agent, backend: Backend) -> bool:
    """Exported weights stay as they were while training goes on."""
    state = start(agent, 1)
    exported = agent.export(state)
    before = {name: x.copy() for name, x in exported.items()}
    for _ in range(2):
        state, _ = advance(agent, state)
    return not different(before, exported) and learnt(different(exported, agent.export(state)), exported)


def loads_what_it_exports(agent: Agent, backend: Backend) -> bool:
    """A state with transplanted weights exports these weights."""
    weights = trained(agent, seed=1)
    return not different(weights, agent.export(start(agent, 5, weights)))


def phases_keep_apart(agent: Agent, backend: Backend) -> bool:
    """A rollout changes only the environment, the memory and the random stream; updates learn and leave these alone."""
    state, learns = start(agent, 1), False
    for _ in range(2):
        before = agent.export(state)
        state, batch = agent.rollout(state)
        between = agent.export(state)
        state, _ = agent.update(state, batch)
        updated = different(between, agent.export(state))
        if not all(name == "rng" or of_episodes(name) for name in different(before, between)):
            return False
        if any(map(of_episodes, updated)):
            return False
        learns |= learnt(updated, between)
    return learns


def floats_are_data(agent: Agent, backend: Backend) -> bool:
    """With other float hyper-parameters it learns otherwise, and nothing is compiled for them."""
    usual = trained(agent, seed=1)
    state = agent.init(agent.key(1), type(agent.hyper)(*(x / 2 if np.size(x) else x for x in agent.hyper)))
    before = backend.compiles()
    for _ in range(2):
        state, _ = advance(agent, state)
    return backend.compiles() == before and learnt(different(usual, agent.export(state)), usual)


def metrics_are_scalars(agent: Agent, backend: Backend) -> bool:
    """Every metric of an iteration is one number, and returns of episodes are among them."""
    _, metrics = advance(agent, start(agent, 1))
    fetched = backend.fetch(metrics)
    return all(np.shape(x) == () for x in fetched.values()) and "episode_return" in fetched


LAWS: Mapping[str, Callable[[Agent, Backend], bool]] = {
    law.__name__: law
    for law in (
        seeds_decide,
        exports_are_copies,
        loads_what_it_exports,
        phases_keep_apart,
        floats_are_data,
        metrics_are_scalars,
    )
}


def compile_counts(agent: Agent, backend: Backend, iterations: int = 3) -> list[int]:
    """Programs compiled in each of the first iterations."""
    state, counts = start(agent, 1), []
    for _ in range(iterations):
        before = backend.compiles()
        state, metrics = advance(agent, state)
        backend.block(metrics)
        counts.append(backend.compiles() - before)
    return counts


def compiles_once(agent: Agent, backend: Backend) -> bool:
    """The first iteration compiles, the third does not: the mode is engaged and stays so."""
    counts = compile_counts(agent, backend)
    return counts[0] > 0 and counts[2] == 0


def laws(subject: Subject) -> Iterator[Deviation]:
    """Every law, 0 if it is kept and 1 if not, in the mode of the subject."""
    agent = subject.agent(*small_config(subject))
    for name, law in LAWS.items():
        yield f"law/{name}", float(not law(agent, subject.framework))


def engagement(subject: Subject) -> Iterator[Deviation]:
    """Every mode that compiles, 0 if it compiles at first and then no more, else 1."""
    for mode in (mode for mode in subject.spec.modes if mode not in NOT_COMPILING):
        try:
            # A new agent for each mode: what others compiled of it would not be compiled again.
            plain = replace(subject, agents={}).plain(*small_config(subject))
            agent = subject.execute(plain, mode, "phase", 1)
        except InputError:  # a mode that this machine does not support raises
            continue
        yield f"compiles/{mode}", float(not compiles_once(agent, subject.framework))
