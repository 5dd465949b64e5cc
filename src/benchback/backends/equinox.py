"""Equinox: the model is a callable pytree."""

from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from benchback.agent import Agent, Backend, Gradients, Weights, compiled
from benchback.backends import xla
from benchback.backends.kernel_gradients import image_convolution, row_product
from benchback.math.jax import gaussian
from benchback.plugins import Networks
from benchback.plugins.towers import MINATAR, NATURE, Tower


def filter_jit(agent: Agent) -> Agent:
    """Mode: eqx.filter_jit, which separates arrays from static values at each call."""

    def compile(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
        if not consumes:
            return eqx.filter_jit(function)
        # filter_jit can donate all arguments but the first, so the state is passed second.
        swapped = eqx.filter_jit(lambda rest, state: function(state, *rest), donate="all-except-first")
        return wraps(function)(lambda state, *rest: swapped(rest, state))

    return compiled(agent, compile)


def flatten(agent: Agent) -> Agent:
    """Mode: jax.jit over flat leaves; modules are flattened outside and rebuilt inside the program."""
    return compiled(agent, _flat)


def _flat(function: Callable[..., Any], consumes: tuple[int, ...]) -> Callable[..., Any]:
    out_structure: dict[Any, Any] = {}

    def run(structure: Any, *leaves: Any) -> list[Any]:
        arguments = [jax.tree.unflatten(s, x) for s, x in zip(structure, leaves, strict=True)]
        out, out_structure[structure] = jax.tree.flatten(function(*arguments))
        return out

    run_flat = jax.jit(run, static_argnums=0, donate_argnums=tuple(i + 1 for i in consumes))

    @wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = zip(*(jax.tree.flatten(argument) for argument in arguments), strict=True)
        out = run_flat(structure, *leaves)
        return jax.tree.unflatten(out_structure[structure], out)

    return call


backend = Backend(
    modes={"eager": xla.eager, "none": xla.none, "filter_jit": filter_jit, "flatten": flatten},
    compile=jax.jit,
    units=xla.UNITS,
    block=xla.block,
    mark=xla.mark,
    fetch=xla.fetch,
    compiles=xla.compiles,
    put=jnp.asarray,
    functional=xla.none,
    functional_modes={"none": xla.none, "filter_jit": filter_jit, "flatten": flatten},
)


class ReorderedLinear(eqx.nn.Linear):
    """eqx.nn.Linear with reordered gradients."""

    def __call__(self, x: Float[Array, "I"], *, key: Key[Array, ""] | None = None) -> Float[Array, "O"]:
        return row_product(self.weight, x) + self.bias


class ReorderedConv2d(eqx.nn.Conv2d):
    """eqx.nn.Conv2d with reordered gradients, without padding."""

    def __call__(
        self, x: Float[Array, "C H W"], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, "F height width"]:
        assert self.bias is not None
        return image_convolution(self.stride[0])(self.weight, x) + self.bias


LINEAR = {"framework": eqx.nn.Linear, "reordered": ReorderedLinear}
CONVOLUTION = {"framework": eqx.nn.Conv2d, "reordered": ReorderedConv2d}


class MLP(eqx.Module):
    """MLP with orthogonal weights, zero biases and a linear output layer of its own scale; flattens one observation."""

    lecun: ClassVar[bool] = False
    layers: list[eqx.nn.Linear]
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        key: Key[Array, ""],
        activation: str = "tanh",
        gradients: Gradients = "framework",
        hidden_scale: float = 2**0.5,
    ):
        sizes = (prod(shape), *hidden, outputs)
        scales = [hidden_scale] * len(hidden) + [head_scale]
        keys = jax.random.split(key, len(scales))
        self.activation = activation
        self.layers = [
            redrawn(
                LINEAR[gradients](fan_in, fan_out, dtype=dtype, key=k),
                jax.nn.initializers.lecun_normal() if self.lecun else jax.nn.initializers.orthogonal(scale),
                k,
            )
            for fan_in, fan_out, scale, k in zip(sizes[:-1], sizes[1:], scales, keys, strict=True)
        ]

    def __call__(self, x: Shaped[Array, "*I"]) -> Float[Array, "O"]:
        x = x.reshape(-1).astype(self.layers[0].weight.dtype)
        for layer in self.layers[:-1]:
            x = getattr(jax.nn, self.activation)(layer(x))
        return self.layers[-1](x)


