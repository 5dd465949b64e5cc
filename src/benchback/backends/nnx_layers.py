"""Towers of NNX networks: multi-layer perceptrons, and convolutions before them."""

from math import prod
from typing import ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Shaped

from benchback.agent import Gradients
from benchback.backends.kernel_gradients import CONVOLUTION, DOT_GENERAL
from benchback.plugins.towers import MINATAR, NATURE, Tower


class MLP(nnx.Module):
    """MLP with orthogonal weights, zero biases and a linear output layer of its own scale; flattens observations."""

    lecun: ClassVar[bool] = False

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        activation: str = "tanh",
        gradients: Gradients = "framework",
        hidden_scale: float = 2**0.5,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        widths = (prod(shape), *hidden, outputs)
        scales = (*(hidden_scale for _ in hidden), head_scale)
        self.dtype, self.activation = dtype, activation
        self.layers = nnx.List(
            nnx.Linear(
                fan_in,
                width,
                kernel_init=nnx.initializers.lecun_normal() if self.lecun else nnx.initializers.orthogonal(scale),
                dtype=dtype,
                param_dtype=dtype,
                dot_general=DOT_GENERAL[gradients],
                rngs=rngs,
            )
            for fan_in, width, scale in zip(widths[:-1], widths[1:], scales, strict=True)
        )

    def __call__(self, x: Shaped[Array, "B *I"]) -> Float[Array, "B O"]:
        *hidden, head = self.layers
        x = x.reshape(len(x), -1).astype(self.dtype)
        for layer in hidden:
            x = getattr(nnx, self.activation)(layer(x))
        return head(x)


class LecunMLP(MLP):
    """MLP with LeCun normal weights and zero biases; flattens observations."""

    lecun = True


class CNN(nnx.Module):
    """Convolutions and dense layers with relu and a linear output layer; bytes are divided by 255."""

    plan: ClassVar[Tower] = MINATAR

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        activation: str = "relu",
        gradients: Gradients = "framework",
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.dtype, layers, channels = dtype, [], shape[-1]
        for filters, size, stride in self.plan.convolutions:
            convolution = nnx.Conv(
                channels,
                filters,
                (size, size),
                stride,
                padding="VALID",
                kernel_init=nnx.initializers.orthogonal(2**0.5),
                dtype=dtype,
                param_dtype=dtype,
                conv_general_dilated=CONVOLUTION[gradients],
                rngs=rngs,
            )
            layers.append(convolution)
            channels = filters
        dense = MLP(self.plan.image(shape), hidden, outputs, head_scale, dtype, "relu", gradients, rngs=rngs)
        self.layers = nnx.List([*layers, *dense.layers])

    def __call__(self, x: Shaped[Array, "B H W C"]) -> Float[Array, "B O"]:
        x = x.astype(self.dtype) / 255 if x.dtype == jnp.uint8 else x.astype(self.dtype)
        *hidden, head = self.layers
        for layer in hidden:
            x = x.reshape(len(x), -1) if isinstance(layer, nnx.Linear) else x
            x = nnx.relu(layer(x))
        return head(x.reshape(len(x), -1))


class NatureCNN(CNN):
    """The network of Atari."""

    plan = NATURE
