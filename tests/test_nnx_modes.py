"""What is NNX's own: six modes over one object that is mutated in place.

Parity of the backends and the laws of the contract are tested for all of them elsewhere.
"""

import gc
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax.nnx import graphlib

from benchback.agent import Agent, Metrics, Weights, start
from benchback.algorithms.ppo import linen, nnx
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch
from benchback.backends import xla
from benchback.backends.nnx import backend
from benchback.envs import gymnax
from benchback.envs.interface import Env

CONFIG = Config(num_envs=4, num_steps=8, num_minibatches=2, num_epochs=2, hidden_sizes=(8, 8), num_iterations=10)
ITERATIONS = 2
COMPILING = ("jit", "cached_partial", "jit_partial", "split")
BINDING = ("cached_partial", "jit_partial")
# In eager mode optax raises Adam's decay to a known integer by products, elsewhere by a power.
TOLERANCE = 1e-6


class Run(NamedTuple):
    metrics: Metrics
    """Of the first iterations, one value for each."""
    weights: Weights
    """After them."""
    first_compiles: int
    later_compiles: int
    live_arrays: list[int]
    """Arrays alive after each later call."""


@cache
def run(mode: str, unit: str) -> Run:
    """A few iterations from weights that linen made, then three more calls where they are cheap."""
    agent = backend.modes[mode](backend.units[unit](nnx.make(CONFIG, environment()), ITERATIONS))
    state = start(agent, 0, linen_weights(0))
    compiles, fetched, live_arrays = [backend.compiles()], [], []
    for _ in range(1 if unit == "chunk" else ITERATIONS):
        state, metrics = advance(agent, state)
        fetched.append(backend.fetch(metrics))
        compiles.append(backend.compiles())
    weights = agent.export(state)
    for _ in range(0 if mode == "eager" else 3):
        state, metrics = advance(agent, state)
        backend.block((state, metrics))
        compiles.append(backend.compiles())
        live_arrays.append(len(jax.live_arrays()))
    by_iteration = {name: np.ravel([metrics[name] for metrics in fetched]) for name in fetched[0]}
    return Run(by_iteration, weights, compiles[1] - compiles[0], compiles[-1] - compiles[1], live_arrays)


def advance(agent: Agent, state: Any) -> tuple[Any, Metrics]:
    if agent.iterate is not None:
        return agent.iterate(state)
    state, batch = agent.rollout(state)
    return agent.update(state, batch)


@cache
def environment() -> Env:
    return gymnax.make("CartPole-v1", CONFIG.num_envs)


@cache
def linen_weights(seed: int) -> Weights:
    agent = linen.make(CONFIG, environment())
    return agent.export(start(agent, seed))


@cache
def minibatch(seed: int) -> Minibatch:
    random, size = np.random.default_rng(seed), 16
    obs = random.normal(size=(size, environment().observation_size)).astype(np.float32)
    action = random.integers(environment().actions.size, size=size).astype(np.int32)
    return jax.device_put(Minibatch(obs, action, *random.normal(size=(4, size)).astype(np.float32)))


def assert_close(actual: Metrics, expected: Metrics) -> None:
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], err_msg=name, rtol=TOLERANCE, atol=TOLERANCE)


# Parity compares the eager mode, too; it takes as long as all others, and cannot tell one unit from another.
MODES = [pytest.param("eager", marks=pytest.mark.slow), *COMPILING]


# The modes are functions of an agent's functions, and so are the units: the shortest and the widest tell the rest.
UNITS = [pytest.param(unit, marks=[pytest.mark.slow] * (unit == "iteration")) for unit in backend.units]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_computes_the_numbers_of_none(mode: str, unit: str) -> None:
    assert_close(run(mode, unit).weights, run("none", unit).weights)
    assert_close(run(mode, unit).metrics, run("none", unit).metrics)


@pytest.mark.parametrize("unit", ["iteration", "chunk"])
def test_a_unit_computes_the_numbers_of_phase(unit: str) -> None:
    assert_close(run("none", unit).weights, run("none", "phase").weights)
    assert_close(run("none", unit).metrics, run("none", "phase").metrics)


@pytest.mark.parametrize("unit", backend.units)
@pytest.mark.parametrize("mode", COMPILING)
def test_a_compiling_mode_compiles_one_program_per_function(mode: str, unit: str) -> None:
    assert run(mode, unit).first_compiles == (2 if unit == "phase" else 1)


