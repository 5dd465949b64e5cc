"""Kernel gradients in another order of factors: the same numbers, and the order that was asked for."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from test_programs import JAX_FAMILY

from benchback import envs, registry
from benchback.agent import start
from benchback.backends.kernel_gradients import fast_gradients, over_rows

ROWS = 48
Weights = Any
Network = Callable[[Weights], Callable[..., Any]]


def integers(seed: int, *shape: int) -> jax.Array:
    """Small whole numbers: their sums of products are exact in any order."""
    return jax.random.randint(jax.random.key(seed), shape, -3, 4).astype(jnp.float32)


def whole(weights: Weights) -> Weights:
    return jax.tree.map(lambda x: integers(x.size, *x.shape), weights)


def plain(inputs: int, outputs: int) -> tuple[Weights, Network]:
    weights = integers(1, inputs, outputs), integers(2, outputs)
    return weights, lambda w: lambda x: jax.nn.relu(x @ w[0] + w[1])


def in_linen(inputs: int, outputs: int) -> tuple[Weights, Network]:
    layer = linen.Dense(outputs)
    weights = whole(layer.init(jax.random.key(0), jnp.zeros((1, inputs))))
    return weights, lambda w: lambda x: jax.nn.relu(layer.apply(w, x))


def in_nnx(inputs: int, outputs: int) -> tuple[Weights, Network]:
    definition, weights = nnx.split(nnx.Linear(inputs, outputs, rngs=nnx.Rngs(0)))
    return whole(weights), lambda w: lambda x: jax.nn.relu(nnx.merge(definition, w)(x))


def in_haiku(inputs: int, outputs: int) -> tuple[Weights, Network]:
    layer = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(outputs)(x)))
    weights = whole(layer.init(jax.random.key(0), jnp.zeros((1, inputs))))
    return weights, lambda w: lambda x: jax.nn.relu(layer.apply(w, x))


def in_equinox(inputs: int, outputs: int) -> tuple[Weights, Network]:
    layer = whole(eqx.nn.Linear(inputs, outputs, key=jax.random.key(0)))
    return layer, lambda w: jax.vmap(lambda x: jax.nn.relu(w(x)))


STYLES = (plain, in_linen, in_nnx, in_haiku, in_equinox)
SHAPES = ((6, 6), (5, 9), (9, 2), (7, 1), (1, 7))


def gradients(network: Network, weights: Weights, x: jax.Array, wrap: Callable[..., Any] = fast_gradients) -> Any:
    """A program for the gradients with respect to weights and rows, and its arguments."""
    shape = jax.eval_shape(network(weights), x).shape
    factor = integers(5, *shape)

    def objective(weights: Weights, x: jax.Array) -> jax.Array:
        return jnp.sum(wrap(network(weights))(x) * factor)

    return jax.jit(jax.grad(objective, argnums=(0, 1))), (weights, x)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_gradients_are_the_same(style: Callable[..., Any], inputs: int, outputs: int) -> None:
    weights, network = style(inputs, outputs)
    x = integers(3, ROWS, inputs)
    np.testing.assert_array_equal(fast_gradients(network(weights))(x), network(weights)(x))
    fast, arguments = gradients(network, weights, x)
    usual, _ = gradients(network, weights, x, wrap=lambda f: f)
    found, wanted = fast(*arguments), usual(*arguments)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(wanted))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_product_over_rows(m: int, n: int) -> None:
    x, y = integers(1, ROWS, m), integers(2, ROWS, n)
    np.testing.assert_array_equal(over_rows(x, y), np.asarray(x).T @ np.asarray(y))


@pytest.mark.parametrize("style", STYLES)
def test_the_narrower_factor_stays_on_the_left_in_the_compiled_program(style: Callable[..., Any]) -> None:
    """A head of two outputs: XLA by itself puts its nine inputs on the left wherever its kernel is stored so."""
    weights, network = style(9, 2)
    assert sides_of_products_over_rows(*gradients(network, weights, integers(3, ROWS, 9))) == [(2, 9)]
    usual = sides_of_products_over_rows(*gradients(network, weights, integers(3, ROWS, 9), wrap=lambda f: f))
    assert usual == [(2, 9) if style is in_equinox else (9, 2)], "once XLA chooses well, this can go"


def sides_of_products_over_rows(function: Any, arguments: Any) -> list[tuple[int, ...]]:
    """Widths of the left and the right factor; a result that is laid out by columns is the transposed product."""
    program = function.lower(*arguments).compile().as_text()
    found = re.findall(r"= f32\[(\d+),(\d+)\]\{(\d),\d\} dot\(.*lhs_contracting_dims=\{0\}", program)
    return [(int(m), int(n)) if minor == "1" else (int(n), int(m)) for m, n, minor in found]


def test_several_arguments_and_results_of_a_network() -> None:
    """Rows joined inside, two towers, a kernel that is used twice, and products that are none of rows with a kernel."""
    a, b, square, per_row = integers(1, 5, 3), integers(2, 5, 1), integers(3, 5, 5), integers(6, ROWS, 5)

    def network(weights: Weights) -> Callable[..., Any]:
        def apply(obs: jax.Array, action: jax.Array) -> dict[str, jax.Array]:
            a, b, square, per_row = weights
            both = jnp.concatenate([obs, action], -1)
            hidden = both @ square @ square
            dots = jax.vmap(jnp.dot)(hidden, per_row)
            return {"policy": hidden @ a, "value": (hidden @ b).squeeze(-1), "gram": hidden @ both.T, "dots": dots}

        return apply

    def objective(wrap: Callable[..., Any], weights: Weights) -> jax.Array:
        out = wrap(network(weights))(integers(4, ROWS, 3), integers(5, ROWS, 2))
        assert set(out) == {"policy", "value", "gram", "dots"}
        return out["policy"].sum() + out["value"].sum() + jnp.trace(out["gram"]) + out["dots"].sum()

    found, wanted = (
        jax.grad(partial(objective, wrap))((a, b, square, per_row)) for wrap in (fast_gradients, lambda f: f)
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_many_agents_at_once() -> None:
    weights, network = plain(9, 2)
    many = jax.tree.map(lambda x: jnp.stack([x, 2 * x, -x]), weights)
    x = integers(3, ROWS, 9)
    function, _ = gradients(network, weights, x)
    found, _ = jax.vmap(function, in_axes=(0, None))(many, x)
    for i in range(3):
        alone, _ = function(jax.tree.map(lambda x, i=i: x[i], many), x)
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x, i=i: x[i], found), alone)


def test_what_is_not_compiled_is_left_alone() -> None:
    def network(x: jax.Array) -> jax.Array:
        return x

    with jax.disable_jit():
        assert fast_gradients(network) is network


KERNELS = {"ppo": 6, "vpg": 6, "dqn": 3, "td3": 9}
"""Of two hidden layers and a head in each network that is differentiated."""


@pytest.mark.parametrize("algorithm", KERNELS)
@pytest.mark.parametrize("name", JAX_FAMILY)
def test_every_agent_differentiates_its_networks_so(name: str, algorithm: str) -> None:
    make, backend = registry.load(algorithm, name)
    config = registry.config(algorithm)(num_envs=2, num_steps=8, hidden_sizes=(6, 5))
    env = envs.make("gymnax/Pendulum-v1" if algorithm == "td3" else "gymnax/CartPole-v1", config.num_envs, "jax")
    agent = registry.execute(make(config, env), backend, registry.BACKENDS[name].best, "iteration")
    program = jax.jit(agent.iterate).lower(start(agent, 0)).as_text()
    assert program.count("optimization_barrier") == KERNELS[algorithm]