class LecunMLP(MLP):
    """MLP with LeCun normal weights and zero biases; flattens one observation."""

    lecun = True


class CNN(eqx.Module):
    """Convolutions and dense layers with relu and a linear output layer, of one image; bytes are divided by 255."""

    layers: list[Any]
    plan: ClassVar[Tower] = MINATAR

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        key: Key[Array, ""],
        activation: str = "relu",
        gradients: Gradients = "framework",
    ):
        dense_key, *keys = jax.random.split(key, 1 + len(self.plan.convolutions))
        dense_shape, channels = self.plan.image(shape), shape[-1]
        self.layers = []
        for (filters, size, stride), layer_key in zip(self.plan.convolutions, keys, strict=True):
            layer = CONVOLUTION[gradients](channels, filters, size, stride, dtype=dtype, key=layer_key)
            self.layers.append(_orthogonal_kernel(layer, layer_key))
            channels = filters
        self.layers += MLP(dense_shape, hidden, outputs, head_scale, dtype, dense_key, "relu", gradients).layers

    def __call__(self, x: Shaped[Array, "H W C"]) -> Float[Array, "O"]:
        dtype, (convolutions, dense) = self.layers[0].weight.dtype, _split(self.layers)
        x = x.astype(dtype) / 255 if x.dtype == jnp.uint8 else x.astype(dtype)
        x = x.transpose(2, 0, 1)
        for layer in convolutions:
            x = jax.nn.relu(layer(x))
        # Flattened in the order height, width, channels, so that dense weights are those of the other frameworks.
        x = x.transpose(1, 2, 0).reshape(-1)
        for layer in dense[:-1]:
            x = jax.nn.relu(layer(x))
        return dense[-1](x)


def _split(layers: list[Any]) -> tuple[list[Any], list[Any]]:
    """Convolutions, and dense layers."""
    number = sum(isinstance(layer, eqx.nn.Conv) for layer in layers)
    return layers[:number], layers[number:]


class NatureCNN(CNN):
    """The network of Atari."""

    plan = NATURE


class ActorCritic(eqx.Module):
    """Separate actor and critic networks; called on one sample."""

    actor: Any
    critic: Any
    log_std: Float[Array, "A"] | None
    """Log standard deviation of continuous actions; None for discrete actions."""
    tower: ClassVar[Any] = MLP

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        initial_log_std: Float[Array, ""] | None,
        key: Key[Array, ""],
        gradients: Gradients = "framework",
    ):
        actor_key, critic_key = jax.random.split(key)
        self.actor = self.tower(observation_shape, hidden, num_actions, 0.01, dtype, actor_key, gradients=gradients)
        self.critic = self.tower(observation_shape, hidden, 1, 1.0, dtype, critic_key, gradients=gradients)
        self.log_std = None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype)

    def __call__(self, obs: Shaped[Array, "*O"]) -> tuple[Float[Array, "P"], Float[Array, ""]]:
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Shaped[Array, "*O"]) -> Float[Array, "P"]:
        out = self.actor(obs)
        return out if self.log_std is None else gaussian.parameters(out, self.log_std)

    def value(self, obs: Shaped[Array, "*O"]) -> Float[Array, ""]:
        return self.critic(obs).squeeze(-1)


class ConvolutionalActorCritic(ActorCritic):
    """Separate actor and critic for images of MinAtar."""

    tower = CNN


class NatureActorCritic(ActorCritic):
    """Separate actor and critic for images of Atari."""

    tower = NatureCNN


class SharedActorCritic(ActorCritic):
    """A convolutional trunk, and an actor and a critic of one layer each on it."""

    trunk: Any
    tower = CNN

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        initial_log_std: Float[Array, ""] | None,
        key: Key[Array, ""],
        gradients: Gradients = "framework",
    ):
        trunk_key, actor_key, critic_key = jax.random.split(key, 3)
        *inner, width = hidden
        self.trunk = self.tower(observation_shape, tuple(inner), width, 2**0.5, dtype, trunk_key, gradients=gradients)
        self.actor = MLP((width,), (), num_actions, 0.01, dtype, actor_key, gradients=gradients)
        self.critic = MLP((width,), (), 1, 1.0, dtype, critic_key, gradients=gradients)
        self.log_std = None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype)

    def __call__(self, obs: Shaped[Array, "*O"]) -> tuple[Float[Array, "P"], Float[Array, ""]]:
        features = jax.nn.relu(self.trunk(obs))
        return super().policy(features), super().value(features)

    def policy(self, obs: Shaped[Array, "*O"]) -> Float[Array, "P"]:
        return super().policy(jax.nn.relu(self.trunk(obs)))

    def value(self, obs: Shaped[Array, "*O"]) -> Float[Array, ""]:
        return super().value(jax.nn.relu(self.trunk(obs)))


