"""Levels of a plug-in whose mathematics has no oracle here: an algorithm without one, or a network.

- L0, if the network's package has a module `oracle` with `forward(weights, tower, obs)` in NumPy: greedy actions, and
  log-probabilities and values of a rollout;
- L3: whole iterations beside another backend, with the same weights, noise and rows;
- L4: modes, units and populations, as for every algorithm.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchback import registry
from benchback.agent import Weights, networks, start
from benchback.parity import deviation
from benchback.parity.beside import beside_jax
from benchback.parity.deviation import Deviation, worst
from benchback.parity.execution import executions
from benchback.parity.iterations import Course
from benchback.parity.ppo import oracle
from benchback.parity.small import small_config
from benchback.parity.subject import Subject

SEED = 7
NUM_ITERATIONS = 4
Forward = Callable[[Weights, str, np.ndarray], np.ndarray]
"""(weights, tower, observations) -> outputs of the tower, in NumPy."""


def levels(subject: Subject) -> Mapping[str, Callable[[Subject], Iterator[Deviation]]]:
    """The levels that can be measured."""
    found = {"L4": modes} | ({"L3": iterations} if reference(subject) else {})
    return found | ({"L0": forward} if numpy_forward(subject.network) else {})


def reference(subject: Subject) -> str | None:
    """The backend to compare with: plain JAX if it has algorithm and network, else the first that has both."""
    having = registry.backends_of(subject.algorithm, subject.network)
    others = [name for name in having if name != subject.backend and registry.BACKENDS[name].family == "jax"]
    return min(others, key=lambda name: name != registry.REFERENCE_BACKEND, default=None)


def numpy_forward(network: str) -> Forward | None:
    """The network's forward pass in NumPy, if its package brings one."""
    module = None if network in registry.NETWORKS.built_in else registry.part(registry.NETWORKS, network, "oracle")
    return module and module.forward


def varied(weights: Weights) -> Weights:
    """The state with all arrays of its networks changed at random, so that no output is near zero."""
    random = np.random.default_rng(SEED)
    changed = {name: x + 0.3 * random.normal(size=x.shape).astype(x.dtype) for name, x in networks(weights).items()}
    return weights | changed


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: what the agent does and expects, against the network's forward pass in NumPy and float64."""
    tower = numpy_forward(subject.network)
    assert tower is not None
    config, kind = small_config(subject)
    agent = subject.agent(config, kind)
    state = varied(agent.export(start(agent, SEED)))
    batch = subject.fetch(agent.rollout(start(agent, SEED, state))[1])
    weights = {name: x.astype(float) for name, x in networks(state).items()}
    obs = batch.obs.reshape(-1, *batch.obs.shape[2:])
    actor = "actor" if any(name.startswith("actor/") for name in weights) else "critic"
    output = tower(weights, actor, obs.astype(float))
    action = subject.greedy(agent, start(agent, SEED, state), obs)
    yield _greedy(action, output, kind)
    if hasattr(batch, "log_prob"):
        log_prob, _, _ = oracle.policy(weights, output, batch.action.reshape(len(obs), *batch.action.shape[2:]))
        yield "log_prob", deviation.relative(batch.log_prob.ravel(), log_prob, floor=1.0)
        value = tower(weights, "critic", obs.astype(float))[:, 0]
        yield "value", deviation.relative(batch.value.ravel(), value, floor=1.0)


def _greedy(action: np.ndarray, output: np.ndarray, kind: str) -> Deviation:
    if kind == "discrete":
        return "greedy", deviation.mismatch(action, output.argmax(-1))
    return "real_action", deviation.relative(action, output, floor=1.0)


def iterations(subject: Subject) -> Iterator[Deviation]:
    """L3: actions, metrics and weights of iterations beside those of another backend."""
    other = reference(subject)
    assert other is not None
    config, kind = small_config(subject)
    theirs = replace(subject, backend=other, mode=registry.BACKENDS[other].best, unit="phase")
    first = theirs.agent(config, kind)
    course = Course(config, kind, SEED, varied(first.export(start(first, SEED))), NUM_ITERATIONS)
    side_by_side = beside_jax if subject.spec.family == "torch" else twins
    return side_by_side(subject, other, course)


def twins(subject: Subject, other: str, course: Course) -> Iterator[Deviation]:
    """Deviations of the iterations of one JAX backend from those of another, given the same state."""
    theirs = replace(subject, backend=other, mode=registry.BACKENDS[other].best, unit="phase")
    sides = [(side, side.agent(course.config, course.kind)) for side in (replace(subject, unit="phase"), theirs)]
    states = [start(agent, course.seed, course.weights) for _, agent in sides]
    found = []
    for _ in range(course.number):
        outcomes: list[tuple[Any, Any, Weights]] = []
        for i, (side, agent) in enumerate(sides):
            states[i], batch = agent.rollout(states[i])
            action = side.fetch(batch).action
            states[i], metrics = agent.update(states[i], batch)
            outcomes.append((action, side.fetch(metrics), agent.export(states[i])))
        (action, metrics, weights), (expected, expected_metrics, expected_weights) = outcomes
        found.append(("action", deviation.unlike(action, expected)))
        found += deviation.of_metrics(metrics, expected_metrics)
        found += deviation.of_weights(weights, deviation.trained(expected_weights))
    yield from worst((f"{quantity}/{other}", off) for quantity, off in found)


def modes(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit, and in the JAX family a population, against mode `none`."""
    return executions(subject, *small_config(subject))
