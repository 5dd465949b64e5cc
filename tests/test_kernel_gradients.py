"""Reordered gradients of kernels: the same numbers, the order that was asked for, and nothing of it by default."""

import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from representatives import most_different, representatives, slow
from test_programs import JAX_FAMILY

from benchback import envs, registry
from benchback.agent import Gradients, start
from benchback.backends import equinox, haiku, purejax, xla
from benchback.backends.kernel_gradients import CONVOLUTION, DOT_GENERAL, conv_general_dilated, dot_general, over_rows

ROWS = 48
Weights = Any
Network = Callable[[Weights, Any], Any]
"""Weights and rows to outputs."""


def integers(seed: int, *shape: int) -> jax.Array:
    """Small whole numbers: their sums of products are exact in any order."""
    return jax.random.randint(jax.random.key(seed), shape, -3, 4).astype(jnp.float32)


def whole(weights: Weights) -> Weights:
    return jax.tree.map(lambda x: integers(x.size, *x.shape), weights)


def plain(inputs: int, outputs: int, gradients: Gradients) -> tuple[Weights, Network]:
    weights = [{"kernel": integers(1, inputs, outputs), "bias": integers(2, outputs)}]
    return weights, lambda w, x: purejax.mlp(w, x, gradients=gradients)


def in_linen(inputs: int, outputs: int, gradients: Gradients) -> tuple[Weights, Network]:
    layer = linen.Dense(outputs, dot_general=DOT_GENERAL[gradients])
    weights = whole(layer.init(jax.random.key(0), jnp.zeros((1, inputs))))
    return weights, layer.apply


def in_nnx(inputs: int, outputs: int, gradients: Gradients) -> tuple[Weights, Network]:
    layer = nnx.Linear(inputs, outputs, dot_general=DOT_GENERAL[gradients], rngs=nnx.Rngs(0))
    definition, weights = nnx.split(layer)
    return whole(weights), lambda w, x: nnx.merge(definition, w)(x)


def in_haiku(inputs: int, outputs: int, gradients: Gradients) -> tuple[Weights, Network]:
    init = hk.initializers.Orthogonal()
    layer = hk.without_apply_rng(hk.transform(lambda x: haiku.LINEAR[gradients](outputs, w_init=init, name="layer")(x)))
    weights = whole(layer.init(jax.random.key(0), jnp.zeros((1, inputs))))
    return weights, layer.apply


def in_equinox(inputs: int, outputs: int, gradients: Gradients) -> tuple[Weights, Network]:
    layer = whole(equinox.LINEAR[gradients](inputs, outputs, key=jax.random.key(0)))
    return layer, lambda w, x: jax.vmap(w)(x)


STYLES = (plain, in_linen, in_nnx, in_haiku, in_equinox)
SHAPES = ((6, 6), (5, 9), (9, 2), (7, 1), (1, 7))


