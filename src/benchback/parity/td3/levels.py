"""The five levels for TD3."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchback.agent import Weights, start
from benchback.algorithms.td3.config import Config
from benchback.algorithms.td3.loss import METRICS
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.draws import env_noise, halves, integers, normal, sources, uniform
from benchback.parity.environment import ACTION_SIZE, BOX
from benchback.parity.execution import executions, population
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.iterations import Course, Iteration, iterations
from benchback.parity.oracle import parameters
from benchback.parity.subject import Subject
from benchback.parity.td3 import cases, oracle
from benchback.parity.td3.oracle import Memory

SEED = 7
REFERENCE = "purejax"
"""The backend of the JAX family that torch is run beside, with the same noise and rows."""
NUM_ITERATIONS = 4


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions, then the initial weights."""
    random = np.random.default_rng(2)
    weights, obs = cases.networks(random), cases.minibatch(random).obs
    agent = subject.agent(cases.BASE, "box")
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    yield "real_action/greedy", deviation.relative(action, oracle.policy(weights, obs, BOX), floor=1.0)
    yield from initial_weights(agent.export(start(agent, SEED)))


def initial_weights(weights: Weights) -> Iterator[Deviation]:
    """Kernels are orthogonal with scale 1, 0.01 for the policy's output; biases are zero; targets equal."""
    scale = {f"actor/{len(cases.BASE.hidden)}/kernel": 0.01}
    online = parameters(weights)
    yield from worst(
        ("initial_bias", deviation.absolute(x, np.zeros_like(x)))
        if name.endswith("bias")
        else ("initial_kernel", deviation.absolute(_gram(x / scale.get(name, 1.0)), np.eye(min(x.shape))))
        for name, x in online.items()
    )
    slow = deviation.section(weights, "target/")
    yield from worst(("names/target", deviation.mismatch(slow.get(name, np.nan), x)) for name, x in online.items())
    twins = deviation.absolute(online["critic1/0/kernel"], online["critic2/0/kernel"])
    yield "names/twins", float(twins < 0.1)


def _gram(kernel: np.ndarray) -> np.ndarray:
    """Gram matrix of the kernel's shorter side: the identity if it is orthogonal."""
    return kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    return worst(d for case in cases.single_steps() for d in _one_step(subject, case))


def _one_step(subject: Subject, case: cases.Case) -> Iterator[Deviation]:
    agent = subject.agent(case.config, "box")
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.minibatch))
    found, found_metrics = agent.export(state), subject.fetch(metrics)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, BOX, case.config)
    yield from deviation.of_metrics(found_metrics, expected_metrics)
    yield "names/delayed", _known_but(found_metrics, expected_metrics)
    yield from deviation.of_weights(found, expected)
    if case.weights["critic_adam/count"] == 0:
        # Adam's first moment is the gradient times 1 - beta1.
        for prefix in ("actor_adam/mean/", "critic_adam/mean/"):
            gradients = (
                {name: x / (1 - case.config.adam_beta1) for name, x in deviation.section(w, prefix).items()}
                for w in (found, expected)
            )
            yield from deviation.of_towers("gradient", *gradients)
    trained = [x for name, x in found.items() if name in expected and not name.endswith("count")]
    yield "dtype", float(np.mean([x.dtype != subject.dtype for x in trained]))


def _known_but(found: dict[str, Any], expected: dict[str, float]) -> float:
    """Fraction of the metrics that are not NaN although they should be; infinite if one is missing."""
    others = [name for name in METRICS if name not in expected]
    if not found.keys() >= set(METRICS):
        return np.inf
    return float(np.mean([not np.isnan(found[name]) for name in others])) if others else 0.0


