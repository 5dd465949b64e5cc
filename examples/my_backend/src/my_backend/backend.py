"""Keras on JAX: layers describe the network, `stateless_call` computes it with the variables it is given."""

import os
from math import prod
from typing import Any, NamedTuple

# Read by Keras when it is imported.
os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import keras
from jaxtyping import Array, Float, Key, Shaped

from benchback.backends import xla
from benchback.math.jax import gaussian
from benchback.plugins import Networks

backend = xla.BACKEND
# Parameters are kept by the paths of their variables, which are the canonical names: actor/0/kernel is [in, out].
LAYOUT = xla.TREE
Params = dict[str, Any]


class MLP(NamedTuple):
    """MLP with orthogonal weights, zero biases and a linear output layer of its own scale; flattens observations."""

    model: keras.Model
    gains: list[float]

    def init(self, key: Key[Array, ""]) -> Params:
        """Parameters drawn with JAX's keys: Keras draws when a layer is built, which would not be pure."""
        variables = self.model.trainable_variables
        kernels = [variable for variable in variables if variable.name == "kernel"]
        params = {variable.path: jnp.zeros(variable.shape, variable.dtype) for variable in variables}
        for variable, gain, layer_key in zip(kernels, self.gains, jax.random.split(key, len(kernels)), strict=True):
            draw = jax.nn.initializers.orthogonal(gain)
            params[variable.path] = draw(layer_key, variable.shape, jnp.dtype(variable.dtype))
        return params

    def apply(self, params: Params, x: Shaped[Array, "B *I"]) -> Float[Array, "B O"]:
        """The outputs with these parameters."""
        own = [params[variable.path] for variable in self.model.trainable_variables]
        outputs, _ = self.model.stateless_call(own, [], x.reshape(len(x), -1).astype(self.model.compute_dtype))
        return outputs


def mlp(
    name: str, shape: tuple[int, ...], hidden: tuple[int, ...], outputs: int, head_scale: float, dtype: jnp.dtype
) -> MLP:
    """An MLP whose variables are called `name/0/kernel` and so on."""
    widths, dtype_name = [*hidden, outputs], str(jnp.dtype(dtype))
    # JAX's tanh: that of Keras computes in float32 whatever the type.
    layers = [
        keras.layers.Dense(width, jnp.tanh if i < len(hidden) else None, dtype=dtype_name, name=str(i))
        for i, width in enumerate(widths)
    ]
    model = keras.Sequential(layers, name=name)
    model.dtype_policy = keras.DTypePolicy(dtype_name)
    model.build((None, prod(shape)))
    return MLP(model, [2**0.5] * len(hidden) + [head_scale])


class ActorCritic:
    """Separate actor and critic networks."""

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        *,
        continuous: bool,
    ) -> None:
        self.actor = mlp("actor", observation_shape, hidden, num_actions, 0.01, dtype)
        self.critic = mlp("critic", observation_shape, hidden, 1, 1.0, dtype)
        self.log_std = jnp.zeros(num_actions, dtype) if continuous else None

    def init(self, key: Key[Array, ""], initial_log_std: Float[Array, ""]) -> Params:
        """Initial parameters; of continuous actions with a state-independent log standard deviation."""
        actor_key, critic_key = jax.random.split(key)
        params = self.actor.init(actor_key) | self.critic.init(critic_key)
        return params if self.log_std is None else params | {"log_std": self.log_std + initial_log_std}

    def policy(self, params: Params, obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        """Parameters of the action distribution: logits, or means and log standard deviations."""
        out = self.actor.apply(params, obs)
        return out if self.log_std is None else gaussian.parameters(out, params["log_std"])

    def value(self, params: Params, obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        """The critic's estimate of the return."""
        return self.critic.apply(params, obs).squeeze(-1)


NETWORKS = Networks("keras", "ActorCritic", mlp=ActorCritic)
