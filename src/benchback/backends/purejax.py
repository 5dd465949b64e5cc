"""Plain JAX: parameters are lists of dictionaries, a layer is two lines."""

from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from benchback.agent import Gradients
from benchback.backends import xla
from benchback.backends.kernel_gradients import convolve as reordered_convolve
from benchback.backends.kernel_gradients import product
from benchback.math.jax import gaussian
from benchback.plugins import Networks
from benchback.plugins.towers import MINATAR, NATURE, Tower

backend = xla.BACKEND
LAYOUT = xla.TREE

Layers = list[dict[str, Any]]
PRODUCT = {"framework": jnp.matmul, "reordered": product}


def init_mlp(
    key: Key[Array, ""],
    sizes: tuple[int, ...],
    head_scale: float,
    dtype: jnp.dtype,
    hidden_scale: float = 2**0.5,
    lecun: bool = False,
) -> Layers:
    """Zero biases and LeCun normal or orthogonal weights for layers of `sizes`; the output layer has its own scale."""
    scales = [hidden_scale] * (len(sizes) - 2) + [head_scale]
    shapes = pairwise(sizes)
    layer_keys = jax.random.split(key, len(scales))
    named = jax.nn.initializers
    return [
        {
            "kernel": (named.lecun_normal() if lecun else named.orthogonal(scale))(layer_key, shape, dtype),
            "bias": jnp.zeros(shape[1], dtype),
        }
        for layer_key, shape, scale in zip(layer_keys, shapes, scales, strict=True)
    ]


def mlp(
    layers: Layers, x: Shaped[Array, "B *I"], activation: str = "tanh", gradients: Gradients = "framework"
) -> Float[Array, "B O"]:
    """Output of an MLP with a linear output layer; flattens observations."""
    activate, matmul = getattr(jax.nn, activation), PRODUCT[gradients]
    x = x.reshape(len(x), -1).astype(layers[0]["kernel"].dtype)
    for layer in layers[:-1]:
        x = activate(matmul(x, layer["kernel"]) + layer["bias"])
    return matmul(x, layers[-1]["kernel"]) + layers[-1]["bias"]


def init_cnn(
    key: Key[Array, ""],
    tower: Tower,
    shape: tuple[int, ...],
    widths: tuple[int, ...],
    head_scale: float,
    dtype: jnp.dtype,
) -> Layers:
    """As `init_mlp`, with the convolutions of a tower before the dense layers; `shape` is that of one image."""
    dense_key, *layer_keys = jax.random.split(key, 1 + len(tower.convolutions))
    layers, channels = [], shape[-1]
    for layer_key, (filters, size, _) in zip(layer_keys, tower.convolutions, strict=True):
        kernel = jax.nn.initializers.orthogonal(2**0.5)(layer_key, (size, size, channels, filters), dtype)
        layers.append({"kernel": kernel, "bias": jnp.zeros(filters, dtype)})
        channels = filters
    return layers + init_mlp(dense_key, (prod(tower.image(shape)), *widths), head_scale, dtype)


def cnn(
    layers: Layers, x: Shaped[Array, "B H W C"], tower: Tower, gradients: Gradients = "framework"
) -> Float[Array, "B O"]:
    """Output of convolutions and dense layers with relu and a linear output layer; bytes are divided by 255."""
    dtype, depth, convolution = layers[0]["kernel"].dtype, len(tower.convolutions), CONVOLUTION[gradients]
    x = x.astype(dtype) / 255 if x.dtype == jnp.uint8 else x.astype(dtype)
    for layer, (_, _, stride) in zip(layers[:depth], tower.convolutions, strict=True):
        x = jax.nn.relu(convolution(x, layer["kernel"], stride) + layer["bias"])
    return mlp(layers[depth:], x, "relu", gradients)


def convolve(
    x: Float[Array, "B H W C"], kernel: Float[Array, "h w C F"], stride: int
) -> Float[Array, "B height width F"]:
    """The kernel applied to every place of the image, without padding."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


CONVOLUTION = {"framework": convolve, "reordered": reordered_convolve}


class ActorCritic(NamedTuple):
    """Parameters of separate actor and critic networks, or of an actor and a critic on a trunk."""

    actor: Layers
    critic: Layers
    log_std: Float[Array, "A"] | None
    """Log standard deviation of continuous actions; None for discrete actions."""
    trunk: Layers | None = None
    """The layers that both share; None where they share none."""


def init_actor_critic(
    key: Key[Array, ""],
    observation_shape: tuple[int, ...],
    hidden: tuple[int, ...],
    num_actions: int,
    dtype: jnp.dtype,
    initial_log_std: Float[Array, ""] | None,
) -> ActorCritic:
    """Independent actor and critic; the actor's output layer is small, so that the initial policy is near uniform."""
    actor_key, critic_key = jax.random.split(key)
    inputs = prod(observation_shape)
    return ActorCritic(
        actor=init_mlp(actor_key, (inputs, *hidden, num_actions), 0.01, dtype),
        critic=init_mlp(critic_key, (inputs, *hidden, 1), 1.0, dtype),
        log_std=None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype),
    )


