"""The five levels for PPO with a recurrent network: discrete actions, then continuous ones, which end in `/box`."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchback.agent import Agent, Weights, start
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.recurrent.sequences import Rollout
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.draws import env_noise, gumbel, minibatch_rows, normal, sources
from benchback.parity.environment import ACTION_SIZE, NUM_ACTIONS
from benchback.parity.execution import best, executions, population
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.iterations import Course, Iteration, iterations
from benchback.parity.oracle import parameters
from benchback.parity.ppo import oracle as feed_forward
from benchback.parity.ppo import recurrent_cases as cases
from benchback.parity.ppo import recurrent_oracle as oracle
from benchback.parity.ppo.cases import Kind, midway
from benchback.parity.ppo.levels import NUM_ITERATIONS, REFERENCE, SEED, boxed, of_gradient_step, real_action
from benchback.parity.subject import Subject

LOOKS = 3
"""Observations that an acting agent is shown one after the other."""


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: what an agent does while it remembers, log-probabilities and values of rollouts, and the initial weights."""
    yield from _forward(subject, subject.chosen(cases.MINIBATCHES), "discrete")
    if subject.thorough:
        yield from boxed(_forward(subject, cases.NORMALISED, "box"))


def _forward(subject: Subject, config: Config, kind: Kind) -> Iterator[Deviation]:
    random = np.random.default_rng(2)
    weights = cases.network(random, kind)
    weights, _ = cases.acquainted(weights, config, random)
    agent = subject.agent(config, kind)
    yield from worst(_acting(subject, agent, weights, kind))
    state = start(agent, SEED, weights)
    # The second rollout begins with a memory.
    for _ in range(2):
        state, batch = agent.rollout(state)
        yield from _rollout(weights, subject.fetch(batch))
    yield from initial_weights(agent.export(start(agent, SEED)), config)


def _acting(subject: Subject, agent: Agent, weights: Weights, kind: Kind) -> Iterator[Deviation]:
    """Greedy actions on observations shown one after the other, the memory handed on."""
    shown = np.random.default_rng(4).normal(size=(LOOKS, cases.ENVS, environment.OBSERVATION_SIZE))
    state, memory = start(agent, SEED, weights), agent.initial_memory(cases.ENVS)
    remembered = np.zeros((cases.ENVS, cases.WIDTH))
    for obs in shown.astype(np.float32):
        memory, action = agent.act(state, memory, subject.place(obs))
        found = subject.fetch({"action": action})["action"]
        remembered = oracle.step(weights, feed_forward.normalise_obs(weights, obs), remembered)
        expected = oracle.greedy(weights, remembered)
        yield ("greedy", deviation.mismatch(found, expected)) if kind == "discrete" else real_action(found, expected)


def _rollout(weights: Weights, batch: Rollout) -> Iterator[Deviation]:
    steps, done = batch.steps, batch.steps.terminated | batch.steps.truncated
    outputs, _, _ = oracle.remembered(weights, feed_forward.normalise_obs(weights, steps.obs), done, batch.memory)
    log_prob = oracle.log_prob(weights, outputs, steps.action)
    yield "log_prob", deviation.relative(steps.log_prob, log_prob, floor=1.0)
    yield "value", deviation.relative(steps.value, oracle.value(weights, outputs), floor=1.0)
    final_obs = environment.successor(np, steps.obs.astype(float), steps.action)[steps.truncated]
    seen = feed_forward.normalise_obs(weights, final_obs)
    final_value = oracle.value(weights, oracle.step(weights, seen, outputs[steps.truncated]))
    yield "final_value", deviation.relative(steps.final_value[steps.truncated], final_value, floor=1.0)


def initial_weights(weights: Weights, config: Config) -> Iterator[Deviation]:
    """Kernels are orthogonal, those of the cell gate by gate; biases are zero, and so is the memory."""
    scale = {"encoder": 2**0.5, "gru": 1.0, "actor/0": 2.0, "critic/0": 2.0, "actor/1": 0.01, "critic/1": 1.0}
    constant = {"bias": 0.0, "bias_n": 0.0, "log_std": config.initial_log_std}
    found = []
    for name, x in parameters(weights).items():
        if (kind := name.split("/")[-1]) in constant:
            found.append((f"initial_{kind.removesuffix('_n')}", deviation.absolute(x, np.full_like(x, constant[kind]))))
            continue
        each = next(size for part, size in scale.items() if name.startswith(f"{part}/"))
        gates = np.split(x, 3, axis=1) if name.startswith("gru/") else [x]
        found += [("initial_kernel", deviation.off_orthogonal(gate / each)) for gate in gates]
    yield from worst([*found, ("initial_bias", deviation.absolute(weights["memory"], 0 * weights["memory"]))])


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step."""
    steps = cases.single_steps() if subject.thorough else cases.single_steps()[:3]
    chosen = (replace(case, config=subject.chosen(case.config)) for case in steps)
    yield from worst(d for case in chosen for d in _one_step(subject, case, "discrete"))
    if subject.thorough:
        yield from boxed(worst(d for case in cases.single_steps("box") for d in _one_step(subject, case, "box")))


def _one_step(subject: Subject, case: cases.Case, kind: Kind) -> Iterator[Deviation]:
    agent = subject.agent(case.config, kind)
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.sequences))
    found = agent.export(state)
    expected, expected_metrics = _learn(case.weights, case.sequences, case.config)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from of_gradient_step(subject, case, found, expected)


def _learn(weights: Weights, sequences: cases.Sequences, config: Config) -> tuple[Weights, oracle.Metrics]:
    """The oracle's gradient step, which leaves the memory of the state alone."""
    after, metrics = oracle.learn(weights, sequences, config)
    return after | {"memory": np.zeros((config.num_envs, cases.WIDTH))}, metrics