def twenty_steps(subject: Subject) -> Iterator[Deviation]:
    """L2: twenty gradient steps, seven of them with policy and target updates, where small differences accumulate."""
    weights, minibatches = cases.twenty_steps()
    agent = subject.agent(cases.BASE, "box")
    learn = partial(oracle.learn, bounds=BOX, config=cases.BASE)
    return worst(gradient_steps(subject, agent, SEED, weights, minibatches, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts, then whole iterations."""
    # The option is in shared code: it is tested where that needs no compilation.
    plain = subject.spec.family == "torch" and subject.thorough
    configs = (cases.BASE, cases.PLAIN) if plain else (cases.BASE,)
    yield from worst(d for config in configs for d in _given_rollouts(subject, config))
    yield from worst((f"{quantity}/iteration", off) for quantity, off in _iterations(subject))


def _given_rollouts(subject: Subject, config: Config) -> Iterator[Deviation]:
    """Updates on rollouts with every kind of episode end; at first too few rows to learn, later beyond capacity."""
    random = np.random.default_rng(3)
    agent = subject.agent(config, "box")
    expected = cases.midway(cases.networks(random), random, count=5)
    state = start(agent, SEED, expected)
    memory = Memory({}, 0)
    for _ in range(NUM_ITERATIONS):
        batch, rng = cases.transitions(random, config), agent.export(state)["rng"]
        state, metrics = agent.update(state, subject.place_all(batch))
        memory = oracle.remember(memory, batch, config)
        expected, expected_metrics = _updated(subject, config, memory, rng, expected)
        yield from _compared(subject.fetch(metrics), expected_metrics, agent.export(state), expected, memory)
        yield from deviation.of_metrics(subject.fetch(metrics), oracle.episodes(batch))


def _updated(
    subject: Subject, config: Config, memory: Memory, rng: np.ndarray, weights: Weights
) -> tuple[Weights, dict[str, float]]:
    """The oracle's update, with the rows and the noise of the one that begins with this random state."""
    row_source, noise_source = sources(subject, rng, 2)
    shape, written = (config.num_updates, config.minibatch_size), min(memory.inserted, config.replay_capacity)
    places = integers(subject, row_source, (config.gradient_rows,), written).reshape(shape)
    noise = normal(subject, noise_source, (*shape, ACTION_SIZE))
    return oracle.update(weights, memory, places, noise, BOX, config)


def _compared(
    metrics: dict[str, Any],
    expected_metrics: dict[str, float],
    after: Weights | None,
    expected: Weights,
    memory: Memory,
) -> Iterator[Deviation]:
    """Metrics and, where they are visible, weights after an update."""
    yield from deviation.of_metrics(metrics, expected_metrics)
    yield "names/unlearnt", _known_but(metrics, expected_metrics)
    if after is not None:
        yield from deviation.of_weights(after, expected)
        yield "count/inserted", deviation.mismatch(after["replay/inserted"], memory.inserted)


def _course() -> Course:
    random = np.random.default_rng(5)
    weights = cases.midway(cases.networks(random), random, count=4)
    return Course(cases.BASE, "box", SEED, weights, NUM_ITERATIONS)


def _iterations(subject: Subject) -> Iterator[Deviation]:
    """Iterations beside the oracle, which has the same noise and takes the same rows."""
    course, memory = _course(), Memory({}, 0)
    expected, config = course.weights, course.config
    for found in iterations(subject, course):
        yield from _acted(subject, config, memory.inserted, expected, found)
        memory = oracle.remember(memory, found.batch, config)
        expected, metrics = _updated(subject, config, memory, found.between["rng"], expected)
        yield from _compared(found.metrics, metrics, found.after, expected, memory)


def _acted(subject: Subject, config: Config, inserted: int, weights: Weights, found: Iteration) -> Iterator[Deviation]:
    """Deviation of a rollout: actions (uniform at first, then the policy's with noise) and transitions."""
    batch, shape = found.batch, (config.num_steps, config.num_envs, ACTION_SIZE)
    env_source, action_source = sources(subject, found.before["rng"], 2)
    obs = environment.next_obs(batch, env_noise(subject, env_source, config))
    normal_source, uniform_source = halves(subject, action_source)
    action_noise, anywhere = normal(subject, normal_source, shape), uniform(subject, uniform_source, shape)
    action = oracle.explored(parameters(weights), batch.obs, action_noise, BOX, config)
    at_random = max(0, config.start_steps - inserted) // config.num_envs
    action[:at_random] = (np.array(BOX.low) + 2 * oracle.half_range(BOX) * anywhere)[:at_random]
    yield "real_action", deviation.relative(batch.action, action, floor=1.0)
    yield "real_action/obs", deviation.relative(batch.obs[1:], obs[:-1], floor=1.0)
    final_obs = environment.successor(np, batch.obs.astype(float), batch.action.astype(float))
    yield "real_action/final_obs", deviation.relative(batch.final_obs, final_obs, floor=1.0)


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit; torch and JAX."""
    yield from executions(subject, cases.TINY, "box")
    if subject.spec.family == "torch":
        yield from beside(subject)


def members(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which members of a population, in the subject's mode and unit, are compared with runs alone."""
    return population(subject, cases.TINY, "box", (subject.mode, subject.unit))


def beside(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which torch is run beside the JAX family, with the same noise and rows."""
    from benchback.parity.beside import beside_jax  # it imports torch

    return beside_jax(subject, REFERENCE, _course())


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
