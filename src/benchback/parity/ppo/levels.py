"""The five levels for PPO: discrete actions, then continuous ones, whose quantities end in `/box`.

Normalised observations and rewards are tested with continuous actions. Convolutional networks are tested with images
and discrete actions; with continuous ones at L1 only, since between a network and its actions nothing is the network's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchback.agent import Weights, start
from benchback.algorithms.ppo.config import Config
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.draws import env_noise, gumbel, minibatch_rows, normal, sources
from benchback.parity.environment import ACTION_SIZE, NUM_ACTIONS
from benchback.parity.execution import best, executions, population
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.iterations import Course, Iteration, iterations
from benchback.parity.oracle import parameters, unscaled_kernels
from benchback.parity.ppo import cases, oracle
from benchback.parity.subject import Subject
from benchback.plugins.towers import TOWERS

SEED = 7
REFERENCE = "purejax"
"""The backend of the JAX family that torch is run beside, with the same noise and rows."""
NUM_ITERATIONS = 4
FIRST_WEIGHTS = {"nature_cnn": 19}
"""Network -> seed of the weights with which iterations begin; 5 for others.

Their images are the environment's: with these no relu of a large network is within 2e-6 of its edge, in torch or JAX.
"""


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions, values and log-probabilities of a rollout, and the initial weights."""
    yield from _forward(subject, _chosen(subject, cases.MINIBATCHES), "discrete")
    if _boxes(subject):
        yield from boxed(_forward(subject, cases.NORMALISED_MINIBATCHES, "box"))


def _chosen(subject: Subject, config: Config) -> Config:
    """The configuration of a case with the options under test, sized for the network."""
    return cases.sized(subject.chosen(config), subject.network)


def _boxes(subject: Subject) -> bool:
    """Whether continuous actions, normalisation and all surrogates are tested: not with each kind of network."""
    return subject.thorough and subject.network not in TOWERS


def boxed(deviations: Iterable[Deviation]) -> Iterator[Deviation]:
    """The deviations as those of continuous actions."""
    return ((f"{quantity}/box", off) for quantity, off in deviations)


def _forward(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    random = np.random.default_rng(2)
    weights = cases.network(random, kind, subject.network)
    obs = cases.near(weights, random, subject.network).obs
    weights, _ = cases.acquainted(weights, config, random)
    agent = subject.agent(config, kind)
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    expected = oracle.greedy(weights, oracle.normalise_obs(weights, obs))
    yield ("greedy", deviation.mismatch(action, expected)) if kind == "discrete" else real_action(action, expected)

    batch = subject.fetch(agent.rollout(start(agent, SEED, weights))[1])
    seen = oracle.normalise_obs(weights, batch.obs)
    yield "log_prob", deviation.relative(batch.log_prob, oracle.log_prob(weights, seen, batch.action), floor=1.0)
    yield "value", deviation.relative(batch.value, oracle.value(weights, seen), floor=1.0)
    final_obs = environment.successor(np, batch.obs.astype(float), batch.action)[batch.truncated]
    final_value = oracle.value(weights, oracle.normalise_obs(weights, final_obs))
    yield "final_value", deviation.relative(batch.final_value[batch.truncated], final_value, floor=1.0)
    yield from initial_weights(agent.export(start(agent, SEED)), config)


def real_action(found: np.ndarray, expected: np.ndarray) -> Deviation:
    """Deviation of continuous actions."""
    return "real_action", deviation.relative(found, expected, floor=1.0)


def initial_weights(weights: Weights, config: Config) -> Iterator[Deviation]:
    """Kernels are orthogonal with scale sqrt 2, 0.01 and 1 for the output layers; biases are zero."""
    constant = {"bias": 0.0, "log_std": config.initial_log_std}
    yield from worst(
        (f"initial_{kind}", deviation.absolute(x, np.full_like(x, constant[kind])))
        for name, x in parameters(weights).items()
        if (kind := name.split("/")[-1]) in constant
    )
    kernels = unscaled_kernels(parameters(weights), {"actor": 0.01, "critic": 1.0})
    yield from worst(("initial_kernel", deviation.off_orthogonal(x)) for x in kernels)


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    boxes = cases.single_steps("box", subject.network) if subject.thorough else ()
    steps = cases.single_steps if subject.thorough else cases.steps_of_one_program
    chosen = (replace(case, config=subject.chosen(case.config)) for case in steps(architecture=subject.network))
    yield from worst(d for case in chosen for d in _one_step(subject, case, "discrete"))
    yield from boxed(worst(d for case in boxes for d in _one_step(subject, case, "box")))
    if _boxes(subject):
        for config in (cases.DRIFT, cases.LEARNED):
            yield from surrogate_steps(subject, config)


def surrogate_steps(subject: Subject, config: Config) -> Iterator[Deviation]:
    """The part of L1 with another surrogate than the clipped one; its quantities end in the surrogate's name."""
    found = worst(d for case in cases.steps_of_surrogate(config) for d in _one_step(subject, case, "discrete"))
    return ((f"{quantity}/{config.surrogate}", off) for quantity, off in found)


def _one_step(subject: Subject, case: cases.Case, kind: cases.Kind) -> Iterator[Deviation]:
    agent = subject.agent(case.config, kind)
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.minibatch))
    found = agent.export(state)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, case.config)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from of_gradient_step(subject, case, found, expected)


