"""The residual network in plain JAX, for PPO and VPG."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from benchback.backends.purejax import PRODUCT, ActorCritic, Functions, init_mlp
from benchback.math.jax import gaussian

Params = dict[str, dict[str, Any]]


def init_tower(key: Key[Array, ""], sizes: tuple[int, ...], head_scale: float, dtype: jnp.dtype) -> Params:
    """The layers of an MLP of these sizes, with a normalisation before each but the first and the last."""
    layers = {str(i): layer for i, layer in enumerate(init_mlp(key, sizes, head_scale, dtype))}
    norms = {
        f"{i}_norm": {"scale": jnp.ones(sizes[i], dtype), "bias": jnp.zeros(sizes[i], dtype)}
        for i in range(1, len(layers) - 1)
    }
    return layers | norms


def tower(params: Params, x: Shaped[Array, "B *I"], gradients: str) -> Float[Array, "B O"]:
    """The outputs of a tower."""

    def dense(x: Float[Array, "B I"], i: int) -> Any:
        return PRODUCT[gradients](x, params[str(i)]["kernel"]) + params[str(i)]["bias"]

    blocks = len(params) // 2
    x = x.reshape(len(x), -1).astype(params["0"]["kernel"].dtype)
    x = jnp.tanh(dense(x, 0))
    for i in range(1, blocks):
        x = x + jnp.tanh(dense(normalise(x, **params[f"{i}_norm"]), i))
    return dense(x, blocks)


def normalise(x: Float[Array, "B H"], scale: Float[Array, "H"], bias: Float[Array, "H"]) -> Float[Array, "B H"]:
    """Layer normalisation."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def init(
    key: Key[Array, ""],
    observation_shape: tuple[int, ...],
    hidden: tuple[int, ...],
    num_actions: int,
    dtype: jnp.dtype,
    initial_log_std: Float[Array, ""] | None,
) -> ActorCritic:
    """Independent actor and critic."""
    actor_key, critic_key = jax.random.split(key)
    inputs = prod(observation_shape)
    actor: Any = init_tower(actor_key, (inputs, *hidden, num_actions), 0.01, dtype)
    critic: Any = init_tower(critic_key, (inputs, *hidden, 1), 1.0, dtype)
    return ActorCritic(
        actor, critic, None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype)
    )


def policy(params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: str = "framework") -> Float[Array, "B P"]:
    """Parameters of the action distribution."""
    actor: Any = params.actor
    out = tower(actor, obs, gradients)
    return out if params.log_std is None else gaussian.parameters(out, params.log_std)


def value(params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: str = "framework") -> Float[Array, "B"]:
    """The critic's estimate of the return."""
    critic: Any = params.critic
    return tower(critic, obs, gradients).squeeze(-1)


def policy_and_value(
    params: ActorCritic, obs: Shaped[Array, "B *O"], gradients: str = "framework"
) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
    """Both at once."""
    return policy(params, obs, gradients), value(params, obs, gradients)


ACTOR_CRITIC = Functions(init, policy, value, policy_and_value)
