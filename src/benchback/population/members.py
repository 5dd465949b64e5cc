"""A population is a function on agents, like modes and units: `mode(population(unit(agent)))`.

The State of a population is that of its agent with a member axis in front of every array, except counters: they are the
same for all members and stay scalar, so that a `cond` on them stays a `cond`. Members run in groups, one group after
the other, side by side within a group: all of a large population at once would not stay in the processor's caches.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from benchback.agent import Agent, Backend, Role, State, Weights
from benchback.backends.xla import once
from benchback.errors import InputError

Step = Callable[..., tuple[State, Any]]
"""State, arguments -> State, result."""


def execute(agent: Agent, backend: Backend, mode: str, unit: str, length: int, *, size: int, group: int) -> Agent:
    """`size` members of the agent, with unit and compile mode applied; a chunk has `length` iterations."""
    # The unit comes first: in unit chunk, a group runs its whole chunk while it is in the caches.
    single = view(backend.units[unit](agent, length), backend)
    return compile_mode(backend, mode)(population(single, size, group))


def compile_mode(backend: Backend, mode: str) -> Callable[[Agent], Agent]:
    """The compile mode of that name, for populations; InputError if it does not fit them."""
    if mode not in backend.functional_modes:
        known = " or ".join([*backend.functional_modes][::-1])
        raise InputError(f"mode={mode} does not fit a population: members are functions of arrays; use --mode {known}")
    return backend.functional_modes[mode]


def view(agent: Agent, backend: Backend) -> Agent:
    """The agent as pure functions of arrays, for states taken out by `member`; InputError if there is no such view."""
    if backend.functional is None:
        raise InputError("several members in one program need a backend of the JAX family; train one seed at a time")
    return backend.functional(agent)


def population(agent: Agent, size: int, group: int) -> Agent:
    """`size` members of the agent, `group` of them side by side; all but counters has a member axis in front.

    Member i started from seed s is the agent started from seed s + i. Each float of `hyper` is one number for all, or
    one for each member.
    """
    if size < 1:
        raise InputError(f"a population of {size} has no members; choose at least 1")
    if not 1 <= group <= size:
        raise InputError(f"group={group} does not fit {size} members; choose 1 to {size}")

    def everywhere(function: Step) -> Step:
        return _for_members(agent, function, size, group)

    return replace(
        agent,
        init=_starting(agent, size),
        load=partial(_load, agent),
        rollout=everywhere(agent.rollout),
        update=everywhere(agent.update),
        learn=everywhere(agent.learn),
        act=_acting(agent, everywhere),
        iterate=None if agent.iterate is None else everywhere(agent.iterate),
        export=partial(_export, agent, size),
        key=partial(_keys, agent, size),
        initial_memory=partial(_initial_memory, agent, size),
    )


def member(agent: Agent, state: State, index: int) -> State:
    """The state of one member, as the state of the single agent."""
    counters, members = partition(agent, state)
    return combine(counters, jax.tree.map(lambda x: x[index], members))


def replace_member(agent: Agent, state: State, index: int, one: State) -> State:
    """The population with another state in place of a member; its counters stay those of the population."""
    counters, members = partition(agent, state)
    _, new = partition(agent, one)
    return combine(counters, jax.tree.map(lambda x, y: x.at[index].set(y), members, new))


def with_networks(agent: Agent, state: State, one: State) -> State:
    """The population with the online and target networks of a single state in every member; all else stays."""
    counters, members = partition(agent, state)
    _, new = partition(agent, one)

    def put(path: tuple[Any, ...], old: Array, x: Array) -> Array:
        shared = role_of(agent, path) in (Role.NETWORK, Role.TARGET)
        return jnp.broadcast_to(x, old.shape) if shared else old

    return combine(counters, jax.tree_util.tree_map_with_path(put, members, new))


def partition(agent: Agent, state: State) -> tuple[State, State]:
    """Counters and everything else, each with None in place of the other."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    counts = [role_of(agent, path) is Role.COUNTER for path, _ in leaves]
    counters = [x if shared else None for (_, x), shared in zip(leaves, counts, strict=True)]
    members = [None if shared else x for (_, x), shared in zip(leaves, counts, strict=True)]
    return structure.unflatten(counters), structure.unflatten(members)


def combine(counters: State, members: State) -> State:
    """The inverse of `partition`."""
    return jax.tree.map(lambda a, b: b if a is None else a, counters, members, is_leaf=lambda x: x is None)


def role_of(agent: Agent, path: tuple[Any, ...]) -> Role:
    """The role of a leaf: that of the outermost name in its path which is a field of the State."""
    names = (str(getattr(key, "name", getattr(key, "key", key))) for key in path)
    return next(agent.roles[name] for name in names if name in agent.roles)


def for_group(agent: Agent, function: Step) -> Callable[[State, State, Any], tuple[State, State, Any]]:
    """`function` for members side by side: (counters, members, arguments) -> counters, members, results."""

    def one_group(counters: State, members: State, arguments: Any) -> tuple[State, State, Any]:
        def one(member: State, arguments: Any) -> tuple[State, State, Any]:
            state, result = function(combine(counters, member), *arguments)
            return *partition(agent, state), result

        return _side_by_side(one, len(jax.tree.leaves(members)[0]))(members, arguments)

    return one_group


