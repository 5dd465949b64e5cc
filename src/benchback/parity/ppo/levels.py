"""The five levels for PPO."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.ppo.config import Config
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.execution import executions
from benchback.parity.oracle import parameters
from benchback.parity.ppo import cases, oracle
from benchback.parity.subject import Subject

SEED = 7
REFERENCE = "purejax"
"""Whose actions the JAX family must take."""
NUM_ITERATIONS = 3


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions, and what a rollout says of the observations it met; then the initial weights."""
    random = np.random.default_rng(2)
    weights = cases.network(random)
    obs = cases.near(weights, random).obs
    agent = subject.agent(cases.MINIBATCHES)
    action = subject.fetch({"action": agent.act(agent.init(SEED, weights), subject.place(obs))})["action"]
    yield "greedy", deviation.mismatch(action, oracle.greedy(weights, obs))

    batch = subject.fetch(agent.rollout(agent.init(SEED, weights))[1])
    yield (
        "log_prob",
        deviation.relative(batch.log_prob, oracle.log_prob(weights, batch.obs, batch.action), floor=1.0),
    )
    yield "value", deviation.relative(batch.value, oracle.value(weights, batch.obs), floor=1.0)
    final_obs = environment.successor(np, batch.obs.astype(float), batch.action)[batch.truncated]
    yield (
        "final_value",
        deviation.relative(batch.final_value[batch.truncated], oracle.value(weights, final_obs), floor=1.0),
    )
    yield from initial_weights(agent.export(agent.init(SEED, None)))


def initial_weights(weights: Weights) -> Iterator[Deviation]:
    """Kernels against orthogonal ones: scale sqrt 2, and 0.01 and 1 for the heads; biases against zero."""
    depth = len(cases.BASE.hidden)
    scale = {f"actor/{depth}/kernel": 0.01, f"critic/{depth}/kernel": 1.0}
    yield from worst(
        ("initial_bias", deviation.absolute(x, np.zeros_like(x)))
        if name.endswith("bias")
        else ("initial_kernel", deviation.absolute(_gram(x / scale.get(name, 2**0.5)), np.eye(min(x.shape))))
        for name, x in parameters(weights).items()
    )


def _gram(kernel: np.ndarray) -> np.ndarray:
    """The inner products of the kernel's shorter side: the identity if it is orthogonal."""
    return kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    return worst(d for case in cases.single_steps() for d in _one_step(subject, case))


def _one_step(subject: Subject, case: cases.Case) -> Iterator[Deviation]:
    agent = subject.agent(case.config)
    state, metrics = agent.learn(agent.init(SEED, case.weights), subject.place_all(case.minibatch))
    found = agent.export(state)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, case.config)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(found, expected)
    if case.weights["adam/count"] == 0:
        # Adam's first mean is the clipped gradient times 1 - beta1.
        gradients = (
            {name: x / (1 - case.config.adam_beta1) for name, x in deviation.section(w, "adam/mean/").items()}
            for w in (found, expected)
        )
        yield from deviation.of_towers("gradient", *gradients)
    trained = [x for name, x in found.items() if name in expected and name != "adam/count"]
    yield "dtype", float(np.mean([x.dtype != subject.dtype for x in trained]))