class SharedNatureActorCritic(SharedActorCritic):
    """A convolutional trunk for images of Atari, and an actor and a critic of one layer each on it."""

    tower = NatureCNN


NETWORKS = Networks(
    "equinox",
    "ActorCritic",
    mlp=ActorCritic,
    cnn=ConvolutionalActorCritic,
    nature_cnn=NatureActorCritic,
    shared_cnn=SharedActorCritic,
    shared_nature_cnn=SharedNatureActorCritic,
)


def orthogonal(linear: eqx.nn.Linear, scale: float, key: Key[Array, ""]) -> eqx.nn.Linear:
    """The layer with zero biases and orthogonal weights."""
    return redrawn(linear, jax.nn.initializers.orthogonal(scale), key)


def redrawn(linear: eqx.nn.Linear, draw: Callable[..., Array], key: Key[Array, ""]) -> eqx.nn.Linear:
    """The layer with zero biases and new weights, drawn as [in, out] as elsewhere; Equinox stores [out, in]."""
    weight = draw(key, linear.weight.shape[::-1], linear.weight.dtype).T
    return eqx.tree_at(lambda m: (m.weight, m.bias), linear, (weight, jnp.zeros(linear.out_features, weight.dtype)))


def _orthogonal_kernel(convolution: eqx.nn.Conv2d, key: Key[Array, ""]) -> eqx.nn.Conv2d:
    # Equinox stores [out, in, height, width], and the bias as [out, 1, 1].
    out, channels, height, width = convolution.weight.shape
    kernel = jax.nn.initializers.orthogonal(2**0.5)(key, (height, width, channels, out), convolution.weight.dtype)
    assert convolution.bias is not None
    new = kernel.transpose(3, 2, 0, 1), jnp.zeros_like(convolution.bias)
    return eqx.tree_at(lambda m: (m.weight, m.bias), convolution, new)


def _canonical(name: str, dimensions: int) -> str:
    # Equinox keeps actor/layers/0/weight as [out, in], and the scale of a normalisation as a weight, too.
    *path, kind = name.replace("/layers/", "/").split("/")
    return "/".join([*path, {"weight": "kernel" if dimensions > 1 else "scale"}.get(kind, kind)])


def to_weights(params: Any, prefix: str) -> Weights:
    """Parameters under canonical names, copied."""
    arrays = xla.named(params, prefix)
    return {_canonical(name, x.ndim): _inputs_first(name, x) for name, x in arrays.items()}


def from_weights(template: Any, weights: Weights, prefix: str) -> Any:
    """Canonical weights in the structure of `template`."""
    wanted = xla.named(template, prefix)
    found = {name: _outputs_first(name, weights[_canonical(name, x.ndim)], x.ndim) for name, x in wanted.items()}
    return xla.unnamed(template, found, prefix)


def _inputs_first(name: str, x: np.ndarray) -> np.ndarray:
    """A parameter as canonical weight: `[in, out]` or `[height, width, in, out]`, and biases as vectors."""
    if x.ndim < 3:
        return np.array(x.T) if name.endswith("/weight") else x
    return np.array(x.transpose(2, 3, 1, 0)) if name.endswith("/weight") else x.reshape(-1)


def _outputs_first(name: str, x: np.ndarray, dimensions: int) -> np.ndarray:
    """The inverse of `_inputs_first`, for a parameter with so many dimensions."""
    if dimensions < 3:
        return x.T if name.endswith("/weight") else x
    return x.transpose(3, 2, 0, 1) if name.endswith("/weight") else x.reshape(-1, 1, 1)


LAYOUT = xla.Layout(to_weights, from_weights)
