"""Members on several devices: each device holds an even part of them and runs it by itself, in one program.

The member axis of every array is sharded over the devices; counters are on all of them. Members do not need one
another, so the program sends nothing between devices (`tests/test_population_devices.py` reads it). Devices of one kind
are the same to this code: several GPUs, or CPU devices that XLA is told to make.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from benchback.agent import Agent, Role, State
from benchback.backends.xla import once
from benchback.errors import InputError
from benchback.population.members import Step, for_each, population, role_of
from benchback.population.processes import gathered, on_host, put

AXIS = "members"
EACH, ALL = Spec(AXIS), Spec()
"""An even part of the members for each device, and the same on all of them."""


def mesh_of(devices: int) -> Mesh:
    """A mesh of the first so many devices; InputError if there are fewer."""
    return Mesh(np.array(devices_of(devices)), (AXIS,))


def devices_of(devices: int) -> list[Any]:
    """The first so many devices, of all processes; InputError if there are fewer."""
    known = jax.devices()
    if not 1 <= devices <= len(known):
        kind = known[0].platform
        remedy = f"XLA_FLAGS=--xla_force_host_platform_device_count={devices} makes so many of the CPU"
        raise InputError(f"--devices {devices}: there are {len(known)} ({kind}); choose 1 to {len(known)}, or {remedy}")
    return known[:devices]


def check_even(size: int, devices: int) -> None:
    """Raise an InputError unless so many members can be divided evenly."""
    if size % devices:
        nearest = max(devices, size - size % devices)
        raise InputError(
            f"--devices {devices} do not divide {size} members evenly; choose a divisor of {size}, or as many seeds "
            f"and points as make e.g. {nearest} members"
        )


def divided(agent: Agent, size: int, group: int, devices: int) -> Agent:
    """`population(agent, size, group)` with its members divided over the devices, in groups on each."""
    if devices == 1:
        return population(agent, size, group)
    mesh = mesh_of(devices)
    check_even(size, devices)
    part, whole = population(agent, size // devices, group), population(agent, size, 1)

    def everywhere(function: Step) -> Step:
        return spread(agent, function, mesh)

    return replace(
        whole,
        init=_starting(agent, part, size, mesh),
        load=lambda state, weights: place(agent, whole.load(gathered(state), weights), mesh),
        export=lambda state: whole.export(gathered(state)),
        rollout=everywhere(part.rollout),
        update=everywhere(part.update),
        learn=everywhere(part.learn),
        iterate=None if part.iterate is None else everywhere(part.iterate),
    )


def spread(agent: Agent, function: Step, mesh: Mesh, given: Spec = EACH) -> Step:
    """The function of a device's members as one of all members; its further arguments are `given` to devices so."""

    def run(state: State, *arguments: Any) -> tuple[State, Any]:
        specs = _specs(agent, state)
        program = jax.shard_map(
            function, mesh=mesh, in_specs=(specs, *[given] * len(arguments)), out_specs=(specs, EACH), check_vma=False
        )
        return program(state, *arguments)

    return run


def place(agent: Agent, state: State, mesh: Mesh) -> State:
    """The state with each device's members on it."""
    return put(state, jax.tree.map(partial(NamedSharding, mesh), _specs(agent, state)))


def _specs(agent: Agent, state: State) -> Any:
    return jax.tree_util.tree_map_with_path(
        lambda path, _: ALL if role_of(agent, path) is Role.COUNTER else EACH, state
    )


def _starting(agent: Agent, part: Agent, size: int, mesh: Mesh) -> Callable[[Any, Any], State]:
    """`init` of all members, each on its device."""

    def init(keys: Any, hyper: Any) -> State:
        hyper = jax.tree.map(lambda x: for_each(x, size), hyper)
        few = jax.tree.map(lambda x: x[: size // mesh.size], (keys, hyper))
        specs = _specs(agent, jax.eval_shape(part.init, *few))

        def start_part(data: Any, hyper: Any) -> State:
            return part.init(jax.random.wrap_key_data(data), hyper)

        start = jax.shard_map(start_part, mesh=mesh, in_specs=EACH, out_specs=specs, check_vma=False)
        return once(start)(*on_host((jax.random.key_data(keys), hyper)))

    return init
