"""The five levels for PPO: discrete actions, then continuous ones, whose quantities end in `/box`.

Normalised observations and rewards are tested with continuous actions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchback.agent import Weights, start
from benchback.algorithms.ppo.config import Config
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.execution import best, executions
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.oracle import parameters
from benchback.parity.ppo import cases, oracle
from benchback.parity.subject import Subject

SEED = 7
REFERENCE = "purejax"
"""The backend whose actions all JAX backends must reproduce."""
NUM_ITERATIONS = 3


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions, values and log-probabilities of a rollout, and the initial weights."""
    yield from _forward(subject, cases.MINIBATCHES, "discrete")
    yield from _boxed(_forward(subject, cases.NORMALISED_MINIBATCHES, "box"))


def _boxed(deviations: Iterable[Deviation]) -> Iterator[Deviation]:
    return ((f"{quantity}/box", off) for quantity, off in deviations)


def _forward(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    random = np.random.default_rng(2)
    weights = cases.network(random, kind)
    obs = cases.near(weights, random).obs
    weights, _ = cases.acquainted(weights, config, random)
    agent = subject.agent(config, kind)
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    expected = oracle.greedy(weights, oracle.normalise_obs(weights, obs))
    yield ("greedy", deviation.mismatch(action, expected)) if kind == "discrete" else _real_action(action, expected)

    batch = subject.fetch(agent.rollout(start(agent, SEED, weights))[1])
    seen = oracle.normalise_obs(weights, batch.obs)
    yield "log_prob", deviation.relative(batch.log_prob, oracle.log_prob(weights, seen, batch.action), floor=1.0)
    yield "value", deviation.relative(batch.value, oracle.value(weights, seen), floor=1.0)
    final_obs = environment.successor(np, batch.obs.astype(float), batch.action)[batch.truncated]
    final_value = oracle.value(weights, oracle.normalise_obs(weights, final_obs))
    yield "final_value", deviation.relative(batch.final_value[batch.truncated], final_value, floor=1.0)
    yield from initial_weights(agent.export(start(agent, SEED)), config)


def _real_action(found: np.ndarray, expected: np.ndarray) -> Deviation:
    return "real_action", deviation.relative(found, expected, floor=1.0)


def initial_weights(weights: Weights, config: Config) -> Iterator[Deviation]:
    """Kernels are orthogonal with scale sqrt 2, 0.01 and 1 for the output layers; biases are zero."""
    depth = len(cases.BASE.hidden)
    scale = {f"actor/{depth}/kernel": 0.01, f"critic/{depth}/kernel": 1.0}
    constant = {"bias": 0.0, "log_std": config.initial_log_std}
    yield from worst(
        (f"initial_{kind}", deviation.absolute(x, np.full_like(x, constant[kind])))
        if (kind := name.split("/")[-1]) in constant
        else ("initial_kernel", deviation.absolute(_gram(x / scale.get(name, 2**0.5)), np.eye(min(x.shape))))
        for name, x in parameters(weights).items()
    )


def _gram(kernel: np.ndarray) -> np.ndarray:
    """Gram matrix of the kernel's shorter side: the identity if it is orthogonal."""
    return kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    yield from worst(d for case in cases.single_steps() for d in _one_step(subject, case, "discrete"))
    yield from _boxed(worst(d for case in cases.single_steps("box") for d in _one_step(subject, case, "box")))


def _one_step(subject: Subject, case: cases.Case, kind: cases.Kind) -> Iterator[Deviation]:
    agent = subject.agent(case.config, kind)
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.minibatch))
    found = agent.export(state)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, case.config)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
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
    yield from _twenty_steps(subject, "discrete")
    yield from _boxed(_twenty_steps(subject, "box"))


