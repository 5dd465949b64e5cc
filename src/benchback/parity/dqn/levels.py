"""The five levels for DQN."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchback.agent import Weights, start
from benchback.algorithms.dqn.config import Config
from benchback.algorithms.dqn.loss import Minibatch
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, section, worst
from benchback.parity.dqn import cases, oracle
from benchback.parity.draws import env_noise, exploration, integers, sources
from benchback.parity.execution import executions, population
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.iterations import Course, Iteration, iterations
from benchback.parity.oracle import parameters, unscaled_kernels
from benchback.parity.subject import Subject

SEED = 7
REFERENCE = "purejax"
"""The backend of the JAX family that torch is run beside, with the same noise and rows."""
NUM_ITERATIONS = 6


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions of `act` and of a rollout, the rollout's next observations, and the initial weights."""
    random = np.random.default_rng(2)
    weights = cases.network(random, subject.network)
    obs = cases.minibatch(random, weights, subject.network).obs
    # Exploration is data: the programs are those of the other levels.
    agent = replace(subject.agent(_chosen(subject, cases.BASE)), hyper=_greedy(subject).hyper)
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    batch = subject.fetch(agent.rollout(start(agent, SEED, weights))[1])
    taken = deviation.mismatch(batch.action, oracle.greedy(weights, batch.obs))
    yield from worst([("greedy", deviation.mismatch(action, oracle.greedy(weights, obs))), ("greedy", taken)])
    led_to = environment.successor(np, batch.obs.astype(float), batch.action)
    yield "final_obs", deviation.absolute(batch.final_obs, led_to)
    yield from initial_weights(agent.export(start(agent, SEED)), subject.network)


def _chosen(subject: Subject, config: Config) -> Config:
    """The configuration of a case with the options under test, sized for the network."""
    return cases.sized(subject.chosen(config), subject.network)


def _greedy(subject: Subject) -> Config:
    """The configuration without exploration."""
    knots = subject.options.get("epsilons", ())
    return replace(_chosen(subject, cases.GREEDY), epsilons=(0.0,) * len(knots))


def initial_weights(weights: Weights, network: str) -> Iterator[Deviation]:
    """Kernels of MLPs are LeCun normal, of others orthogonal with scale sqrt 2, 1 for the output layer.

    Biases are zero; targets equal.
    """
    found = []
    for name, x in parameters(weights).items():
        found.append(("initial_target", deviation.mismatch(weights.get(f"target/{name}", np.nan), x)))
        if name.endswith("bias"):
            found.append(("initial_bias", deviation.absolute(x, np.zeros_like(x))))
    if network == "mlp":
        kernels = [x for name, x in parameters(weights).items() if name.endswith("kernel")]
        return worst([*found, ("initial_spread", deviation.off_lecun_normal(kernels))])
    kernels = unscaled_kernels(parameters(weights), {"critic": 1.0})
    return worst([*found, *(("initial_kernel", deviation.off_orthogonal(x)) for x in kernels)])


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    # Another option, or observations of another type, is another program.
    every = cases.single_steps(subject.network)
    base = cases.sized(cases.BASE, subject.network)
    steps = [x for x in every if x.config == base and x.minibatch.obs.dtype != np.bool_]
    chosen = (replace(case, config=subject.chosen(case.config)) for case in (every if subject.thorough else steps))
    return worst(d for case in chosen for d in _one_step(subject, case))


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
    config = _chosen(subject, cases.BASE)
    weights, minibatches = cases.twenty_steps(config, subject.network)
    learn = partial(oracle.learn, config=config)
    return worst(gradient_steps(subject, subject.agent(config), SEED, weights, minibatches, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole iterations from an empty replay until it has wrapped around and the target is updated."""
    configs = (cases.BASE, cases.OTHER) if subject.thorough else (cases.BASE,)
    return worst(d for config in configs for d in _iterations(subject, _chosen(subject, config)))


def _course(subject: Subject, config: Config) -> Course:
    random = np.random.default_rng(5)
    weights = cases.midway(cases.network(random, subject.network), random)
    return Course(config, "discrete", SEED, weights, NUM_ITERATIONS)


def _iterations(subject: Subject, config: Config) -> Iterator[Deviation]:
    """Iterations beside the oracle, which has the same noise and takes the same rows."""
    course = _course(subject, config)
    expected, history = course.weights, []
    for found in iterations(subject, course):
        yield from _acted(subject, config, expected, len(history), found)
        order = _order(subject, config, found.between["rng"], len(history) + config.batch_size)
        expected, history, metrics = oracle.update(expected, history, found.batch, config, order)
        yield from deviation.of_metrics(found.metrics, metrics)
        if found.after is not None:
            yield from deviation.of_weights(found.after, expected)
            yield from _replay(found.after, history, config)


def _acted(subject: Subject, config: Config, weights: Weights, inserted: int, found: Iteration) -> Iterator[Deviation]:
    """Deviation of a rollout: its actions, explored with the same noise, and the observations that followed."""
    batch = found.batch
    env_source, action_source = sources(subject, found.before["rng"], 2)
    noise = env_noise(subject, env_source, config)
    yield "real_action/obs", deviation.relative(batch.obs[1:], environment.next_obs(batch, noise)[:-1], floor=1.0)
    epsilon, shape = oracle.epsilon(inserted, config), batch.reward.shape
    number, other = exploration(subject, action_source, shape, epsilon, environment.NUM_ACTIONS)
    action = oracle.explored(weights, batch.obs, number, other, epsilon)
    yield "action", deviation.mismatch(batch.action, action)


def _replay(found: Weights, history: list[oracle.Row], config: Config) -> Iterator[Deviation]:
    """Deviation of the replay, row by row, and of the number of inserted rows."""
    held = oracle.ring(history, config.replay_capacity)
    for field, column in zip(Minibatch._fields, zip(*held, strict=True), strict=True):
        yield "replay", deviation.mismatch(found[f"replay/data/{field}"][: len(held)], np.stack(column))
    yield "replay", deviation.mismatch(found["replay/inserted"], len(history))


def _order(subject: Subject, config: Config, rng: np.ndarray, inserted: int) -> np.ndarray:
    """The rows that each gradient step samples from a replay with that many inserted rows."""
    shape, written = (config.num_updates, config.minibatch_size), min(inserted, config.replay_capacity)
    return integers(subject, sources(subject, rng, 1)[0], shape, written)


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit; torch and JAX."""
    yield from executions(subject, cases.sized(cases.TINY, subject.network))
    if subject.spec.family == "torch":
        yield from beside(subject)


def members(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which members of a population, in the subject's mode and unit, are compared with runs alone."""
    return population(subject, _chosen(subject, cases.TINY), "discrete", (subject.mode, subject.unit))


def beside(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which torch is run beside the JAX family, with the same noise and rows."""
    from benchback.parity.beside import beside_jax  # it imports torch

    return beside_jax(subject, REFERENCE, _course(subject, cases.sized(cases.BASE, subject.network)))


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
