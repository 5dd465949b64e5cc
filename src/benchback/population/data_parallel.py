"""One agent on several devices: its environments are divided over them, and so are the rows of every gradient step.

The program is the one of a single device, with a sharding for each array: `env` and what belongs to it by environment,
everything else on all devices. XLA divides the work accordingly and inserts what has to be sent; the random numbers do
not depend on the division. Rollouts stay on their devices. An update first collects the rollout on all of them, then
each device computes the gradient of its part of a minibatch, and these are averaged.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from benchback import training
from benchback.agent import Agent, Backend, Role, State
from benchback.backends import xla
from benchback.errors import InputError
from benchback.math.jax.sharding import ENVS
from benchback.population.devices import devices_of
from benchback.population.members import Step, compile_mode, role_of, view
from benchback.population.processes import gathered, on_host, put
from benchback.population.training import plain
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run


def train(run: Run, checkpoint: Checkpoint | None = None, *, devices: int) -> Iterator[training.Progress]:
    """`training.train` of an agent whose environments are divided over so many devices."""
    return training.train(run, checkpoint, partial(built, devices=devices))


def built(run: Run, devices: int) -> tuple[Agent, Backend]:
    """The run's agent on so many devices, with unit and compile mode applied; InputError if it cannot be divided."""
    agent, backend = plain(run)
    check(run, agent, devices)
    mesh = Mesh(np.array(devices_of(devices)), (ENVS,))
    many = divided(view(agent, backend), mesh, run.config.num_envs)
    return compile_mode(backend, run.compile_mode)(xla.UNITS[run.unit](many, run.length)), backend


def rows_of(run: Run) -> int:
    """Rows of a gradient step."""
    return run.config.gradient_rows // run.config.updates_per_iteration


def check(run: Run, agent: Agent, devices: int) -> None:
    """Raise an InputError unless the run's environments, and the rows of its gradient steps, can be divided evenly."""
    if "replay" in agent.roles or Role.MEMORY in agent.roles.values():
        what = f"algorithm={run.algorithm}" if "replay" in agent.roles else f"network={run.network}"
        raise InputError(f"{what}: gradient steps of one agent are not divided over devices; divide many, --seeds N")
    if run.compile_mode == "none":
        raise InputError(f"mode=none: --devices {devices} are for compiled programs; leave out --mode")
    sizes = {"num_envs": run.config.num_envs, "rows of a minibatch": rows_of(run)}
    for name, size in sizes.items():
        if size % devices:
            raise InputError(
                f"--devices {devices} do not divide {name}={size} evenly; choose a divisor, or e.g. "
                f"{max(devices, size - size % devices)} of them"
            )


def divided(agent: Agent, mesh: Mesh, num_envs: int) -> Agent:
    """The agent, as pure functions of arrays, with its environments divided over the devices of the mesh."""
    everywhere = NamedSharding(mesh, Spec())

    def shardings(state: State) -> Any:
        def of(path: tuple[Any, ...], x: Any) -> NamedSharding:
            each = role_of(agent, path) is Role.ENVIRONMENT and x.shape[:1] == (num_envs,)
            return NamedSharding(mesh, Spec(ENVS)) if each else everywhere

        return jax.tree_util.tree_map_with_path(of, state)

    def stay(state: State) -> State:
        return jax.lax.with_sharding_constraint(state, shardings(state))

    def init(key: Any, hyper: Any) -> State:
        like = shardings(jax.eval_shape(agent.init, key, hyper))
        start = jax.jit(lambda data, hyper: agent.init(jax.random.wrap_key_data(data), hyper), out_shardings=like)
        with xla.optimising(False):
            return start(*on_host((jax.random.key_data(key), hyper)))

    def load(state: State, weights: Any) -> State:
        return put(agent.load(gathered(state), weights), shardings(state))

    def rollout(state: State) -> tuple[State, Any]:
        state, batch = agent.rollout(state)
        return stay(state), batch

    def update(state: State, batch: Any) -> tuple[State, Any]:
        return learning(agent.update)(state, jax.lax.with_sharding_constraint(batch, everywhere))

    def learning(function: Step) -> Step:
        def run(state: State, data: Any) -> tuple[State, Any]:
            # Where there is such a mesh, `split_rows` divides the rows of a gradient step.
            with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
                state, metrics = function(state, data)
            return stay(state), jax.lax.with_sharding_constraint(metrics, everywhere)

        return run

    return replace(
        agent,
        init=init,
        load=load,
        rollout=rollout,
        update=update,
        learn=learning(agent.learn),
        export=lambda state: agent.export(gathered(state)),
    )