def gradients_of(network: Network, weights: Weights, x: jax.Array) -> Any:
    """A program for the gradients with respect to weights and rows, and its arguments."""
    factor = integers(5, *jax.eval_shape(network, weights, x).shape)

    def objective(weights: Weights, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.nn.relu(jnp.asarray(network(weights, x))) * factor)

    return jax.jit(jax.grad(objective, argnums=(0, 1))), (weights, x)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_gradients_are_the_same(style: Callable[..., Any], inputs: int, outputs: int) -> None:
    weights, network = style(inputs, outputs, "reordered")
    _, usual_network = style(inputs, outputs, "framework")
    usual_weights = jax.tree.unflatten(
        jax.tree.structure(style(inputs, outputs, "framework")[0]), jax.tree.leaves(weights)
    )
    x = integers(3, ROWS, inputs)
    np.testing.assert_array_equal(network(weights, x), usual_network(usual_weights, x))
    fast, arguments = gradients_of(network, weights, x)
    usual, usual_arguments = gradients_of(usual_network, usual_weights, x)
    found, wanted = jax.tree.leaves(fast(*arguments)), jax.tree.leaves(usual(*usual_arguments))
    assert any(np.any(leaf) for leaf in wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_product_over_rows(m: int, n: int) -> None:
    x, y = integers(1, ROWS, m), integers(2, ROWS, n)
    np.testing.assert_array_equal(over_rows(x, y), np.asarray(x).T @ np.asarray(y))


@pytest.mark.parametrize("style", STYLES)
def test_the_narrower_factor_stays_on_the_left_in_the_compiled_program(style: Callable[..., Any]) -> None:
    """A head of two outputs: XLA by itself puts its nine inputs on the left wherever its kernel is stored so."""

    def sides(gradients: Gradients) -> list[tuple[int, ...]]:
        weights, network = style(9, 2, gradients)
        return sides_of_products_over_rows(*gradients_of(network, weights, integers(3, ROWS, 9)))

    assert sides("reordered") == [(2, 9)]
    assert sides("framework") == [(2, 9) if style is in_equinox else (9, 2)], "once XLA chooses well, this can go"


@pytest.mark.parametrize("style", STYLES)
def test_gradients_of_similar_widths_are_computed_as_they_are_stored(style: Callable[..., Any]) -> None:
    """120 to 84: transposing the gradient, for moments and norm, costs more than the order of the factors gains."""
    weights, network = style(12, 8, "reordered")
    found = sides_of_products_over_rows(*gradients_of(network, weights, integers(3, ROWS, 12)))
    assert found == [(8, 12) if style is in_equinox else (12, 8)]


def sides_of_products_over_rows(function: Any, arguments: Any) -> list[tuple[int, ...]]:
    """Widths of the left and the right factor; a result that is laid out by columns is the transposed product."""
    program = function.lower(*arguments).compile().as_text()
    found = re.findall(r"= f32\[(\d+),(\d+)\]\{(\d),\d\} dot\(", program)
    over_rows = [(int(m), int(n), minor) for m, n, minor in found if str(ROWS) not in (m, n)]
    return [(m, n) if minor == "1" else (n, m) for m, n, minor in over_rows]


@pytest.mark.parametrize(
    ("shape", "other", "dimension_numbers", "options"),
    [
        ((ROWS, 5), (5, 3), (((1,), (0,)), ((), ())), {"precision": jax.lax.Precision.HIGHEST}),
        ((ROWS, 5), (3, 5), (((1,), (1,)), ((), ())), {}),
        ((2, ROWS, 5), (5, 3), (((2,), (0,)), ((), ())), {}),
        ((ROWS, 5), (5, 2, 3), (((1,), (0,)), ((), ())), {}),
    ],
)
def test_other_products_are_left_to_jax(shape: Any, other: Any, dimension_numbers: Any, options: Any) -> None:
    x, y = integers(1, *shape), integers(2, *other)

    def differentiated(product: Callable[..., Any]) -> str:
        return str(jax.make_jaxpr(jax.grad(lambda y: product(x, y, dimension_numbers, **options).sum()))(y))

    assert differentiated(dot_general) == differentiated(jax.lax.dot_general)


def test_a_layer_of_equinox_is_called_on_one_row_too() -> None:
    layer, _ = in_equinox(5, 3, "reordered")
    x = integers(3, 5)
    np.testing.assert_array_equal(layer(x), layer.weight @ x + layer.bias)
    many = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), layer)
    found = eqx.filter_vmap(lambda layer, x: layer(x), in_axes=(0, None))(many, x)
    np.testing.assert_array_equal(found, jnp.stack([layer(x), 2 * layer(x)]))


@pytest.mark.parametrize("style", STYLES)
def test_many_agents_at_once(style: Callable[..., Any]) -> None:
    weights, network = style(9, 2, "reordered")
    many = jax.tree.map(lambda x: jnp.stack([x, 2 * x, -x]), weights)
    x = integers(3, ROWS, 9)
    function, _ = gradients_of(network, weights, x)
    found, _ = jax.vmap(function, in_axes=(0, None))(many, x)
    for i in range(3):
        alone, _ = function(jax.tree.map(lambda x, i=i: x[i], many), x)
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x, i=i: x[i], found), alone)


def convolving(backend: str, stride: int, gradients: Gradients) -> tuple[Weights, Network]:
    """Weights and the convolution of images [B H W C] as a backend has it; weights are equal but for their layout."""
    kernel, bias = integers(1, 3, 2, 2, 4), integers(2, 4)
    if backend == "purejax":
        return kernel, lambda w, x: purejax.CONVOLUTION[gradients](x, w, stride) + bias
    if backend == "equinox":
        layer = equinox.CONVOLUTION[gradients](2, 4, (3, 2), stride, key=jax.random.key(0))
        layer = eqx.tree_at(lambda x: x.bias, layer, bias[:, None, None])
        return kernel.transpose(3, 2, 0, 1), lambda w, x: jax.vmap(eqx.tree_at(lambda x: x.weight, layer, w))(
            x.transpose(0, 3, 1, 2)
        ).transpose(0, 2, 3, 1)
    if backend == "haiku":
        layer = hk.without_apply_rng(
            hk.transform(lambda x: haiku.CONVOLUTION[gradients](4, (3, 2), stride, padding="VALID", name="layer")(x))
        )
        return {"w": kernel, "b": bias}, lambda w, x: layer.apply({"layer": w}, x)
    hook = CONVOLUTION[gradients]
    if backend == "linen":
        layer = linen.Conv(4, (3, 2), stride, padding="VALID", conv_general_dilated=hook)
        return {"kernel": kernel, "bias": bias}, lambda w, x: layer.apply({"params": w}, x)
    layer = nnx.Conv(2, 4, (3, 2), stride, padding="VALID", conv_general_dilated=hook, rngs=nnx.Rngs(0))
    definition, weights = nnx.split(layer)
    return jax.tree.map(lambda x: kernel if x.ndim > 1 else bias, weights), lambda w, x: nnx.merge(definition, w)(x)