def twenty_steps(subject: Subject) -> Iterator[Deviation]:
    """L2: twenty gradient steps, where small differences accumulate."""
    yield from _twenty_steps(subject, subject.chosen(cases.MINIBATCHES), "discrete")
    if subject.thorough:
        yield from boxed(_twenty_steps(subject, cases.MINIBATCHES, "box"))


def _twenty_steps(subject: Subject, config: Config, kind: Kind) -> Iterator[Deviation]:
    weights, data = cases.twenty_steps(kind)
    learn = partial(_learn, config=config)
    return worst(gradient_steps(subject, subject.agent(config, kind), SEED, weights, data, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts, then whole iterations."""
    configs = (cases.MINIBATCHES, cases.PLAIN) if subject.thorough else (cases.MINIBATCHES,)
    yield from worst(d for config in configs for d in _given_rollout(subject, subject.chosen(config), "discrete"))
    yield from _iterations(subject, subject.chosen(cases.MINIBATCHES), "discrete")
    if subject.thorough:
        yield from boxed(worst(_given_rollout(subject, cases.NORMALISED, "box")))
        yield from boxed(_iterations(subject, cases.NORMALISED, "box"))


def _environments(subject: Subject, rng: np.ndarray, config: Config) -> np.ndarray:
    """The environments of each gradient step of an update that begins with this random state."""
    return minibatch_rows(subject, sources(subject, rng, 1)[0], config, config.num_envs)


def _given_rollout(subject: Subject, config: Config, kind: Kind) -> Iterator[Deviation]:
    """An update on a rollout with a memory and every kind of episode end, from a midway Adam state."""
    random = np.random.default_rng(3)
    weights = midway(cases.network(random, kind), random)
    weights, before = cases.acquainted(weights, config, random)
    batch = cases.rollout(weights, config, random)
    agent = subject.agent(config, kind)
    state = start(agent, SEED, weights)
    # A given rollout must end at the first observation of an initial state, with the memory of it: none.
    first = agent.export(state)
    order = _environments(subject, first["rng"], config)
    placed = Rollout(subject.place_all(batch.steps), subject.place(batch.memory))
    state, metrics = agent.update(state, placed)
    given = weights | {"memory": np.zeros(batch.memory.shape)}
    expected, expected_metrics = oracle.update(given, batch, first["env/obs"], config, order, before)
    yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(agent.export(state), expected)


def _iterations(subject: Subject, config: Config, kind: Kind) -> Iterator[Deviation]:
    """Iterations beside the oracle, which has the same noise and takes the same environments."""
    expected = cases.network(np.random.default_rng(5), kind)
    history = iterations(subject, Course(config, kind, SEED, expected, NUM_ITERATIONS))
    expected |= feed_forward.nothing_seen(config)
    memory = np.zeros((config.num_envs, cases.WIDTH))
    deviations, before = [], []
    for found in history:
        steps = found.batch.steps
        obs, done = feed_forward.normalise_obs(expected, steps.obs), steps.terminated | steps.truncated
        outputs, _, following = oracle.remembered(expected, obs, done, memory)
        deviations += [("memory", deviation.absolute(found.batch.memory, memory))]
        deviations += _acted(subject, config, expected, found, outputs)
        order = _environments(subject, found.between["rng"], config)
        given = expected | {"memory": following}, found.batch._replace(memory=memory)
        expected, metrics = oracle.update(*given, found.between["env/obs"], config, order, before)
        deviations += deviation.of_metrics(found.metrics, metrics)
        deviations += deviation.of_weights(found.after, expected) if found.after is not None else ()
        memory, before = following, [*before, steps]
    yield from worst((f"{quantity}/iteration", off) for quantity, off in deviations)


def _acted(
    subject: Subject, config: Config, weights: Weights, found: Iteration, outputs: np.ndarray
) -> Iterator[Deviation]:
    """Deviation of a rollout: its actions, sampled with the same noise, and the observations that followed."""
    steps, real = found.batch.steps, "log_std" in weights
    env_source, action_source = sources(subject, found.before["rng"], 2)
    noise = env_noise(subject, env_source, config)
    yield "real_action/obs", deviation.relative(steps.obs[1:], environment.next_obs(steps, noise)[:-1], floor=1.0)
    draw, size = (normal, ACTION_SIZE) if real else (gumbel, NUM_ACTIONS)
    action = oracle.sampled(weights, outputs, draw(subject, action_source, (*steps.reward.shape, size)))
    yield real_action(steps.action, action) if real else ("action", deviation.mismatch(steps.action, action))


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit; with continuous actions, in float32, the best mode in the widest unit; torch and JAX."""
    yield from executions(subject, cases.TINY)
    if subject.spec.family == "torch":
        yield from beside(subject)
    if subject.dtype == "float32":
        yield from boxed(executions(subject, cases.NORMALISED, "box", [best(subject.spec)]))


def members(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which members of a population, in the subject's mode and unit, are compared with runs alone."""
    return population(subject, subject.chosen(cases.TINY), "discrete", (subject.mode, subject.unit))


def beside(subject: Subject) -> Iterator[Deviation]:
    """The part of L4 in which torch is run beside the JAX family, with the same noise and environments."""
    from benchback.parity.beside import beside_jax  # it imports torch

    weights = cases.network(np.random.default_rng(5))
    return beside_jax(subject, REFERENCE, Course(cases.MINIBATCHES, "discrete", SEED, weights, number=2))


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
