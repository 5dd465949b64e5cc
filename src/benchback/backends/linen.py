"""Flax Linen: parameters are a pytree separate from the module."""

from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Shaped

from benchback.agent import Gradients
from benchback.backends import xla
from benchback.backends.kernel_gradients import CONVOLUTION, DOT_GENERAL
from benchback.math.jax import gaussian
from benchback.plugins import Networks
from benchback.plugins.towers import MINATAR, NATURE, Tower

backend = xla.BACKEND
LAYOUT = xla.TREE


class MLP(nn.Module):
    """MLP with orthogonal weights, zero biases and a linear output layer of its own scale; flattens observations."""

    hidden: tuple[int, ...]
    outputs: int
    head_scale: float
    dtype: jnp.dtype
    activation: str = "tanh"
    gradients: Gradients = "framework"
    hidden_scale: float = 2**0.5
    lecun: ClassVar[bool] = False

    @nn.compact
    def __call__(self, x: Shaped[Array, "B *I"]) -> Float[Array, "B O"]:
        x = x.reshape(len(x), -1).astype(self.dtype)
        for i, width in enumerate(self.hidden):
            x = getattr(nn, self.activation)(self.dense(width, self.hidden_scale, i)(x))
        return self.dense(self.outputs, self.head_scale, len(self.hidden))(x)

    def dense(self, width: int, scale: float, index: int) -> nn.Dense:
        return nn.Dense(
            width,
            kernel_init=nn.initializers.lecun_normal() if self.lecun else nn.initializers.orthogonal(scale),
            dtype=self.dtype,
            param_dtype=self.dtype,
            dot_general=DOT_GENERAL[self.gradients],
            name=str(index),
        )


class LecunMLP(MLP):
    """MLP with LeCun normal weights and zero biases; flattens observations."""

    lecun = True


class CNN(MLP):
    """Convolutions and dense layers with relu and a linear output layer; bytes are divided by 255."""

    activation: str = "relu"
    plan: ClassVar[Tower] = MINATAR

    @nn.compact
    def __call__(self, x: Shaped[Array, "B H W C"]) -> Float[Array, "B O"]:
        x = x.astype(self.dtype) / 255 if x.dtype == jnp.uint8 else x.astype(self.dtype)
        for i, (filters, size, stride) in enumerate(self.plan.convolutions):
            x = nn.relu(self.convolution(filters, size, stride, i)(x))
        x, depth = x.reshape(len(x), -1), len(self.plan.convolutions)
        for i, width in enumerate(self.hidden, depth):
            x = nn.relu(self.dense(width, 2**0.5, i)(x))
        return self.dense(self.outputs, self.head_scale, depth + len(self.hidden))(x)

    def convolution(self, filters: int, size: int, stride: int, index: int) -> nn.Conv:
        return nn.Conv(
            filters,
            (size, size),
            stride,
            padding="VALID",
            kernel_init=nn.initializers.orthogonal(2**0.5),
            dtype=self.dtype,
            param_dtype=self.dtype,
            conv_general_dilated=CONVOLUTION[self.gradients],
            name=str(index),
        )


class NatureCNN(CNN):
    """The network of Atari."""

    plan = NATURE


class ActorCritic(nn.Module):
    """Separate actor and critic networks."""

    hidden: tuple[int, ...]
    num_actions: int
    dtype: jnp.dtype
    continuous: bool
    """Whether actions are continuous; adds a state-independent log standard deviation."""
    gradients: Gradients = "framework"
    tower: ClassVar[Any] = MLP

    def setup(self) -> None:
        self.actor = self.tower(self.hidden, self.num_actions, 0.01, self.dtype, gradients=self.gradients)
        self.critic = self.tower(self.hidden, 1, 1.0, self.dtype, gradients=self.gradients)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_actions,), self.dtype)

    def __call__(self, obs: Shaped[Array, "B *O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        out = self.actor(obs)
        return gaussian.parameters(out, self.log_std) if self.continuous else out

    def value(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        return self.critic(obs).squeeze(-1)


class ConvolutionalActorCritic(ActorCritic):
    """Separate actor and critic for images of MinAtar."""

    tower = CNN


class NatureActorCritic(ActorCritic):
    """Separate actor and critic for images of Atari."""

    tower = NatureCNN


class SharedActorCritic(ActorCritic):
    """A convolutional trunk, and an actor and a critic of one layer each on it."""

    tower: ClassVar[Any] = CNN

    def setup(self) -> None:
        *inner, width = self.hidden
        self.trunk = self.tower(tuple(inner), width, 2**0.5, self.dtype, gradients=self.gradients)
        self.actor = MLP((), self.num_actions, 0.01, self.dtype, gradients=self.gradients)
        self.critic = MLP((), 1, 1.0, self.dtype, gradients=self.gradients)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_actions,), self.dtype)

    def __call__(self, obs: Shaped[Array, "B *O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        features = nn.relu(self.trunk(obs))
        return super().policy(features), super().value(features)

    def policy(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B P"]:
        return super().policy(nn.relu(self.trunk(obs)))

    def value(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B"]:
        return super().value(nn.relu(self.trunk(obs)))


class SharedNatureActorCritic(SharedActorCritic):
    """A convolutional trunk for images of Atari, and an actor and a critic of one layer each on it."""

    tower = NatureCNN


NETWORKS = Networks(
    "linen",
    "ActorCritic",
    mlp=ActorCritic,
    cnn=ConvolutionalActorCritic,
    nature_cnn=NatureActorCritic,
    shared_cnn=SharedActorCritic,
    shared_nature_cnn=SharedNatureActorCritic,
)


def with_log_std(params: Any, value: Float[Array, ""]) -> Any:
    """Parameters of an ActorCritic with its log standard deviation, if it has one, set to `value`."""
    return params | {"log_std": jnp.full_like(params["log_std"], value)} if "log_std" in params else params
