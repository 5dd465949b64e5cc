"""Members of PyTorch: groups one after another, in each of them members side by side, or a single one.

All are in the same iteration after every call, so that folders, checkpoints and resuming are those of a population.
Nothing is compiled more than once: a member is a state of the same agent, with its own seed and floats.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchback import envs, registry, training
from benchback.agent import Agent, Backend, State, Weights
from benchback.errors import InputError
from benchback.population.spec import Members
from benchback.population.stacked import member, population, stack
from benchback.population.summary import summarise
from benchback.population.training import Progress, rows_first
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run, environment

MODES = ("none", "env_jit", "compile")
"""Modes that several members can be in together."""
MOST_ROWS, MOST_ROWS_COMPILED = 1024, 128
"""Rows of a gradient step up to which members side by side were measured to be faster."""
FEWEST, FEWEST_SHORT = 4, 8
"""Members from which on they were; with short iterations."""
COMPILED = 16
"""Members side by side in compiled programs, at least and at most."""
SHORT = 64
"""Steps of each environment below which an iteration is short."""
LARGEST = 64
"""Members side by side otherwise, at most."""


@dataclass
class Group:
    """Members that are run together."""

    program: Agent
    """Of one agent, or of several if there are several members."""
    state: Any
    size: int


def likely_group(run: Run, size: int) -> tuple[int, str]:
    """How many of `size` members should run side by side, and why."""
    if reason := _hindrance(run) or _slower(run, size):
        return 1, f"one after another, because {reason}"
    group = min(size, COMPILED if run.compile_mode == "compile" else LARGEST)
    return group, f"{group} side by side, which is faster with gradient steps of {_rows(run)} rows"


def _slower(run: Run, size: int) -> str | None:
    """Why members side by side would not be faster, or were not measured to be; None if they are."""
    if run.network != "mlp" or not run.env.startswith("torch/"):
        return (
            f"network={run.network} in {run.env} was not measured side by side; --group {min(size, COMPILED)} tries it"
        )
    compiled, rows = run.compile_mode == "compile", _rows(run)
    if rows > (MOST_ROWS_COMPILED if compiled else MOST_ROWS):
        return f"gradient steps of {rows} rows keep the processor busy by themselves"
    short = run.config.batch_size < SHORT * run.config.num_envs
    fewest = FEWEST_SHORT if short else COMPILED if compiled else FEWEST
    if size < fewest:
        return f"side by side is faster from {fewest} members on"
    if compiled and short:
        return "compiled programs of short iterations are not faster together; eager ones are, by --mode none"
    return None


def _rows(run: Run) -> int:
    return run.config.gradient_rows // run.config.updates_per_iteration


def check_group(run: Run, group: int) -> None:
    """Raise an InputError if so many members of the run cannot run side by side."""
    if group > 1 and (reason := _hindrance(run)):
        raise InputError(f"--group {group}: members cannot run side by side, because {reason}; use --group 1")


def _hindrance(run: Run) -> str | None:
    """Why members cannot run side by side; None if they can."""
    if run.compile_mode not in MODES:
        return f"mode={run.compile_mode} makes programs of one agent"
    if envs.about(run.env).where != "torch":
        return f"env={run.env} is not of torch tensors"
    return None


def train_in_turn(
    run: Run, members: Members, group: int = 1, checkpoint: Checkpoint | None = None
) -> Iterator[Progress]:
    """Train all members from the start, or from their stacked `checkpoint`, to the last iteration."""
    check_group(run, group)
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    agent = backend.units[run.unit](make(run.config, environment(run, run.config.num_envs)), run.length)
    states = [_start(agent, members, i) for i in range(len(members))]
    if checkpoint:
        stacked = training.transplantable(run, checkpoint)
        each = [{name: np.asarray(x[i]) for name, x in stacked.items()} for i in range(len(members))]
        states = [agent.load(state, weights) for state, weights in zip(states, each, strict=True)]
    parts = [states[i : i + group] for i in range(0, len(members), group)]
    mode, sizes = backend.modes[run.compile_mode], {len(part) for part in parts}
    programs = {size: mode(agent if size == 1 else population(agent, size)) for size in sizes}
    groups = [
        Group(programs[len(part)], part[0] if len(part) == 1 else stack(agent, part), len(part)) for part in parts
    ]
    return _loop(run, agent, backend, groups, checkpoint.iteration if checkpoint else 0)


def _start(agent: Agent, members: Members, index: int) -> State:
    return agent.init(agent.key(members.seed[index]), agent.hyper._replace(**members.point(index)))


def _loop(run: Run, agent: Agent, backend: Backend, groups: list[Group], iteration: int) -> Iterator[Progress]:
    size = sum(group.size for group in groups)
    while iteration < run.config.num_iterations:
        compiles, found = backend.compiles(), []
        for group in groups:
            group.state, metrics = training.advance(group.program, group.state)
            found.append({name: x.reshape(group.size, -1) for name, x in backend.fetch(metrics).items()})
        iteration += run.length
        fetched = rows_first({name: np.concatenate([each[name] for each in found]) for name in found[0]}, size)
        yield Progress(
            iteration=iteration,
            rows=summarise(fetched),
            compiles=backend.compiles() - compiles,
            export=lambda: _stacked([_export(agent, groups, i) for i in range(size)]),
            metrics=fetched,
            export_member=lambda index: _export(agent, groups, index),
        )


def _export(agent: Agent, groups: list[Group], index: int) -> Weights:
    group, place = groups[index // groups[0].size], index % groups[0].size
    return agent.export(group.state if group.size == 1 else member(agent, group.state, place))


def _stacked(each: list[Weights]) -> Weights:
    return {name: np.stack([weights[name] for weights in each]) for name in each[0]}
