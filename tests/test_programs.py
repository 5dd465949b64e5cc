"""The structure that makes programs fast, checked instead of their speed."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from conftest import TINY
from representatives import representatives
from test_contract import IN_PROCESS, built

from benchback import envs, registry
from benchback.agent import start
from benchback.math.jax import minibatch_indices

JAX_FAMILY = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]
PLAIN_STATE = [name for name in JAX_FAMILY if name != "nnx"]
"""Backends whose state jax itself can trace."""


def primitives(jaxpr: Any) -> set[str]:
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            for inner in jax.tree.leaves(value, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    found |= primitives(inner)
    return found


@pytest.mark.parametrize("name", PLAIN_STATE)
def test_whole_training_has_no_host_callback_and_no_sort(name: str) -> None:
    make, backend = registry.load("ppo", name)
    agent = make(TINY, envs.make("gymnax/CartPole-v1", TINY.num_envs, "jax"))
    agent = backend.units["chunk"](agent, TINY.num_iterations)
    assert agent.iterate is not None
    found = primitives(jax.make_jaxpr(agent.iterate)(start(agent, 0)).jaxpr)
    assert {"scan", "dot_general"} <= found
    assert not {name for name in found if "callback" in name or "sort" in name}


@pytest.mark.parametrize("name", PLAIN_STATE)
def test_metrics_do_not_grow_with_the_steps_of_an_iteration(name: str) -> None:
    make, backend = registry.load("ppo", name)
    agent = make(TINY, envs.make("gymnax/CartPole-v1", TINY.num_envs, "jax"))
    agent = backend.units["chunk"](agent, 3)
    assert agent.iterate is not None
    _, metrics = jax.eval_shape(agent.iterate, start(agent, 0))
    assert {x.shape for x in jax.tree.leaves(metrics)} == {(3,)}


@pytest.mark.parametrize("name", representatives(JAX_FAMILY))
def test_the_state_is_donated(name: str) -> None:
    agent, backend = built(name, IN_PROCESS[name], "chunk")
    state = start(agent, 0)
    before = [x for x in jax.tree.leaves(state) if x.ndim == 2 and x.dtype == jnp.float32]
    assert before
    assert agent.iterate is not None
    state, metrics = agent.iterate(state)
    backend.block(metrics)
    assert all(x.is_deleted() for x in before)


def test_the_shuffle_does_not_sort() -> None:
    def shuffle(key: jax.Array) -> jax.Array:
        return minibatch_indices(key, batch_size=96, num_epochs=2, num_minibatches=4)

    assert "sort" not in primitives(jax.make_jaxpr(shuffle)(jax.random.key(0)).jaxpr)
    with_sort = primitives(jax.make_jaxpr(lambda key: jax.random.permutation(key, 96))(jax.random.key(0)).jaxpr)
    assert "sort" in with_sort
