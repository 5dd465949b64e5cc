"""The five levels for DQN."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchback.agent import Weights, start
from benchback.algorithms.dqn.config import Config
from benchback.algorithms.dqn.loss import Minibatch
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, section, worst
from benchback.parity.dqn import cases, oracle
from benchback.parity.execution import executions
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.oracle import parameters
from benchback.parity.subject import Subject

SEED = 7
REFERENCE = "purejax"
"""The backend whose actions all JAX backends must reproduce."""
NUM_ITERATIONS = 5


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions of `act` and of a rollout, the rollout's next observations, and the initial weights."""
    random = np.random.default_rng(2)
    weights = cases.network(random)
    obs = cases.minibatch(random).obs
    agent = subject.agent(cases.GREEDY)
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    batch = subject.fetch(agent.rollout(start(agent, SEED, weights))[1])
    taken = deviation.mismatch(batch.action, oracle.greedy(weights, batch.obs))
    yield from worst([("greedy", deviation.mismatch(action, oracle.greedy(weights, obs))), ("greedy", taken)])
    led_to = environment.successor(np, batch.obs.astype(float), batch.action)
    yield "final_obs", deviation.absolute(batch.final_obs, led_to)
    yield from initial_weights(agent.export(start(agent, SEED)))


def initial_weights(weights: Weights) -> Iterator[Deviation]:
    """Kernels are orthogonal with scale sqrt 2, 1 for the output layer; biases are zero; targets equal."""
    head = f"critic/{len(cases.BASE.hidden)}/kernel"
    found = []
    for name, x in parameters(weights).items():
        found.append(("initial_target", deviation.mismatch(weights.get(f"target/{name}", np.nan), x)))
        if name.endswith("bias"):
            found.append(("initial_bias", deviation.absolute(x, np.zeros_like(x))))
        else:
            kernel = x / (1.0 if name == head else 2**0.5)
            gram = kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel
            found.append(("initial_kernel", deviation.absolute(gram, np.eye(len(gram)))))
    return worst(found)


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    return worst(d for case in cases.single_steps() for d in _one_step(subject, case))


def _one_step(subject: Subject, case: cases.Case) -> Iterator[Deviation]:
    agent = subject.agent(case.config)
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.minibatch))
    found = agent.export(state)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, case.config)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(found, expected)
    if case.weights["adam/count"] == 0:
        # Adam's first moment is the gradient times 1 - beta1.
        gradients = (
            {name: x / (1 - case.config.adam_beta1) for name, x in section(w, "adam/mean/").items()}
            for w in (found, expected)
        )
        yield from deviation.of_towers("gradient", *gradients)
    trained = [x for name, x in found.items() if name in expected and name != "adam/count"]
    yield "dtype", float(np.mean([x.dtype != subject.dtype for x in trained]))


def twenty_steps(subject: Subject) -> Iterator[Deviation]:
    """L2: twenty gradient steps, where small differences accumulate."""
    weights, minibatches = cases.twenty_steps()
    learn = partial(oracle.learn, config=cases.BASE)
    return worst(gradient_steps(subject, subject.agent(cases.BASE), SEED, weights, minibatches, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole iterations from an empty replay until it has wrapped around and the target is updated."""
    return worst(d for config in (cases.BASE, cases.OTHER) for d in _iterations(subject, config))


class Iteration(NamedTuple):
    """Rollout, row order, metrics and weights of one iteration."""

    batch: Any
    order: np.ndarray
    metrics: dict[str, Any]
    after: Weights


def _iterations(subject: Subject, config: Config) -> Iterator[Deviation]:
    """Iterations compared with the oracle; in the JAX family also actions with the reference backend."""
    random = np.random.default_rng(5)
    expected = cases.midway(cases.network(random), random)
    ours = _history(subject, expected, config)
    if subject.spec.family == "jax" and subject.backend != REFERENCE:
        reference = _history(replace(subject, backend=REFERENCE), expected, config)
        for mine, theirs in zip(ours, reference, strict=True):
            yield "action", deviation.mismatch(mine.batch.action, theirs.batch.action)
    history: list[oracle.Row] = []
    for iteration in ours:
        expected, history, metrics = oracle.update(expected, history, iteration.batch, config, iteration.order)
        yield from deviation.of_metrics(iteration.metrics, metrics)
        yield from deviation.of_weights(iteration.after, expected)
        yield from _replay(iteration.after, history, config)


def _replay(found: Weights, history: list[oracle.Row], config: Config) -> Iterator[Deviation]:
    """Deviation of the replay, row by row, and of the number of inserted rows."""
    held = oracle.ring(history, config.replay_capacity)
    for field, column in zip(Minibatch._fields, zip(*held, strict=True), strict=True):
        yield "replay", deviation.mismatch(found[f"replay/data/{field}"][: len(held)], np.stack(column))
    yield "replay", deviation.mismatch(found["replay/inserted"], len(history))


def _history(subject: Subject, weights: Weights, config: Config) -> list[Iteration]:
    agent = subject.agent(config)
    state = start(agent, SEED, weights)
    history = []
    for i in range(1, NUM_ITERATIONS + 1):
        state, batch = agent.rollout(state)
        # Copied before the update may donate it.
        fetched = subject.fetch(batch)
        order = _order(subject, config, agent.export(state)["rng"], i * config.batch_size)
        state, metrics = agent.update(state, batch)
        history.append(Iteration(fetched, order, subject.fetch(metrics), agent.export(state)))
    return history


def _order(subject: Subject, config: Config, rng: np.ndarray, inserted: int) -> np.ndarray:
    """The rows that each gradient step samples from a replay with that many inserted rows."""
    shape, written = (config.num_updates, config.minibatch_size), min(inserted, config.replay_capacity)
    if subject.spec.family == "jax":
        import jax

        _, row_key = jax.random.split(jax.random.wrap_key_data(jax.numpy.asarray(rng)))
        return np.asarray(jax.random.randint(row_key, shape, 0, written))
    import torch

    generator = torch.Generator()
    generator.set_state(torch.tensor(rng))
    return torch.randint(written, shape, generator=generator).numpy()


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit."""
    return executions(subject, cases.TINY)


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