def twenty_steps(subject: Subject) -> Iterator[Deviation]:
    """L2: twenty gradient steps, where small differences would add up."""
    expected, minibatches = cases.twenty_steps()
    agent = subject.agent(cases.BASE)
    state = agent.init(SEED, expected)
    deviations = []
    for minibatch in minibatches:
        state, metrics = agent.learn(state, subject.place_all(minibatch))
        expected, expected_metrics = oracle.learn(expected, minibatch, cases.BASE)
        deviations += deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    return worst([*deviations, *deviation.of_weights(agent.export(state), expected)])


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts; whole iterations where the order of rows can be known."""
    whole = cases.MINIBATCHES if subject.spec.family == "jax" else cases.BASE
    yield from worst(d for config in (whole, cases.PLAIN) for d in _given_rollout(subject, config))
    yield from _iterations(subject) if subject.spec.family == "jax" else _every_row(subject)


def _given_rollout(subject: Subject, config: Config) -> Iterator[Deviation]:
    """An update on episodes that end in every way, from an Adam midway."""
    random = np.random.default_rng(3)
    weights = cases.midway(cases.network(random), random)
    batch = cases.transitions(weights, config, random)
    agent, last_obs = subject.agent(config), _initial_obs(subject)
    state = agent.init(SEED, weights)
    order = _order(config, agent.export(state)["rng"])
    state, metrics = agent.update(state, subject.place_all(batch))
    expected, expected_metrics = oracle.update(weights, batch, last_obs, config, order)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(agent.export(state), expected)


def _initial_obs(subject: Subject) -> np.ndarray:
    """What a fresh state looks at, the first observation of its rollout: a given rollout must end there."""
    agent = subject.agent(cases.MINIBATCHES)
    return subject.fetch(agent.rollout(agent.init(SEED, None))[1]).obs[0]


def _every_row(subject: Subject) -> Iterator[Deviation]:
    """Every row serves once per epoch: means over all minibatches are means over the batch, in any order."""
    config = cases.STANDSTILL
    random = np.random.default_rng(4)
    weights = cases.network(random)
    batch = cases.transitions(weights, config, random)
    agent, last_obs = subject.agent(config), _initial_obs(subject)
    state, metrics = agent.update(agent.init(SEED, weights), subject.place_all(batch))
    _, expected = oracle.update(weights, batch, last_obs, config, [np.arange(config.batch_size)])
    of_rows = ("value_loss", "entropy", "approximate_kl", "clip_fraction")
    for quantity, off in deviation.of_metrics(subject.fetch(metrics), {name: expected[name] for name in of_rows}):
        yield f"{quantity}/every_row", off
    yield (
        "count/every_row",
        deviation.mismatch(agent.export(state)["adam/count"], config.updates_per_iteration),
    )


class Iteration(NamedTuple):
    """What one iteration did."""

    batch: Any
    order: np.ndarray
    metrics: dict[str, Any]
    after: Weights


def _iterations(subject: Subject) -> Iterator[Deviation]:
    """Rollouts and updates in turn: actions equal to the reference's, learning equal to the oracle's."""
    expected = cases.network(np.random.default_rng(5))
    history = _history(subject, expected)
    reference = _history(replace(subject, backend=REFERENCE), expected)
    deviations = []
    for ours, theirs, following in zip(history, reference, history[1:], strict=False):
        last_obs = following.batch.obs[0]
        expected, metrics = oracle.update(expected, ours.batch, last_obs, cases.MINIBATCHES, ours.order)
        deviations += [("action", deviation.mismatch(ours.batch.action, theirs.batch.action))]
        deviations += deviation.of_metrics(ours.metrics, metrics)
        deviations += deviation.of_weights(ours.after, expected)
    yield from worst((f"{quantity}/iteration", off) for quantity, off in deviations)


def _history(subject: Subject, weights: Weights) -> list[Iteration]:
    """One iteration more than are compared: its rollout shows where the one before ended."""
    agent = subject.agent(cases.MINIBATCHES)
    state = agent.init(SEED, weights)
    history = []
    for _ in range(NUM_ITERATIONS + 1):
        state, batch = agent.rollout(state)
        # Fetched before the update may overwrite it.
        fetched, order = subject.fetch(batch), _order(cases.MINIBATCHES, agent.export(state)["rng"])
        state, metrics = agent.update(state, batch)
        history.append(Iteration(fetched, order, subject.fetch(metrics), agent.export(state)))
    return history


def _order(config: Config, rng: np.ndarray) -> np.ndarray:
    """The rows of each gradient step: all of them, or those that the JAX family takes with its key as it is."""
    if config.num_minibatches == 1:
        return np.tile(np.arange(config.batch_size), (config.num_epochs, 1))
    import jax

    from benchback.math.jax import minibatch_indices

    _, shuffle_key = jax.random.split(jax.random.wrap_key_data(jax.numpy.asarray(rng)))
    return np.asarray(
        minibatch_indices(
            shuffle_key,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
    )


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit."""
    return executions(subject, cases.TINY)


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
