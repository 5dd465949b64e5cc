"""L4, the same for every algorithm: modes, units and populations do not change what an agent computes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from benchback.agent import Agent, Weights, start
from benchback.errors import InputError
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation
from benchback.parity.subject import Subject, computing
from benchback.population import members
from benchback.registry import Spec
from benchback.training import advance

SEED = 11
NUM_ITERATIONS = 3
NUM_MEMBERS, GROUP = 4, 2
"""A population of more than one group, each of more than one member."""


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
    """Deviations of every execution of the plan, or the selected ones, from mode `none` in unit `phase`.

    A full plan of the JAX family ends with a population.
    """
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
        for quantity, off in deviation.worst(_differences(outcome, reference)):
            yield f"{quantity}/{mode}/{unit}", off
    if chosen is None and subject.spec.family == "jax":
        yield from population(subject, config, kind)


def population(
    subject: Subject,
    config: Any,
    kind: Literal["discrete", "box"] = "discrete",
    execution: tuple[str, str] | None = None,
) -> Iterator[Deviation]:
    """Deviations of members, each with its own seed and floats, from the same runs alone in mode `none`.

    `execution` is the mode and the unit of the population, by default the best.
    """
    agent, (mode, unit) = subject.plain(config, kind), execution or best(subject.spec)
    hyper = [jax.tree.map(lambda x, i=i: x * (1 - i / 16), agent.hyper) for i in range(NUM_MEMBERS)]
    many = members.execute(agent, subject.framework, mode, unit, NUM_ITERATIONS, size=NUM_MEMBERS, group=GROUP)
    outcomes = _members(subject, agent, many, jax.tree.map(lambda *x: np.array(x), *hyper))
    alone = [_trained(subject, replace(agent, hyper=own), SEED + i) for i, own in enumerate(hyper)]
    for quantity, off in deviation.worst(d for pair in zip(outcomes, alone, strict=True) for d in _differences(*pair)):
        yield f"{quantity}/{mode}/{unit}/population", off


def _members(subject: Subject, agent: Agent, many: Agent, hyper: Any) -> list[Outcome]:
    """Results of the members of a population with these hyper-parameters."""
    single, state = members.view(agent, subject.framework), many.init(many.key(SEED), hyper)
    history: list[dict[str, np.ndarray]] = []
    while sum(metrics["episodes"].shape[1] for metrics in history) < NUM_ITERATIONS:
        state, metrics = advance(many, state)
        history.append({name: x.reshape(NUM_MEMBERS, -1) for name, x in subject.fetch(metrics).items()})
    outcomes = []
    for i in range(NUM_MEMBERS):
        one = members.member(many, state, i)
        own = {name: np.concatenate([metrics[name][i] for metrics in history]) for name in history[0]}
        outcomes.append(Outcome(_greedy(subject, single, one), own, single.export(one)))
    return outcomes


def plan(spec: Spec) -> list[tuple[str, str]]:
    """Executions to compare with the reference, as (mode, unit): every mode, every unit, and the best of both."""
    modes = [(mode, "phase") for mode in spec.modes if mode != "none"]
    units = [("none", unit) for unit in spec.units[1:-1]]
    return [*modes, *units, best(spec)]


def best(spec: Spec) -> tuple[str, str]:
    """The best mode in the widest unit."""
    return spec.best, spec.units[-1]


def _differences(outcome: Outcome, reference: Outcome) -> Iterator[Deviation]:
    yield "greedy", deviation.unlike(outcome.action, reference.action)
    for quantity, off in deviation.of_metrics(outcome.metrics, reference.metrics):
        yield quantity.partition("/")[0], off
    yield from deviation.of_weights(outcome.weights, deviation.trained(reference.weights))


def _trained(subject: Subject, agent: Agent, seed: int = SEED) -> Outcome:
    state = start(agent, seed)
    history = []
    while sum(len(metrics["episodes"]) for metrics in history) < NUM_ITERATIONS:
        state, metrics = advance(agent, state)
        history.append({name: np.atleast_1d(x) for name, x in subject.fetch(metrics).items()})
    metrics = {name: np.concatenate([entry[name] for entry in history]) for name in history[0]}
    weights = agent.export(state)
    return Outcome(_greedy(subject, agent, state), metrics, weights)


def _greedy(subject: Subject, agent: Agent, state: Any) -> np.ndarray:
    obs = environment.observations(np.random.default_rng(SEED), (16,), subject.network)
    return subject.greedy(agent, state, obs)