@pytest.mark.parametrize("backend", JAX_FAMILY)
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_convolutions_are_the_same(backend: str, stride: int) -> None:
    """Images of 8 x 7: a stride of 2 leaves a row that no place of the kernel reaches."""
    weights, network = convolving(backend, stride, "reordered")
    usual_weights, usual_network = convolving(backend, stride, "framework")
    x = integers(3, 5, 8, 7, 2)
    np.testing.assert_array_equal(network(weights, x), usual_network(usual_weights, x))
    fast, arguments = gradients_of(network, weights, x)
    usual, usual_arguments = gradients_of(usual_network, usual_weights, x)
    found, wanted = jax.tree.leaves(fast(*arguments)), jax.tree.leaves(usual(*usual_arguments))
    assert all(np.any(leaf) for leaf in wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backend", JAX_FAMILY)
def test_convolutions_in_a_loop_keep_the_fast_order(backend: str) -> None:
    """XLA's routine for CPUs takes one order of dimensions only; inside of loops others are computed entry by entry."""

    def orders(gradients: Gradients) -> set[str]:
        weights, network = convolving(backend, 1, gradients)
        function, (weights, x) = gradients_of(network, weights, integers(3, 5, 8, 7, 2))

        def step(carry: Any, _: None) -> tuple[Any, None]:
            return jax.tree.map(jnp.subtract, carry, function(*carry)), None

        loop = jax.jit(lambda carry: jax.lax.scan(step, carry, None, 3))
        program = str(loop.lower((weights, x)).compile().as_text())
        return set(re.findall(r"dim_labels=([\w>-]+)", program))

    assert orders("reordered") == {"b01f_01io->b01f"}
    assert orders("framework") - orders("reordered"), "once XLA reorders inside of loops, all of this can go"


@pytest.mark.parametrize(
    ("padding", "options"),
    [
        ("SAME", {}),
        ("VALID", {"rhs_dilation": (2, 2)}),
        ("VALID", {"precision": jax.lax.Precision.HIGHEST}),
        ("VALID", {"dimension_numbers": ("NHWC", "OHWI", "NHWC")}),
    ],
)
def test_other_convolutions_are_left_to_jax(padding: str, options: Any) -> None:
    x, kernel = integers(1, 5, 8, 8, 2), integers(2, 2, 2, 2, 2)
    options = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")} | options

    def differentiated(convolution: Callable[..., Any]) -> str:
        return str(
            jax.make_jaxpr(jax.grad(lambda kernel: convolution(x, kernel, (1, 1), padding, **options).sum()))(kernel)
        )

    assert differentiated(conv_general_dilated) == differentiated(jax.lax.conv_general_dilated)


@pytest.mark.parametrize("backend", ["purejax", "equinox"])
def test_convolutions_of_many_agents_at_once(backend: str) -> None:
    weights, network = convolving(backend, 2, "reordered")
    many, x = jnp.stack([weights, 2 * weights, -weights]), integers(3, 5, 8, 7, 2)
    function, _ = gradients_of(network, weights, x)
    found, _ = jax.vmap(function, in_axes=(0, None))(many, x)
    for i in range(3):
        np.testing.assert_array_equal(found[i], function(many[i], x)[0])


KERNELS = {"ppo": 6, "vpg": 6, "dqn": 3, "td3": 9}
"""Of two hidden layers and a head in each network that is differentiated."""


def built(algorithm: str, name: str, gradients: Gradients) -> Any:
    make, backend = registry.load(algorithm, name, gradients)
    config = registry.config(algorithm)(num_envs=2, num_steps=8, hidden_sizes=(6, 5))
    env = envs.make("gymnax/Pendulum-v1" if algorithm == "td3" else "gymnax/CartPole-v1", config.num_envs, "jax")
    return registry.execute(make(config, env), backend, registry.BACKENDS[name].best, "iteration")


EVERY_AGENT = [
    pytest.param(*name.values, algorithm, marks=name.marks)
    for algorithm in KERNELS
    for name in (representatives(JAX_FAMILY) if algorithm == "ppo" else most_different(JAX_FAMILY))
]


@pytest.mark.parametrize(("name", "algorithm"), EVERY_AGENT)
def test_every_agent_reorders_its_gradients_only_when_asked(name: str, algorithm: str) -> None:
    def barriers(gradients: Gradients) -> int:
        agent = built(algorithm, name, gradients)
        state = jax.eval_shape(agent.init, agent.key(0), agent.hyper)
        return jax.jit(agent.iterate).lower(state).as_text().count("optimization_barrier")

    assert barriers("framework") == 0
    # One around what is transposed, and one around the product.
    assert barriers("reordered") == 2 * KERNELS[algorithm]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["purejax", *(slow(name) for name in JAX_FAMILY if name != "purejax")])
def test_reordered_gradients_train_the_same_network(name: str) -> None:
    def trained(gradients: Gradients) -> dict[str, np.ndarray]:
        agent = built("ppo", name, gradients)
        with xla.optimising(False):
            state, _ = agent.iterate(start(agent, 0))
        return agent.export(state)

    usual, reordered = trained("framework"), trained("reordered")
    for array in [x for x in usual if x.startswith(("actor/", "critic/"))]:
        np.testing.assert_allclose(reordered[array], usual[array], rtol=1e-4, atol=1e-6, err_msg=array)
