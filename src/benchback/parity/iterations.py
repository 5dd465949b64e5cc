"""Whole iterations of an executed agent, and what the oracle needs to follow them."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from benchback.agent import Agent, Weights, start
from benchback.parity.subject import Subject


class Iteration(NamedTuple):
    """One iteration: its rollout, the states around it, and what it reports."""

    before: Weights
    """The exported state before the rollout."""
    batch: Any
    between: Weights
    """The exported state after the rollout and before the update."""
    metrics: dict[str, Any]
    after: Weights | None
    """The exported state after the update; None within a chunk, which hides it."""


@dataclass(frozen=True)
class Course:
    """Iterations to run: an agent of this configuration from these weights."""

    config: Any
    kind: Literal["discrete", "box"]
    seed: int
    weights: Weights
    number: int


def iterations(subject: Subject, course: Course) -> list[Iteration]:
    """The iterations of the program that is timed: both phases, or `iterate` where a program covers more.

    A program that covers more hides its rollouts: they are taken from the phases of the same agent, run beside it from
    the same state. Its metrics and its last weights must then be those that follow from these rollouts.
    """
    agent = subject.agent(course.config, course.kind)
    seen = _phases(subject, agent, course)
    return seen if agent.iterate is None else _programs(subject, agent, course, seen)


def _phases(subject: Subject, agent: Agent, course: Course) -> list[Iteration]:
    state, found = start(agent, course.seed, course.weights), []
    for _ in range(course.number):
        before = agent.export(state)
        state, batch = agent.rollout(state)
        # Copied before the update may donate it.
        fetched, between = subject.fetch(batch), agent.export(state)
        state, metrics = agent.update(state, batch)
        found.append(Iteration(before, fetched, between, subject.fetch(metrics), agent.export(state)))
    return found


def _programs(subject: Subject, agent: Agent, course: Course, seen: list[Iteration]) -> list[Iteration]:
    """The iterations `seen` with the metrics and weights of the program in their place."""
    assert agent.iterate is not None
    state, found = start(agent, course.seed, course.weights), []
    while len(found) < course.number:
        state, metrics = agent.iterate(state)
        # One value per iteration where a program covers several.
        columns = {name: np.atleast_1d(x) for name, x in subject.fetch(metrics).items()}
        covered = len(next(iter(columns.values())))
        for i in range(covered):
            own = {name: x[i] for name, x in columns.items()}
            found.append(seen[len(found)]._replace(metrics=own, after=None))
        found[-1] = found[-1]._replace(after=agent.export(state))
    return found
