"""The training loop, one for all backends.

The loop is a generator: it yields after every call of a compiled program; the caller prints, stores or
times. Importing this module imports neither jax nor torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchback import envs
from benchback.agent import Agent, Backend, Weights, network_of, start
from benchback.errors import InputError
from benchback.training.checkpoint import Checkpoint, CheckpointError
from benchback.training.run import Run, build


@dataclass(frozen=True)
class Progress:
    """Progress of training after one program call."""

    iteration: int
    """Completed iterations."""
    rows: list[dict[str, float]]
    """Metrics of each iteration in this call, oldest first."""
    compiles: int
    """Programs compiled during this call."""
    export: Callable[[], Weights]
    """Returns a copy of the state; valid only until the next iteration starts."""


def train(
    run: Run, checkpoint: Checkpoint | None = None, build: Callable[[Run], tuple[Agent, Backend]] = build
) -> Iterator[Progress]:
    """Train from the start, or from `checkpoint`, to the last iteration.

    Invalid runs are rejected by this call; training happens as the iterator is consumed. `build` makes the run's agent.
    """
    iteration = checkpoint.iteration if checkpoint else 0
    check_rest(run, iteration)
    agent, backend = build(run)
    state = start(agent, run.seed, transplantable(run, checkpoint) if checkpoint else None)
    return _loop(run, agent, backend, state, iteration)


def check_rest(run: Run, iteration: int) -> None:
    """Raise an InputError unless the run's programs lead from `iteration` to its last one."""
    remaining = run.config.num_iterations - iteration
    if remaining < 0 or remaining % run.length:
        raise InputError(
            f"{iteration} of {run.config.num_iterations} iterations are done, and programs of {run.length} do not "
            "lead to the end; choose another --num-iterations, --chunk or --unit"
        )


def _loop(run: Run, agent: Agent, backend: Backend, state: Any, iteration: int) -> Iterator[Progress]:
    while iteration < run.config.num_iterations:
        compiles = backend.compiles()
        state, metrics = advance(agent, state)
        iteration += run.length
        rows = _rows(backend.fetch(metrics), run.length)
        # Bind the current state: the next call may donate it.
        yield Progress(iteration, rows, backend.compiles() - compiles, lambda state=state: agent.export(state))


def advance(agent: Agent, state: Any) -> tuple[Any, Any]:
    """One program call: a rollout and an update, an iteration, or a chunk of iterations."""
    if agent.iterate is not None:
        return agent.iterate(state)
    state, batch = agent.rollout(state)
    return agent.update(state, batch)


def transplantable(run: Run, checkpoint: Checkpoint) -> Weights:
    """Weights of the checkpoint that this run can load: all, or from another framework family network and optimiser."""
    theirs = Run.from_dict(checkpoint.run)
    if theirs.network != run.network:
        raise CheckpointError(f"the checkpoint is of network={theirs.network}; go on with --network {theirs.network}")
    if theirs.config.hidden != run.config.hidden or envs.split(theirs.env).task != envs.split(run.env).task:
        raise CheckpointError(
            f"the checkpoint is of {theirs.env} with layers {theirs.config.hidden}, the run of {run.env} with "
            f"{run.config.hidden}; train with the same env and hidden sizes"
        )
    for switch in ("normalise_obs", "normalise_reward"):
        if (was := getattr(theirs.config, switch, False)) != getattr(run.config, switch, False):
            flag = ("--" if was else "--no-") + switch.replace("_", "-")
            raise CheckpointError(f"the checkpoint's networks learnt with {switch}={was}; go on with {flag}")
    if (theirs.framework, theirs.env, theirs.config.num_envs) == (
        run.framework,
        run.env,
        run.config.num_envs,
    ):
        return checkpoint.weights
    return network_of(checkpoint.weights)


def _rows(metrics: dict[str, np.ndarray], length: int) -> list[dict[str, float]]:
    columns = {name: np.broadcast_to(x, (length,)) for name, x in sorted(metrics.items())}
    return [{name: float(column[i]) for name, column in columns.items()} for i in range(length)]
