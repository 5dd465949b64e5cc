"""Plain JAX: parameters are lists of dictionaries, a layer is two lines."""

from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from benchback.agent import Gradients
from benchback.backends import xla
from benchback.backends.kernel_gradients import product
from benchback.math.jax import gaussian
from benchback.plugins import Networks

backend = xla.BACKEND
LAYOUT = xla.TREE

Layers = list[dict[str, Any]]
PRODUCT = {"framework": jnp.matmul, "reordered": product}


def init_mlp(key: Key[Array, ""], sizes: tuple[int, ...], head_scale: float, dtype: jnp.dtype) -> Layers:
    """Orthogonal weights and zero biases for layers of `sizes`; the output layer has its own scale."""
    scales = [2**0.5] * (len(sizes) - 2) + [head_scale]
    shapes = pairwise(sizes)
    layer_keys = jax.random.split(key, len(scales))
    return [
        {
            "kernel": jax.nn.initializers.orthogonal(scale)(layer_key, shape, dtype),
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


class ActorCritic(NamedTuple):
    """Parameters of separate actor and critic networks."""

    actor: Layers
    critic: Layers
    log_std: Float[Array, "A"] | None
    """Log standard deviation of continuous actions; None for discrete actions."""


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


class Functions(NamedTuple):
    """Actor and critic as functions of their parameters."""

    init: Any
    actor: Any
    critic: Any


NETWORKS = Networks("purejax", "ACTOR_CRITIC", mlp=Functions(init_actor_critic, policy, value))
