"""The laws of the contract, for every backend in the registry."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from conftest import TINY
from representatives import representatives

from benchback import envs, registry
from benchback.agent import Agent, Backend, start
from benchback.training import advance

JAX = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]

IN_PROCESS = {name: spec.best for name, spec in registry.BACKENDS.items()} | {"pytorch": "env_jit"}
"""A compiled mode of each backend; torch.compile cannot see through the annotation checks of these tests."""


@cache
def built(name: str, mode: str, unit: str = "phase") -> tuple[Agent, Backend]:
    make, backend = registry.load("ppo", name)
    env = envs.make("gymnax/CartPole-v1", TINY.num_envs, registry.BACKENDS[name].family)
    return registry.execute(make(TINY, env), backend, mode, unit, 2), backend


def trained(agent: Agent, seed: int, iterations: int = 2) -> dict[str, np.ndarray]:
    state = start(agent, seed)
    for _ in range(iterations):
        state, _ = advance(agent, state)
    return agent.export(state)


def different(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    assert a.keys() == b.keys()
    return [name for name in a if not np.array_equal(a[name], b[name])]


@pytest.mark.parametrize("name", representatives())
def test_equal_seeds_reproduce_bit_for_bit_and_seeds_differ(name: str) -> None:
    agent, _ = built(name, IN_PROCESS[name])
    first = trained(agent, seed=1)
    assert different(first, trained(agent, seed=1)) == []
    other = different(first, trained(agent, seed=2))
    assert {"actor/0/kernel", "critic/0/kernel", "env/obs", "rng"} <= set(other)


@pytest.mark.parametrize("name", representatives())
def test_exported_weights_are_copies(name: str) -> None:
    agent, _ = built(name, IN_PROCESS[name])
    state = start(agent, 1)
    exported = agent.export(state)
    before = {key: array.copy() for key, array in exported.items()}
    for _ in range(2):
        state, _ = advance(agent, state)
    assert different(before, exported) == []
    assert "actor/0/kernel" in different(exported, agent.export(state))


@pytest.mark.parametrize("name", representatives())
def test_transplanted_weights_are_what_is_exported(name: str) -> None:
    agent, _ = built(name, IN_PROCESS[name])
    weights = trained(agent, seed=1)
    assert different(weights, agent.export(start(agent, 5, weights))) == []


@pytest.mark.parametrize("name", representatives())
def test_rollout_learns_nothing_and_update_leaves_the_environment_alone(name: str) -> None:
    agent, _ = built(name, IN_PROCESS[name])
    state = start(agent, 1)
    before = agent.export(state)
    state, batch = agent.rollout(state)
    after_rollout = agent.export(state)
    assert all(key == "rng" or key.startswith("env/") for key in different(before, after_rollout))
    state, _ = agent.update(state, batch)
    changed = different(after_rollout, agent.export(state))
    assert "actor/0/kernel" in changed
    assert not any(key.startswith("env/") for key in changed)


@pytest.mark.parametrize("name", representatives())
def test_float_hyper_parameters_are_data(name: str) -> None:
    """A state with another learning rate learns otherwise, and nothing is compiled for it."""
    agent, backend = built(name, IN_PROCESS[name])
    usual = trained(agent, seed=1)
    state = with_learning_rate(start(agent, 1), 0.1)
    compiles = backend.compiles()
    for _ in range(2):
        state, _ = advance(agent, state)
    assert backend.compiles() == compiles
    assert "actor/0/kernel" in different(usual, agent.export(state))


def with_learning_rate(state: Any, value: float) -> Any:
    if hasattr(state, "leaves"):  # NNX's state, taken apart
        return jax.tree_util.tree_map_with_path(
            lambda path, x: x * 0 + value if jax.tree_util.keystr(path).endswith("learning_rate") else x, state
        )
    hyper = state.hyper.get_value() if hasattr(state.hyper, "get_value") else state.hyper
    changed = hyper._replace(learning_rate=hyper.learning_rate * 0 + value)
    if hasattr(state, "_replace"):
        return state._replace(hyper=changed)
    if hasattr(state.hyper, "set_value"):
        state.hyper.set_value(changed)
    else:
        state.hyper = changed
    return state


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name, spec in registry.BACKENDS.items()
        for mode in spec.modes
        if spec.family == "jax" and mode not in ("eager", "none")
    ],
)
def test_compiling_modes_really_compile_once(name: str, mode: str) -> None:
    agent, backend = built.__wrapped__(name, mode)
    state = start(agent, 1)
    counts = []
    for _ in range(3):
        before = backend.compiles()
        state, metrics = advance(agent, state)
        backend.block(metrics)
        counts.append(backend.compiles() - before)
    assert counts[0] > 0
    assert counts[2] == 0


@pytest.mark.parametrize("name", representatives(JAX))
def test_a_chunk_is_one_program(name: str) -> None:
    agent, backend = built(name, IN_PROCESS[name], "chunk")
    state = start(agent, 1)
    before = backend.compiles()
    assert agent.iterate is not None
    state, metrics = agent.iterate(state)
    backend.block(metrics)
    assert backend.compiles() - before == 1
    assert np.shape(backend.fetch(metrics)["loss"]) == (2,)


@pytest.mark.parametrize("name", representatives())
def test_metrics_have_the_same_names_in_every_backend(name: str) -> None:
    agent, backend = built(name, IN_PROCESS[name])
    _, metrics = advance(agent, start(agent, 1))
    fetched = backend.fetch(metrics)
    assert set(fetched) == {
        "loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "approximate_kl",
        "clip_fraction",
        "grad_norm",
        "episode_return",
        "episode_length",
        "episodes",
    }
    assert all(np.shape(value) == () for value in fetched.values())


@pytest.mark.slow  # parity tries every switch both ways; this adds that it can be compiled
@pytest.mark.parametrize("name", registry.BACKENDS)
@pytest.mark.parametrize(
    "config", [replace(TINY, truncation="terminal"), replace(TINY, clip_value=False, anneal=False)]
)
def test_switches_of_the_algorithm_run(name: str, config: Any) -> None:
    make, backend = registry.load("ppo", name)
    env = envs.make("gymnax/CartPole-v1", config.num_envs, registry.BACKENDS[name].family)
    agent = registry.execute(make(config, env), backend, IN_PROCESS[name], "phase")
    _, metrics = advance(agent, start(agent, 0))
    assert np.isfinite(backend.fetch(metrics)["loss"])