def _twenty_steps(subject: Subject, kind: cases.Kind) -> Iterator[Deviation]:
    weights, minibatches = cases.twenty_steps(kind)
    learn = partial(oracle.learn, config=cases.BASE)
    return worst(gradient_steps(subject, subject.agent(cases.BASE, kind), SEED, weights, minibatches, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts; whole iterations where the shuffle is known."""
    jax = subject.spec.family == "jax"
    whole = cases.MINIBATCHES if jax else cases.BASE
    yield from worst(d for config in (whole, cases.PLAIN) for d in _given_rollout(subject, config, "discrete"))
    yield from _iterations(subject, cases.MINIBATCHES, "discrete") if jax else _every_row(subject)
    yield from _boxed(normalised_update(subject))
    if jax:
        yield from _boxed(_iterations(subject, cases.NORMALISED_MINIBATCHES, "box"))


def normalised_update(subject: Subject) -> Iterator[Deviation]:
    """The part of L3 with normalised observations and rewards, continuous actions and a given rollout."""
    config = cases.NORMALISED_MINIBATCHES if subject.spec.family == "jax" else cases.NORMALISED
    return worst(_given_rollout(subject, config, "box"))


def _given_rollout(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    """An update on a rollout with every kind of episode end, from a midway Adam state."""
    random = np.random.default_rng(3)
    weights = cases.midway(cases.network(random, kind), random)
    weights, before = cases.acquainted(weights, config, random)
    batch = cases.transitions(weights, config, random)
    agent, last_obs = subject.agent(config, kind), _initial_obs(subject, config, kind)
    state = start(agent, SEED, weights)
    order = _order(config, agent.export(state)["rng"])
    state, metrics = agent.update(state, subject.place_all(batch))
    expected, expected_metrics = oracle.update(weights, batch, last_obs, config, order, before)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(agent.export(state), expected)


def _initial_obs(subject: Subject, config: Config, kind: cases.Kind) -> np.ndarray:
    """First observation of an initial state, at which a given rollout must end."""
    agent = subject.agent(cases.MINIBATCHES if kind == "discrete" else config, kind)
    return subject.fetch(agent.rollout(start(agent, SEED))[1]).obs[0]


def _every_row(subject: Subject) -> Iterator[Deviation]:
    """Every row is used once per epoch: means over all minibatches equal means over the batch, in any order."""
    config = cases.STANDSTILL
    random = np.random.default_rng(4)
    weights = cases.network(random)
    batch = cases.transitions(weights, config, random)
    agent, last_obs = subject.agent(config), _initial_obs(subject, config, "discrete")
    state, metrics = agent.update(start(agent, SEED, weights), subject.place_all(batch))
    _, expected = oracle.update(weights, batch, last_obs, config, [np.arange(config.batch_size)])
    of_rows = ("value_loss", "entropy", "approximate_kl", "clip_fraction")
    for quantity, off in deviation.of_metrics(subject.fetch(metrics), {name: expected[name] for name in of_rows}):
        yield f"{quantity}/every_row", off
    yield (
        "count/every_row",
        deviation.mismatch(agent.export(state)["adam/count"], config.updates_per_iteration),
    )


class Iteration(NamedTuple):
    """Rollout, row order, metrics and weights of one iteration."""

    batch: Any
    order: np.ndarray
    metrics: dict[str, Any]
    after: Weights


def _iterations(subject: Subject, config: Config, kind: cases.Kind) -> Iterator[Deviation]:
    """Iterations: actions compared with the reference backend, updates with the oracle."""
    expected = cases.network(np.random.default_rng(5), kind)
    history = _history(subject, config, kind, expected)
    reference = _history(replace(subject, backend=REFERENCE), config, kind, expected)
    expected |= oracle.nothing_seen(config)
    deviations, before = [], []
    for ours, theirs, following in zip(history, reference, history[1:], strict=False):
        last_obs = following.batch.obs[0]
        expected, metrics = oracle.update(expected, ours.batch, last_obs, config, ours.order, before)
        if kind == "discrete":
            deviations += [("action", deviation.mismatch(ours.batch.action, theirs.batch.action))]
        else:
            deviations += [_real_action(ours.batch.action, theirs.batch.action)]
        deviations += deviation.of_metrics(ours.metrics, metrics)
        deviations += deviation.of_weights(ours.after, expected)
        before += [ours.batch]
    yield from worst((f"{quantity}/iteration", off) for quantity, off in deviations)


def _history(subject: Subject, config: Config, kind: cases.Kind, weights: Weights) -> list[Iteration]:
    """One iteration more than is compared: its rollout starts with the last observation of the one before."""
    agent = subject.agent(config, kind)
    state = start(agent, SEED, weights)
    history = []
    for _ in range(NUM_ITERATIONS + 1):
        state, batch = agent.rollout(state)
        # Copied before the update may donate it.
        fetched, order = subject.fetch(batch), _order(config, agent.export(state)["rng"])
        state, metrics = agent.update(state, batch)
        history.append(Iteration(fetched, order, subject.fetch(metrics), agent.export(state)))
    return history


def _order(config: Config, rng: np.ndarray) -> np.ndarray:
    """The rows of each gradient step: all, or those that the JAX family draws with the state's key."""
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
    """L4: every mode and unit; with continuous actions, in float32, the best mode in the widest unit."""
    yield from executions(subject, cases.TINY)
    if subject.dtype == "float32":
        # Reuses the programs compiled for L3.
        config = cases.NORMALISED_MINIBATCHES if subject.spec.family == "jax" else cases.NORMALISED
        yield from _boxed(executions(subject, config, "box", [best(subject.spec)]))


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
