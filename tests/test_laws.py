"""Laws of the contract that later programs build on: pure init, declared roles, floats by init, memory, shapes."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TINY
from representatives import most_different, representatives

from benchback import envs, registry
from benchback.agent import Agent, Data, Network, Role, Weights, roles, start
from benchback.backends import torch_state, xla
from benchback.backends.nnx import functional
from benchback.training import advance
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

JAX = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]
PAIRS = [
    pytest.param(algorithm, *name.values, marks=name.marks)
    for algorithm in registry.ALGORITHMS
    for name in (representatives(JAX) if algorithm == "ppo" else most_different(JAX))
]
SMALL = {
    "ppo": {},
    "vpg": {"num_value_steps": 2},
    "dqn": {"replay_capacity": 32, "learning_starts": 8, "minibatch_size": 4},
    "td3": {"replay_capacity": 32, "start_steps": 4, "update_after": 8, "num_updates": 2, "minibatch_size": 4},
}


def config(algorithm: str, **fields: Any) -> Any:
    shared: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "num_iterations": 6, "hidden_sizes": (8, 8)}
    if algorithm == "ppo":
        shared |= {"num_minibatches": 2, "num_epochs": 2}
    return registry.config(algorithm)(**(shared | SMALL[algorithm] | fields))


@cache
def pure(algorithm: str, name: str) -> Agent:
    """The agent as pure functions of arrays, uncompiled."""
    make, _ = registry.load(algorithm, name)
    env = envs.make(registry.ALGORITHMS[algorithm].env, 4, "jax")
    agent = make(config(algorithm), env)
    return functional(agent) if name == "nnx" else agent


def arrays(tree: Any) -> list[np.ndarray]:
    def plain(x: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return [plain(x) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("algorithm", "name"), PAIRS)
def test_init_vmapped_over_keys_equals_as_many_calls(algorithm: str, name: str) -> None:
    agent = pure(algorithm, name)
    keys = jax.random.split(jax.random.key(7), 3)
    together = arrays(jax.vmap(agent.init, in_axes=(0, None))(keys, agent.hyper))
    apart = [arrays(agent.init(key, agent.hyper)) for key in keys]
    assert len(together) == len(apart[0])
    for i, x in enumerate(together):
        np.testing.assert_allclose(x, np.stack([member[i] for member in apart]), rtol=1e-5, atol=1e-6)
    assert any(not np.array_equal(x[0], x[1]) for x in together)


@pytest.mark.parametrize(("algorithm", "name"), PAIRS)
def test_init_vmapped_over_hyper_parameters_puts_each_into_its_state(algorithm: str, name: str) -> None:
    agent = pure(algorithm, name)
    gamma = np.array([0.9, 0.99], np.float32)
    axes = type(agent.hyper)(**(dict.fromkeys(agent.hyper._fields) | {"gamma": 0}))
    states = jax.vmap(agent.init, in_axes=(None, axes))(jax.random.key(0), agent.hyper._replace(gamma=gamma))
    assert sum(x.shape == (2,) and np.allclose(x, gamma) for x in arrays(states)) == 1


@pytest.mark.parametrize(("algorithm", "name"), [*PAIRS[: len(JAX)], *((x, "pytorch") for x in registry.ALGORITHMS)])
def test_floats_enter_by_init_only(algorithm: str, name: str) -> None:
    """An agent made from one config and started with the floats of another learns as if made from the other."""
    make, backend = registry.load(algorithm, name)
    kind = registry.ALGORITHMS[algorithm].env
    other = {"gamma": 0.5, "adam_epsilon": 1e-3}
    if algorithm in ("ppo", "vpg"):
        kind, other = "gymnax/Pendulum-v1", other | {"initial_log_std": -1.0, "gae_lambda": 0.5}
    env = envs.make(kind, 4, registry.BACKENDS[name].family)
    mode = "none" if name == "pytorch" else registry.BACKENDS[name].best
    mine, theirs = (
        registry.execute(make(config(algorithm, **fields), env), backend, mode, "iteration") for fields in ({}, other)
    )
    weights = []
    for agent in (replace(mine, hyper=theirs.hyper), theirs, mine):
        state = start(agent, 3)
        for _ in range(2):
            state, _ = advance(agent, state)
        weights.append(agent.export(state))
    assert all(np.array_equal(weights[0][key], weights[1][key]) for key in weights[1])
    assert any(not np.array_equal(weights[0][key], weights[2][key]) for key in weights[1])


# Roles


@pytest.mark.parametrize("name", registry.BACKENDS)
@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_every_field_of_a_state_declares_its_role(algorithm: str, name: str) -> None:
    make, _ = registry.load(algorithm, name)
    env = envs.make(registry.ALGORITHMS[algorithm].env, 4, registry.BACKENDS[name].family)
    found = make(config(algorithm), env).roles
    assert set(found.values()) >= {Role.NETWORK, Role.OPTIMISER, Role.ENVIRONMENT, Role.RANDOMNESS, Role.HYPER}


class Forgetful(NamedTuple):
    params: Network[Any]
    secret: Any


def test_a_class_with_an_undeclared_field_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match=r"Forgetful\.secret declares no role"):
        roles(Forgetful)


def test_a_state_with_an_undeclared_field_is_neither_exported_nor_loaded() -> None:
    state, known = Forgetful({"actor": jnp.ones(2)}, jnp.ones(2)), {"params": Role.NETWORK}
    with pytest.raises(TypeError, match=r"State\.secret declares no role"):
        xla.export(xla.TREE, state, known)
    with pytest.raises(TypeError, match=r"State\.secret declares no role"):
        xla.load(xla.TREE, state, {}, known)


def test_torch_refuses_an_undeclared_field_too() -> None:
    @dataclass
    class Stateful:
        secret: Data[Any]

    with pytest.raises(TypeError, match=r"State\.secret declares no role"):
        torch_state.export(Stateful(()), {}, {})
    with pytest.raises(TypeError, match=r"State\.secret declares no role"):
        torch_state.load(Stateful(()), {}, {}, {})


def test_nnx_refuses_a_field_that_was_added_later() -> None:
    from flax import nnx

    make, _ = registry.load("ppo", "nnx")
    agent = make(TINY, envs.make("gymnax/CartPole-v1", TINY.num_envs, "jax"))
    state = start(agent, 0)
    state.secret = nnx.Variable(jnp.ones(2))
    with pytest.raises(TypeError, match=r"State\.secret declares no role"):
        agent.export(state)


# Memory


def counting(agent: Agent) -> Agent:
    """The agent with a memory that counts its steps, and acts left while it is below three."""

    def act(state: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        return memory + 1, jnp.where(memory < 3, 0, 1)

    return replace(agent, act=act, initial_memory=lambda num_envs: jnp.zeros(num_envs, jnp.int32))


def test_evaluation_threads_the_memory_through_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """CartPole pushed left thrice and then right lives longer than pushed left always."""
    run = Run(TINY, backend="purejax", mode="jit")
    make, backend = registry.load("ppo", "purejax")
    weights = weights_of(make(TINY, envs.make(run.env, TINY.num_envs, "jax")))

    def forgetful(agent: Agent) -> Agent:
        counted = counting(agent)
        return replace(counted, act=lambda state, memory, obs: (memory, counted.act(state, memory, obs)[1]))

    returns = {}
    for kind in (counting, forgetful):
        monkeypatch.setattr(registry, "load", lambda *_, kind=kind: (lambda *made: kind(make(*made)), backend))
        returns[kind] = evaluate(run, weights, 4)
    assert (returns[counting] > returns[forgetful]).all()


def weights_of(agent: Agent) -> Weights:
    return agent.export(start(agent, 0))


@pytest.mark.parametrize("name", representatives())
def test_networks_without_a_memory_have_an_empty_one(name: str) -> None:
    make, _ = registry.load("ppo", name)
    family = registry.BACKENDS[name].family
    agent = make(TINY, envs.make("gymnax/CartPole-v1", TINY.num_envs, family))
    state = start(agent, 0)
    memory, action = agent.act(state, agent.initial_memory(TINY.num_envs), (state_obs(agent, state, family)))
    assert memory == ()
    assert action.shape == (TINY.num_envs,)


def state_obs(agent: Agent, state: Any, family: str) -> Any:
    obs = agent.export(state)["env/obs"]
    if family == "jax":
        return jnp.asarray(obs)
    import torch

    return torch.tensor(obs)
