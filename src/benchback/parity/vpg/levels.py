"""The five levels for VPG, each with discrete and continuous actions."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchback.agent import Weights, start
from benchback.parity import deviation, environment
from benchback.parity.beside import beside_jax
from benchback.parity.deviation import Deviation, worst
from benchback.parity.draws import env_noise, gumbel, normal, sources
from benchback.parity.environment import ACTION_SIZE, NUM_ACTIONS
from benchback.parity.execution import best, executions, population
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.iterations import Course, Iteration, iterations
from benchback.parity.oracle import parameters
from benchback.parity.subject import Subject
from benchback.parity.vpg import cases, oracle
from benchback.parity.vpg.cases import Kind

SEED = 7
REFERENCE = "purejax"
"""The backend of the JAX family that torch is run beside, with the same noise."""
NUM_ITERATIONS = 2


def _either(level: Callable[[Subject, Kind], Iterator[Deviation]]) -> Callable[[Subject], Iterator[Deviation]]:
    """Worst deviations of the level over discrete and continuous actions; of one kind where one program must do."""
    return lambda subject: worst(
        d for kind in cases.KINDS[: 2 if subject.thorough else 1] for d in level(subject, kind)
    )


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
        # Observations of another type are another program.
        if subject.thorough or case.minibatch.obs.dtype == np.float32:
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
    if kind == "discrete" and subject.thorough:
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


def _course(kind: Kind) -> Course:
    return Course(cases.BASE, kind, SEED, cases.network(np.random.default_rng(5), kind), NUM_ITERATIONS)


def _iterations(subject: Subject, kind: Kind) -> Iterator[Deviation]:
    """Iterations beside the oracle, which has the same noise."""
    course = _course(kind)
    expected = course.weights
    for found in iterations(subject, course):
        deviations = [*_acted(subject, kind, expected, found)]
        expected, metrics = oracle.update(expected, found.batch, found.between["env/obs"], cases.BASE)
        deviations += deviation.of_metrics(found.metrics, metrics)
        deviations += deviation.of_weights(found.after, expected) if found.after is not None else ()
        yield from ((f"{quantity}/iteration", off) for quantity, off in deviations)


def _acted(subject: Subject, kind: Kind, weights: Weights, found: Iteration) -> Iterator[Deviation]:
    """Deviation of a rollout: its actions, sampled with the same noise, and the observations that followed."""
    batch = found.batch
    env_source, action_source = sources(subject, found.before["rng"], 2)
    noise = env_noise(subject, env_source, cases.BASE)
    yield "real_action/obs", deviation.relative(batch.obs[1:], environment.next_obs(batch, noise)[:-1], floor=1.0)
    draw, size = (gumbel, NUM_ACTIONS) if kind == "discrete" else (normal, ACTION_SIZE)
    action = oracle.sampled(weights, batch.obs, draw(subject, action_source, (*batch.reward.shape, size)))
    yield "action", deviation.unlike(batch.action, action)


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit with discrete actions; the best mode and unit with continuous ones too; torch and JAX."""
    yield from executions(subject, cases.TINY)
    for quantity, off in executions(subject, cases.TINY, "box", [best(subject.spec)]):
        yield f"{quantity}/box", off
    if subject.spec.family == "torch":
        yield from beside(subject)


def members(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which members of a population, in the subject's mode and unit, are compared with runs alone."""
    return population(subject, cases.TINY, "discrete", (subject.mode, subject.unit))


def beside(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which torch is run beside the JAX family, with the same noise; updates draw nothing."""
    return beside_jax(subject, REFERENCE, _course("discrete"), drawn_in_update=0)


LEVELS = {
    "L0": _either(forward),
    "L1": _either(one_step),
    "L2": _either(ten_steps),
    "L3": _either(update),
    "L4": execution,
}