def policy(params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework") -> Float[Array, "B P"]:
    """Parameters of the action distribution: logits, or means and log standard deviations."""
    out = mlp(params.actor, obs, gradients=gradients)
    return out if params.log_std is None else gaussian.parameters(out, params.log_std)


def value(params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework") -> Float[Array, "B"]:
    """The critic's estimate of the return."""
    return mlp(params.critic, obs, gradients=gradients).squeeze(-1)


def policy_and_value(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework"
) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
    """Both at once."""
    return policy(params, obs, gradients), value(params, obs, gradients)


def init_images(
    key: Key[Array, ""],
    observation_shape: tuple[int, ...],
    hidden: tuple[int, ...],
    num_actions: int,
    dtype: jnp.dtype,
    initial_log_std: Float[Array, ""] | None,
    *,
    tower: Tower,
) -> ActorCritic:
    """Independent convolutional actor and critic."""
    actor_key, critic_key = jax.random.split(key)
    return ActorCritic(
        actor=init_cnn(actor_key, tower, observation_shape, (*hidden, num_actions), 0.01, dtype),
        critic=init_cnn(critic_key, tower, observation_shape, (*hidden, 1), 1.0, dtype),
        log_std=None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype),
    )


def init_shared(
    key: Key[Array, ""],
    observation_shape: tuple[int, ...],
    hidden: tuple[int, ...],
    num_actions: int,
    dtype: jnp.dtype,
    initial_log_std: Float[Array, ""] | None,
    *,
    tower: Tower,
) -> ActorCritic:
    """A convolutional trunk, and an actor and a critic of one layer each on it."""
    trunk_key, actor_key, critic_key = jax.random.split(key, 3)
    return ActorCritic(
        actor=init_mlp(actor_key, (hidden[-1], num_actions), 0.01, dtype),
        critic=init_mlp(critic_key, (hidden[-1], 1), 1.0, dtype),
        log_std=None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype),
        trunk=init_cnn(trunk_key, tower, observation_shape, hidden, 2**0.5, dtype),
    )


def images_to_policy(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> Float[Array, "B P"]:
    """Parameters of the action distribution, of a convolutional actor."""
    out = cnn(params.actor, obs, tower, gradients)
    return out if params.log_std is None else gaussian.parameters(out, params.log_std)


def images_to_value(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> Float[Array, "B"]:
    """The estimate of the return, of a convolutional critic."""
    return cnn(params.critic, obs, tower, gradients).squeeze(-1)


def images_to_both(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
    """Both at once, of convolutional towers."""
    return (
        images_to_policy(params, obs, gradients, tower=tower),
        images_to_value(params, obs, gradients, tower=tower),
    )


def features(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> Float[Array, "B H"]:
    """The output of the trunk."""
    assert params.trunk is not None
    return jax.nn.relu(cnn(params.trunk, obs, tower, gradients))


def shared_policy(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> Float[Array, "B P"]:
    """Parameters of the action distribution, of an actor on a trunk."""
    return policy(params, features(params, obs, gradients, tower=tower), gradients)


def shared_value(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> Float[Array, "B"]:
    """The estimate of the return, of a critic on a trunk."""
    return value(params, features(params, obs, gradients, tower=tower), gradients)


def both_on_trunk(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: Gradients = "framework", *, tower: Tower
) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
    """Policy and value, the trunk and its gradient computed once."""
    seen = features(params, obs, gradients, tower=tower)
    return policy(params, seen, gradients), value(params, seen, gradients)


class Functions(NamedTuple):
    """Actor and critic as functions of their parameters."""

    init: Any
    actor: Any
    critic: Any
    both: Any
    """Actor and critic at once: what they share is computed, and differentiated, once."""


def convolutional(tower: Tower) -> Functions:
    """Separate actor and critic with the convolutions of `tower`."""
    return Functions(
        *(partial(f, tower=tower) for f in (init_images, images_to_policy, images_to_value, images_to_both))
    )


def shared(tower: Tower) -> Functions:
    """Actor and critic on one trunk with the convolutions of `tower`."""
    return Functions(*(partial(f, tower=tower) for f in (init_shared, shared_policy, shared_value, both_on_trunk)))


NETWORKS = Networks(
    "purejax",
    "ACTOR_CRITIC",
    mlp=Functions(init_actor_critic, policy, value, policy_and_value),
    cnn=convolutional(MINATAR),
    nature_cnn=convolutional(NATURE),
    shared_cnn=shared(MINATAR),
    shared_nature_cnn=shared(NATURE),
)
