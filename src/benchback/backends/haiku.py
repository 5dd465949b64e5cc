"""Haiku: a function with modules inside, transformed into init and apply."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from benchback.agent import Gradients, Weights
from benchback.backends import xla
from benchback.backends.kernel_gradients import convolve, product
from benchback.math.jax import gaussian
from benchback.plugins import Networks
from benchback.plugins.towers import MINATAR, NATURE, Tower

backend = xla.BACKEND


class ReorderedLinear(hk.Linear):
    """hk.Linear with reordered gradients."""

    def __call__(self, inputs: Float[Array, "B I"], *, precision: Any = None) -> Float[Array, "B O"]:
        kernel = hk.get_parameter("w", (inputs.shape[1], self.output_size), inputs.dtype, self.w_init)
        out: Any = product(inputs, kernel)
        return out + hk.get_parameter("b", (self.output_size,), inputs.dtype, self.b_init)


class ReorderedConv2D(hk.Conv2D):
    """hk.Conv2D with reordered gradients, without padding."""

    def __call__(self, inputs: Float[Array, "B H W C"], *, precision: Any = None) -> Float[Array, "B height width F"]:
        shape = (*self.kernel_shape, inputs.shape[-1], self.output_channels)
        out: Any = convolve(inputs, hk.get_parameter("w", shape, inputs.dtype, self.w_init), self.stride[0])
        return out + hk.get_parameter("b", (self.output_channels,), inputs.dtype, self.b_init)


LINEAR = {"framework": hk.Linear, "reordered": ReorderedLinear}
CONVOLUTION = {"framework": hk.Conv2D, "reordered": ReorderedConv2D}


class MLP(hk.Module):
    """MLP with orthogonal weights, zero biases and a linear output layer of its own scale; flattens observations."""

    lecun: ClassVar[bool] = False

    def __init__(
        self,
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        name: str,
        activation: str = "tanh",
        gradients: Gradients = "framework",
        hidden_scale: float = 2**0.5,
    ):
        super().__init__(name)
        self.activate, self.linear = getattr(jax.nn, activation), LINEAR[gradients]
        self.convolution = CONVOLUTION[gradients]
        self.hidden, self.outputs, self.dtype = hidden, outputs, dtype
        self.hidden_scale, self.head_scale = hidden_scale, head_scale

    def __call__(self, x: Shaped[Array, "B *I"]) -> Float[Array, "B O"]:
        # Haiku creates parameters in the type of the input.
        x = x.reshape(len(x), -1).astype(self.dtype)
        for i, width in enumerate(self.hidden):
            x = self.activate(self.linear(width, w_init=self.init(self.hidden_scale), name=f"layer_{i}")(x))
        return self.linear(self.outputs, w_init=self.init(self.head_scale), name=f"layer_{len(self.hidden)}")(x)

    def init(self, scale: float) -> hk.initializers.Initializer:
        if self.lecun:
            return hk.initializers.VarianceScaling(1.0, "fan_in", "truncated_normal")
        return hk.initializers.Orthogonal(scale)


class LecunMLP(MLP):
    """MLP with LeCun normal weights and zero biases; flattens observations."""

    lecun = True


class CNN(MLP):
    """Convolutions and dense layers with relu and a linear output layer; bytes are divided by 255."""

    plan: ClassVar[Tower] = MINATAR

    def __call__(self, x: Shaped[Array, "B H W C"]) -> Float[Array, "B O"]:
        sqrt2 = hk.initializers.Orthogonal(2**0.5)
        x = x.astype(self.dtype) / 255 if x.dtype == jnp.uint8 else x.astype(self.dtype)
        for i, (filters, size, stride) in enumerate(self.plan.convolutions):
            layer = self.convolution(filters, size, stride, padding="VALID", w_init=sqrt2, name=f"layer_{i}")
            x = jax.nn.relu(layer(x))
        x, depth = x.reshape(len(x), -1), len(self.plan.convolutions)
        for i, width in enumerate(self.hidden, depth):
            x = jax.nn.relu(self.linear(width, w_init=sqrt2, name=f"layer_{i}")(x))
        head_init = hk.initializers.Orthogonal(self.head_scale)
        return self.linear(self.outputs, w_init=head_init, name=f"layer_{depth + len(self.hidden)}")(x)


class NatureCNN(CNN):
    """The network of Atari."""

    plan = NATURE


class ActorCritic(NamedTuple):
    """Separate actor and critic networks, as pure functions of the parameters."""

    init: Any
    apply: Any
    policy: Any
    value: Any


def actor_critic(
    hidden: tuple[int, ...],
    num_actions: int,
    dtype: jnp.dtype,
    *,
    continuous: bool,
    gradients: Gradients = "framework",
    tower: Any = MLP,
) -> ActorCritic:
    """The transformed networks; for continuous actions with a state-independent log standard deviation."""

    def value(obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        return tower(hidden, 1, 1.0, dtype, name="critic", gradients=gradients)(obs).squeeze(-1)

    def policy(obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        out = tower(hidden, num_actions, 0.01, dtype, name="actor", gradients=gradients)(obs)
        if not continuous:
            return out
        return gaussian.parameters(out, hk.get_parameter("log_std", (num_actions,), dtype, jnp.zeros))

    def forward(obs: Shaped[Array, "B *O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        return policy(obs), value(obs)

    whole, *parts = (hk.without_apply_rng(hk.transform(f)) for f in (forward, policy, value))
    return ActorCritic(whole.init, whole.apply, *(part.apply for part in parts))


def shared_actor_critic(
    hidden: tuple[int, ...],
    num_actions: int,
    dtype: jnp.dtype,
    *,
    continuous: bool,
    gradients: Gradients = "framework",
    tower: Any = CNN,
) -> ActorCritic:
    """A convolutional trunk, and an actor and a critic of one layer each on it."""
    *inner, width = hidden

    def features(obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        return jax.nn.relu(tower(tuple(inner), width, 2**0.5, dtype, name="trunk", gradients=gradients)(obs))

    def critic(seen: Float[Array, "B H"]) -> Float[Array, "B"]:
        return MLP((), 1, 1.0, dtype, name="critic", gradients=gradients)(seen).squeeze(-1)

    def actor(seen: Float[Array, "B H"]) -> Float[Array, "B P"]:
        out = MLP((), num_actions, 0.01, dtype, name="actor", gradients=gradients)(seen)
        if not continuous:
            return out
        return gaussian.parameters(out, hk.get_parameter("log_std", (num_actions,), dtype, jnp.zeros))

    def forward(obs: Shaped[Array, "B *O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        seen = features(obs)
        return actor(seen), critic(seen)

    def policy(obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        return actor(features(obs))

    def value(obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        return critic(features(obs))

    whole, *parts = (hk.without_apply_rng(hk.transform(f)) for f in (forward, policy, value))
    return ActorCritic(whole.init, whole.apply, *(part.apply for part in parts))


NETWORKS = Networks(
    "haiku",
    "actor_critic",
    mlp=actor_critic,
    cnn=partial(actor_critic, tower=CNN),
    nature_cnn=partial(actor_critic, tower=NatureCNN),
    shared_cnn=shared_actor_critic,
    shared_nature_cnn=partial(shared_actor_critic, tower=NatureCNN),
)


def with_log_std(params: Any, value: Float[Array, ""]) -> Any:
    """Parameters of an ActorCritic with its log standard deviation, if it has one, set to `value`."""
    return params | {"~": {"log_std": jnp.full_like(params["~"]["log_std"], value)}} if "~" in params else params


def _canonical(module: str, name: str) -> str:
    # Haiku keeps {"actor/layer_0": {"w": [in, out], "b": [out]}, ...}, and top-level parameters under "~".
    kind = {"w": "kernel", "b": "bias", "offset": "bias"}.get(name, name)
    return name if module == "~" else f"{module.replace('/layer_', '/')}/{kind}"


def to_weights(params: Any, prefix: str) -> Weights:
    """Parameters under canonical names, copied."""
    return {
        prefix + _canonical(module, name): np.array(array)
        for module, arrays in params.items()
        for name, array in arrays.items()
    }


def from_weights(template: Any, weights: Weights, prefix: str) -> Any:
    """Canonical weights in the structure of `template`."""
    return {
        module: {
            name: jnp.array(weights[prefix + _canonical(module, name)], array.dtype) for name, array in arrays.items()
        }
        for module, arrays in template.items()
    }


LAYOUT = xla.Layout(to_weights, from_weights)
