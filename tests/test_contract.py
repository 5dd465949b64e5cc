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
from benchback.parity.laws import LAWS, compiles_once
from benchback.training import advance

JAX = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]

IN_PROCESS = {name: spec.best for name, spec in registry.BACKENDS.items()} | {"pytorch": "env_jit"}
"""A compiled mode of each backend; torch.compile cannot see through the annotation checks of these tests."""


@cache
def built(name: str, mode: str, unit: str = "phase") -> tuple[Agent, Backend]:
    make, backend = registry.load("ppo", name)
    env = envs.make("gymnax/CartPole-v1", TINY.num_envs, registry.BACKENDS[name].family)
    return registry.execute(make(TINY, env), backend, mode, unit, 2), backend


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", representatives())
def test_backend_keeps_the_law(name: str, law: str) -> None:
    assert LAWS[law](*built(name, IN_PROCESS[name]))


def ignoring_its_seed(agent: Agent) -> Agent:
    return replace(agent, key=lambda seed: agent.key(0))


def exporting_views(agent: Agent) -> Agent:
    """Every export is the same arrays, filled anew."""
    kept: dict[str, np.ndarray] = {}

    def export(state: Any) -> dict[str, np.ndarray]:
        for name, x in agent.export(state).items():
            np.copyto(kept.setdefault(name, x.copy()), x)
        return kept

    return replace(agent, export=export)


def loading_nothing(agent: Agent) -> Agent:
    return replace(agent, load=lambda state, weights: state)


def learning_in_its_rollout(agent: Agent) -> Agent:
    def rollout(state: Any) -> tuple[Any, Any]:
        state, batch = agent.rollout(state)
        return agent.update(state, jax.tree.map(jax.numpy.copy, batch))[0], batch

    return replace(agent, rollout=rollout)


def with_constant_floats(agent: Agent) -> Agent:
    return replace(agent, init=lambda key, hyper: agent.init(key, agent.hyper))


def reporting_each_environment(agent: Agent) -> Agent:
    def update(state: Any, batch: Any) -> tuple[Any, Any]:
        state, metrics = agent.update(state, batch)
        return state, {name: x[None] for name, x in metrics.items()}

    return replace(agent, update=update)


BREAKERS = {
    "seeds_decide": ignoring_its_seed,
    "exports_are_copies": exporting_views,
    "loads_what_it_exports": loading_nothing,
    "phases_keep_apart": learning_in_its_rollout,
    "floats_are_data": with_constant_floats,
    "metrics_are_scalars": reporting_each_environment,
}


@pytest.mark.parametrize("law", LAWS)
def test_an_agent_that_breaks_the_law_is_noticed(law: str) -> None:
    agent, backend = built("purejax", IN_PROCESS["purejax"])
    assert not LAWS[law](BREAKERS[law](agent), backend)


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
    assert compiles_once(*built.__wrapped__(name, mode))


def test_a_mode_that_compiles_nothing_is_noticed() -> None:
    agent, backend = built("purejax", "jit")
    advance(agent, start(agent, 1))
    assert not compiles_once(agent, backend)


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