@pytest.mark.parametrize("unit", backend.units)
@pytest.mark.parametrize("mode", ["none", *COMPILING])
def test_nothing_compiles_in_steady_state(mode: str, unit: str) -> None:
    assert run(mode, unit).later_compiles == 0


@pytest.mark.parametrize("unit", backend.units)
@pytest.mark.parametrize("mode", ["none", *COMPILING])
def test_repeated_calls_leave_no_arrays_behind(mode: str, unit: str) -> None:
    assert len(set(run(mode, unit).live_arrays)) == 1


@pytest.mark.parametrize(("mode", "walks"), [("jit", True), *((mode, False) for mode in COMPILING[1:])])
def test_only_jit_walks_the_state_object_at_each_call(mode: str, walks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = backend.modes[mode](nnx.make(CONFIG, environment()))
    state = start(agent, 0, linen_weights(0))
    agent.act(state, (), minibatch(0).obs)
    walked, flatten = [], graphlib.flatten
    monkeypatch.setattr(graphlib, "flatten", lambda *a, **k: walked.append(a) or flatten(*a, **k))
    agent.act(state, (), minibatch(0).obs)
    assert bool(walked) == walks


def test_equal_weights_and_keys_give_linens_actions_and_weights() -> None:
    reference = xla.jit(linen.make(CONFIG, environment()))
    agent = backend.modes["split"](nnx.make(CONFIG, environment()))
    expected, actual = start(reference, 0, linen_weights(0)), start(agent, 0, linen_weights(0))
    for _ in range(ITERATIONS):
        expected, expected_batch = reference.rollout(expected)
        actual, batch = agent.rollout(actual)
        np.testing.assert_array_equal(batch.action, expected_batch.action)
        expected, expected_metrics = reference.update(expected, expected_batch)
        actual, metrics = agent.update(actual, batch)
        assert_close(metrics, expected_metrics)
    assert_close(agent.export(actual), reference.export(expected))


def cost(agent: Agent) -> Any:
    iterate: Any = agent.iterate
    return iterate.lower(start(agent, 0)).cost_analysis()


def test_the_program_does_linens_work_and_no_more() -> None:
    reference = xla.jit(xla.chunk(linen.make(CONFIG, environment()), ITERATIONS))
    agent = backend.modes["split"](backend.units["chunk"](nnx.make(CONFIG, environment()), ITERATIONS))
    expected, actual = (cost(a) for a in (reference, agent))
    assert actual["flops"] == pytest.approx(expected["flops"], rel=1e-3)
    assert actual["bytes accessed"] == pytest.approx(expected["bytes accessed"], rel=1e-2)


@pytest.mark.parametrize("mode", BINDING)
def test_two_state_objects_taken_in_turn_do_not_mix(mode: str) -> None:
    reference = xla.jit(linen.make(CONFIG, environment()))
    agent = backend.modes[mode](nnx.make(CONFIG, environment()))
    actual = {seed: start(agent, seed, linen_weights(seed)) for seed in (0, 1)}
    expected = {seed: start(reference, seed, linen_weights(seed)) for seed in actual}
    for step in range(3):
        for seed in actual:
            actual[seed], _ = agent.learn(actual[seed], minibatch(step))
            expected[seed], _ = reference.learn(expected[seed], minibatch(step))
    for seed in actual:
        assert_close(agent.export(actual[seed]), reference.export(expected[seed]))


def test_cached_partial_binds_another_state_object_without_compiling() -> None:
    agent = backend.modes["cached_partial"](nnx.make(CONFIG, environment()))
    first, second = (start(agent, seed, linen_weights(seed)) for seed in (0, 1))
    agent.learn(first, minibatch(0))
    compiles = backend.compiles()
    agent.learn(second, minibatch(0))
    assert backend.compiles() == compiles


@pytest.mark.parametrize("mode", BINDING)
def test_a_binding_ends_with_its_state_object(mode: str) -> None:
    agent = backend.modes[mode](nnx.make(CONFIG, environment()))
    live_arrays = []
    for seed in (0, 1, 0):
        agent.learn(start(agent, seed, linen_weights(seed)), minibatch(0))
        gc.collect()
        live_arrays.append(len(jax.live_arrays()))
    assert live_arrays[2] == live_arrays[1]
