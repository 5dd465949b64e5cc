"""Members one after another, for a framework in which several agents are not one program.

All are in the same iteration after every call, so that folders, checkpoints and resuming are those of a population.
The programs are compiled once: a member is a state of the same agent, with its own seed and floats.
"""

from collections.abc import Iterator

import numpy as np

from benchback import training
from benchback.agent import Agent, Backend, State, Weights
from benchback.population.spec import Members
from benchback.population.summary import summarise
from benchback.population.training import Progress, rows_first
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run, build


def train_in_turn(run: Run, members: Members, checkpoint: Checkpoint | None = None) -> Iterator[Progress]:
    """Train all members from the start, or from their stacked `checkpoint`, to the last iteration."""
    agent, backend = build(run)
    states = [_start(agent, members, i) for i in range(len(members))]
    if checkpoint:
        stacked = training.transplantable(run, checkpoint)
        each = [{name: np.asarray(x[i]) for name, x in stacked.items()} for i in range(len(members))]
        states = [agent.load(state, weights) for state, weights in zip(states, each, strict=True)]
    return _loop(run, agent, backend, states, checkpoint.iteration if checkpoint else 0)


def _start(agent: Agent, members: Members, index: int) -> State:
    return agent.init(agent.key(members.seed[index]), agent.hyper._replace(**members.point(index)))


def _loop(run: Run, agent: Agent, backend: Backend, states: list[State], iteration: int) -> Iterator[Progress]:
    while iteration < run.config.num_iterations:
        compiles, found = backend.compiles(), []
        for i, state in enumerate(states):
            states[i], metrics = training.advance(agent, state)
            found.append(backend.fetch(metrics))
        iteration += run.length
        fetched = rows_first({name: np.stack([one[name] for one in found]) for name in found[0]}, len(states))
        yield Progress(
            iteration=iteration,
            rows=summarise(fetched),
            compiles=backend.compiles() - compiles,
            export=lambda: _stacked([agent.export(state) for state in states]),
            metrics=fetched,
            export_member=lambda index: agent.export(states[index]),
        )


def _stacked(each: list[Weights]) -> Weights:
    return {name: np.stack([weights[name] for weights in each]) for name in each[0]}
