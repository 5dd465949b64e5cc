"""The five levels for VPG, each with discrete and continuous actions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchback.agent import Weights, start
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.execution import best, executions
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.oracle import parameters
from benchback.parity.subject import Subject
from benchback.parity.vpg import cases, oracle
from benchback.parity.vpg.cases import Kind

SEED = 7
REFERENCE = "purejax"
"""The backend whose actions all JAX backends must reproduce."""
NUM_ITERATIONS = 2


def _either(level: Callable[[Subject, Kind], Iterator[Deviation]]) -> Callable[[Subject], Iterator[Deviation]]:
    """Worst deviations of the level over discrete and continuous actions."""
    return lambda subject: worst(d for kind in cases.KINDS for d in level(subject, kind))


def forward(subject: Subject, kind: Kind) -> Iterator[Deviation]:
    """L0: greedy actions, values and log-probabilities of a rollout, and the initial weights."""
    random = np.random.default_rng(2)
    weights = cases.network(random, kind)
    obs = cases.minibatch(weights, random, kind).obs
    agent = subject.agent(cases.BASE, kind)
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    yield "greedy", deviation.unlike(action, oracle.greedy(weights, obs))

    batch = subject.fetch(agent.rollout(start(agent, SEED, weights))[1])
    final_obs = environment.successor(np, batch.obs.astype(float), batch.action)[batch.truncated]
    quantities = {
        "log_prob": (batch.log_prob, oracle.log_prob(weights, batch.obs, batch.action)),
        "value": (batch.value, oracle.value(weights, batch.obs)),
        "final_value": (batch.final_value[batch.truncated], oracle.value(weights, final_obs)),
    }
    for quantity, (found, expected) in quantities.items():
        yield quantity, deviation.relative(found, expected, floor=1.0)
    yield from initial_weights(agent.export(start(agent, SEED)))


def initial_weights(weights: Weights) -> Iterator[Deviation]:
    """Kernels are orthogonal with scale sqrt 2, 0.01 and 1 for the output layers; the rest is constant."""
    depth = len(cases.BASE.hidden)
    scale = {f"actor/{depth}/kernel": 0.01, f"critic/{depth}/kernel": 1.0}
    for name, x in parameters(weights).items():
        if name.endswith("kernel"):
            yield "initial_kernel", deviation.off_orthogonal(x / scale.get(name, 2**0.5))
        elif name.endswith("bias"):
            yield "initial_bias", deviation.absolute(x, np.zeros_like(x))
        else:
            yield "initial_log_std", deviation.absolute(x, np.full_like(x, cases.BASE.initial_log_std))


def one_step(subject: Subject, kind: Kind) -> Iterator[Deviation]:
    """L1: one gradient step of the policy and one of the value function on each case."""
    for case in cases.single_steps(kind):
        yield from _one_step(subject, case)


def _one_step(subject: Subject, case: cases.Case) -> Iterator[Deviation]:
    agent = subject.agent(cases.BASE, case.kind)
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.minibatch))
    found = agent.export(state)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, cases.BASE)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(found, expected)
    if case.weights["actor_adam/count"] == 0:
        yield from deviation.of_towers("gradient", _gradient(found), _gradient(expected))
    trained = [x for name, x in found.items() if name in expected and not name.endswith("adam/count")]
    yield "dtype", float(np.mean([x.dtype != subject.dtype for x in trained]))


def _gradient(weights: Weights) -> Weights:
    """Gradient of the first step: Adam's first moment is the gradient times 1 - beta1."""
    means = [deviation.section(weights, f"{adam}/mean/") for adam in cases.TOWERS]
    return {name: x / (1 - cases.BASE.adam_beta1) for mean in means for name, x in mean.items()}


def ten_steps(subject: Subject, kind: Kind) -> Iterator[Deviation]:
    """L2: ten steps of policy and value, so twenty over both kinds of actions, where small differences accumulate."""
    weights, minibatches = cases.ten_steps(kind)
    learn = partial(oracle.learn, config=cases.BASE)
    return gradient_steps(subject, subject.agent(cases.BASE, kind), SEED, weights, minibatches, learn)


def update(subject: Subject, kind: Kind) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts, and whole iterations; `truncation=terminal` where it costs less."""
    yield from _given_rollout(subject, cases.BASE, kind)
    if kind == "discrete":
        yield from _given_rollout(subject, cases.TERMINAL, kind)
    yield from _iterations(subject, kind)


def _given_rollout(subject: Subject, config: Any, kind: Kind) -> Iterator[Deviation]:
    """An update on a rollout with every kind of episode end, from midway Adam states."""
    random = np.random.default_rng(3)
    weights = cases.midway(cases.network(random, kind), random)
    batch = cases.transitions(weights, config, random, kind)
    agent = subject.agent(config, kind)
    # A given rollout must end at the first observation of an initial state.
    last_obs = agent.export(start(agent, SEED))["env/obs"]
    state, metrics = agent.update(start(agent, SEED, weights), subject.place_all(batch))
    expected, expected_metrics = oracle.update(weights, batch, last_obs, config)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(agent.export(state), expected)


class Iteration(NamedTuple):
    """Rollout, row order, metrics and weights of one iteration."""

    batch: Any
    last_obs: np.ndarray
    metrics: dict[str, Any]
    after: Weights


def _iterations(subject: Subject, kind: Kind) -> Iterator[Deviation]:
    """Iterations: updates compared with the oracle; in the JAX family actions with the reference backend."""
    expected = cases.network(np.random.default_rng(5), kind)
    history = _history(subject, expected, kind)
    known = replace(subject, backend=REFERENCE) if subject.spec.family == "jax" else subject
    reference = _history(known, expected, kind) if known != subject else history
    for ours, theirs in zip(history, reference, strict=True):
        expected, metrics = oracle.update(expected, ours.batch, ours.last_obs, cases.BASE)
        yield "action/iteration", deviation.unlike(ours.batch.action, theirs.batch.action)
        found = [*deviation.of_metrics(ours.metrics, metrics), *deviation.of_weights(ours.after, expected)]
        yield from ((f"{quantity}/iteration", off) for quantity, off in found)


def _history(subject: Subject, weights: Weights, kind: Kind) -> list[Iteration]:
    agent = subject.agent(cases.BASE, kind)
    state = start(agent, SEED, weights)
    history = []
    for _ in range(NUM_ITERATIONS):
        state, batch = agent.rollout(state)
        # Copied before the update may donate it.
        fetched, last_obs = subject.fetch(batch), agent.export(state)["env/obs"]
        state, metrics = agent.update(state, batch)
        history.append(Iteration(fetched, last_obs, subject.fetch(metrics), agent.export(state)))
    return history


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit with discrete actions; the best mode and unit with continuous ones too."""
    yield from executions(subject, cases.TINY)
    for quantity, off in executions(subject, cases.TINY, "box", [best(subject.spec)]):
        yield f"{quantity}/box", off


LEVELS = {
    "L0": _either(forward),
    "L1": _either(one_step),
    "L2": _either(ten_steps),
    "L3": _either(update),
    "L4": execution,
}
