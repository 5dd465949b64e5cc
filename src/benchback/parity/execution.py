"""L4, the same for every algorithm: modes and units do not change what an agent computes."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from benchback.agent import Agent, Weights, start
from benchback.errors import InputError
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation
from benchback.parity.subject import Subject, computing
from benchback.registry import Spec
from benchback.train import advance

SEED = 11
NUM_ITERATIONS = 3


class Outcome(NamedTuple):
    """Result of a short training."""

    action: np.ndarray
    metrics: dict[str, np.ndarray]
    weights: Weights


def executions(
    subject: Subject,
    config: Any,
    kind: Literal["discrete", "box"] = "discrete",
    chosen: Sequence[tuple[str, str]] | None = None,
) -> Iterator[Deviation]:
    """Deviations of every execution of the plan, or the selected ones, from mode `none` in unit `phase`."""
    agent = subject.plain(config, kind)
    reference = _trained(subject, agent)
    for mode, unit in plan(subject.spec) if chosen is None else chosen:
        try:
            executed = subject.execute(agent, mode, unit, NUM_ITERATIONS)
        except InputError:  # a mode that this machine does not support raises
            continue
        # One execution of a full plan is compiled with the optimisations used in timed runs.
        optimised = chosen is None and subject.dtype == "float32" and (mode, unit) == best(subject.spec)
        with computing(subject.dtype, optimised=optimised):
            outcome = _trained(subject, executed)
        yield f"greedy/{mode}/{unit}", deviation.unlike(outcome.action, reference.action)
        for quantity, off in deviation.worst(_compared(outcome, reference)):
            yield f"{quantity}/{mode}/{unit}", off


def plan(spec: Spec) -> list[tuple[str, str]]:
    """Executions to compare with the reference, as (mode, unit): every mode, every unit, and the best of both."""
    modes = [(mode, "phase") for mode in spec.modes if mode != "none"]
    units = [("none", unit) for unit in spec.units[1:-1]]
    return [*modes, *units, best(spec)]


def best(spec: Spec) -> tuple[str, str]:
    """The best mode in the widest unit."""
    return spec.best, spec.units[-1]


def _compared(outcome: Outcome, reference: Outcome) -> Iterator[Deviation]:
    for quantity, off in deviation.of_metrics(outcome.metrics, reference.metrics):
        yield quantity.partition("/")[0], off
    yield from deviation.of_weights(outcome.weights, deviation.trained(reference.weights))


def _trained(subject: Subject, agent: Agent) -> Outcome:
    state = start(agent, SEED)
    history = []
    while sum(len(metrics["episodes"]) for metrics in history) < NUM_ITERATIONS:
        state, metrics = advance(agent, state)
        history.append({name: np.atleast_1d(x) for name, x in subject.fetch(metrics).items()})
    metrics = {name: np.concatenate([entry[name] for entry in history]) for name in history[0]}
    weights = agent.export(state)
    obs = np.random.default_rng(SEED).normal(size=(16, environment.OBSERVATION_SIZE))
    return Outcome(subject.greedy(agent, state, obs), metrics, weights)