def of_gradient_step(subject: Subject, case: Any, found: Weights, expected: Weights) -> Iterator[Deviation]:
    """Deviations of the weights after a step, of the gradient where Adam has just begun, and of precisions."""
    yield from deviation.of_weights(found, expected)
    if case.weights["adam/count"] == 0:
        # Adam's first moment is the clipped gradient times 1 - beta1.
        gradients = (
            {name: x / (1 - case.config.adam_beta1) for name, x in deviation.section(w, "adam/mean/").items()}
            for w in (found, expected)
        )
        yield from deviation.of_towers("gradient", *gradients)
    trained = [x for name, x in found.items() if name in expected and name != "adam/count"]
    yield "dtype", float(np.mean([x.dtype != subject.dtype for x in trained]))


def twenty_steps(subject: Subject) -> Iterator[Deviation]:
    """L2: twenty gradient steps, where small differences accumulate."""
    config = _chosen(subject, cases.BASE if subject.thorough else cases.MINIBATCHES)
    yield from _twenty_steps(subject, config, "discrete")
    if _boxes(subject):
        yield from boxed(_twenty_steps(subject, config, "box"))


def _twenty_steps(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    weights, minibatches = cases.twenty_steps(config, kind, subject.network)
    learn = partial(oracle.learn, config=config)
    return worst(gradient_steps(subject, subject.agent(config, kind), SEED, weights, minibatches, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts, then whole iterations."""
    configs = (cases.MINIBATCHES, cases.PLAIN) if subject.thorough else (cases.MINIBATCHES,)
    yield from worst(d for config in configs for d in _given_rollout(subject, _chosen(subject, config), "discrete"))
    yield from _iterations(subject, _chosen(subject, cases.MINIBATCHES), "discrete")
    if _boxes(subject):
        yield from boxed(normalised_update(subject))
        yield from boxed(_iterations(subject, cases.NORMALISED_MINIBATCHES, "box"))


def normalised_update(subject: Subject) -> Iterator[Deviation]:
    """The part of L3 with normalised observations and rewards, continuous actions and a given rollout."""
    return worst(_given_rollout(subject, cases.NORMALISED_MINIBATCHES, "box"))


def _given_rollout(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    """An update on a rollout with every kind of episode end, from a midway Adam state."""
    random = np.random.default_rng(3)
    weights = cases.midway(cases.network(random, kind, subject.network), random)
    weights, before = cases.acquainted(weights, config, random)
    batch = cases.transitions(weights, config, random, subject.network)
    agent = subject.agent(config, kind)
    state = start(agent, SEED, weights)
    # A given rollout must end at the first observation of an initial state.
    first = agent.export(state)
    order = minibatch_rows(subject, sources(subject, first["rng"], 1)[0], config)
    state, metrics = agent.update(state, subject.place_all(batch))
    expected, expected_metrics = oracle.update(weights, batch, first["env/obs"], config, order, before)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(agent.export(state), expected)


def _iterations(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    """Iterations beside the oracle, which has the same noise and takes the same rows."""
    expected = cases.network(np.random.default_rng(FIRST_WEIGHTS.get(subject.network, 5)), kind, subject.network)
    number = 2 if subject.network in environment.LARGE else NUM_ITERATIONS
    history = iterations(subject, Course(config, kind, SEED, expected, number))
    expected |= oracle.nothing_seen(config)
    deviations, before = [], []
    for found in history:
        deviations += _acted(subject, config, kind, expected, found)
        order = minibatch_rows(subject, sources(subject, found.between["rng"], 1)[0], config)
        last_obs = found.between["env/obs"]
        expected, metrics = oracle.update(expected, found.batch, last_obs, config, order, before)
        deviations += deviation.of_metrics(found.metrics, metrics)
        deviations += deviation.of_weights(found.after, expected) if found.after is not None else ()
        before += [found.batch]
    yield from worst((f"{quantity}/iteration", off) for quantity, off in deviations)


def _acted(
    subject: Subject, config: Config, kind: cases.Kind, weights: Weights, found: Iteration
) -> Iterator[Deviation]:
    """Deviation of a rollout: its actions, sampled with the same noise, and the observations that followed."""
    batch = found.batch
    env_source, action_source = sources(subject, found.before["rng"], 2)
    noise = env_noise(subject, env_source, config)
    yield "real_action/obs", deviation.relative(batch.obs[1:], environment.next_obs(batch, noise)[:-1], floor=1.0)
    draw, size = (gumbel, NUM_ACTIONS) if kind == "discrete" else (normal, ACTION_SIZE)
    action_noise = draw(subject, action_source, (*batch.reward.shape, size))
    action = oracle.sampled(weights, oracle.normalise_obs(weights, batch.obs), action_noise)
    yield (
        ("action", deviation.mismatch(batch.action, action))
        if kind == "discrete"
        else real_action(batch.action, action)
    )


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit; with continuous actions, in float32, the best mode in the widest unit; torch and JAX."""
    yield from executions(subject, cases.TINY)
    if subject.spec.family == "torch":
        yield from beside(subject)
    if subject.dtype == "float32" and _boxes(subject):
        # Reuses the programs compiled for L3.
        yield from boxed(executions(subject, cases.NORMALISED_MINIBATCHES, "box", [best(subject.spec)]))


def members(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which members of a population, in the subject's mode and unit, are compared with runs alone."""
    return population(subject, subject.chosen(cases.TINY), "discrete", (subject.mode, subject.unit))


def beside(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which torch is run beside the JAX family, with the same noise and rows."""
    from benchback.parity.beside import beside_jax  # it imports torch

    weights = cases.network(np.random.default_rng(FIRST_WEIGHTS.get(subject.network, 5)), "discrete", subject.network)
    course = Course(cases.sized(cases.MINIBATCHES, subject.network), "discrete", SEED, weights, number=2)
    return beside_jax(subject, REFERENCE, course)


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