def _for_members(agent: Agent, function: Step, size: int, group: int) -> Step:
    """`function` for all members; its arguments and its result have a member axis."""

    one_group = for_group(agent, function)

    # The members are carried, not mapped over: XLA then writes each group in its place.
    def next_group(carry: tuple[State, State, State], given: Any) -> tuple[tuple[State, State, State], Any]:
        before, _, members = carry
        place, arguments = given
        chosen = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, place, group), members)
        after, chosen, result = one_group(before, chosen, arguments)
        put = jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, place, 0), members, chosen)
        return (before, after, put), result

    def run(state: State, *arguments: Any) -> tuple[State, Any]:
        counters, members = partition(agent, state)
        if group == size:
            counters, members, result = one_group(counters, members, arguments)
            return combine(counters, members), result
        places = jnp.arange(0, size - size % group, group)
        whole = jax.tree.map(lambda x: x[: size - size % group].reshape(-1, group, *x.shape[1:]), arguments)
        (_, after, members), result = jax.lax.scan(next_group, (counters, counters, members), (places, whole))
        result = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), result)
        if rest := size % group:
            last = jax.tree.map(lambda x: x[-rest:], (members, arguments))
            after, last, more = one_group(counters, *last)
            members = jax.tree.map(lambda x, y: x.at[-rest:].set(y), members, last)
            result = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), result, more)
        return combine(after, members), result

    return run


def _side_by_side(one: Callable[..., tuple[State, State, Any]], width: int) -> Callable[..., tuple[State, State, Any]]:
    """`one` for a group of members. A single member needs no vmap, which would turn its conds into selects."""
    if width > 1:
        return jax.vmap(one, out_axes=(None, 0, 0))

    def alone(*given: Any) -> tuple[State, State, Any]:
        counters, *rest = one(*jax.tree.map(lambda x: x[0], given))
        return counters, *jax.tree.map(lambda x: x[None], rest)

    return alone


def _acting(agent: Agent, everywhere: Callable[[Step], Step]) -> Callable[[State, Any, Any], tuple[Any, Any]]:
    """`act` for all members, each with its own memory and observations."""

    def act_and_keep(state: State, memory: Any, obs: Any) -> tuple[State, tuple[Any, Any]]:
        return state, agent.act(state, memory, obs)

    run = everywhere(act_and_keep)
    return lambda state, memory, obs: run(state, memory, obs)[1]


def _initial_memory(agent: Agent, size: int, num_envs: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), agent.initial_memory(num_envs))


def _keys(agent: Agent, size: int, seed: int) -> Key[Array, "N"]:
    if seed + size > 2**32:
        raise InputError(f"the seeds of {size} members from {seed} on exceed {2**32 - 1}; choose a smaller seed")
    return jax.vmap(cast(Any, agent.key))(np.arange(seed, seed + size, dtype=np.uint32))


def _starting(agent: Agent, size: int) -> Callable[[Key[Array, "N"], Any], State]:
    """`init` for all members, as one program."""

    def start_one(_: None, given: tuple[Key[Array, ""], Any]) -> tuple[None, State]:
        return None, agent.init(*given)

    # One after another: the wide batched QR of a vmapped orthogonal initialisation can stop XLA's CPU threads for ever.
    @once
    def start_all(keys: Key[Array, "N"], hyper: Any) -> State:
        counters, members = partition(agent, jax.lax.scan(start_one, None, (keys, hyper))[1])
        return combine(jax.tree.map(lambda x: x[0], counters), members)

    def init(keys: Key[Array, "N"], hyper: Any) -> State:
        return start_all(keys, jax.tree.map(lambda x, one: for_each(x, size, np.shape(one)), hyper, agent.hyper))

    return init


def for_each(x: Any, size: int, shape: tuple[int, ...] = ()) -> Float[Array, "N *S"]:
    """One hyper-parameter for each member: a number, or an array of the given shape."""
    if jnp.shape(x) not in (shape, (size, *shape)):
        raise InputError(
            f"a hyper-parameter of shape {jnp.shape(x)} does not fit {size} members; give one number or {size}"
        )
    return jnp.broadcast_to(jnp.asarray(x, float), (size, *shape))


def _export(agent: Agent, size: int, state: State) -> Weights:
    """The weights of all members, stacked; counters too."""
    state = jax.device_get(state)
    stacked: Weights = {}
    # Filled one by one: a list of all members would be another copy of them.
    for i in range(size):
        for name, x in agent.export(member(agent, state, i)).items():
            if not i:
                stacked[name] = np.empty((size, *x.shape), x.dtype)
            stacked[name][i] = x
    return stacked


def _load(agent: Agent, state: State, weights: Weights) -> State:
    """The state with every section restored in every member; the counters are those of the first."""
    size = len(next(iter(weights.values())))
    each = [
        agent.load(member(agent, state, i), {name: np.asarray(x[i]) for name, x in weights.items()})
        for i in range(size)
    ]
    counters, _ = partition(agent, each[0])
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *(partition(agent, one)[1] for one in each))
    return combine(counters, stacked)
