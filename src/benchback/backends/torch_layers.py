"""Towers of PyTorch networks: multi-layer perceptrons, and convolutions before them."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from benchback.plugins.towers import MINATAR, NATURE, Tower

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class MLP(nn.Sequential):
    """MLP with orthogonal weights, zero biases and a linear output layer of its own scale; flattens observations."""

    lecun: ClassVar[bool] = False

    def __init__(
        self,
        shape: Sequence[int],
        hidden: Sequence[int],
        outputs: int,
        head_scale: float,
        dtype: torch.dtype,
        generator: torch.Generator,
        activation: str = "tanh",
        hidden_scale: float = 2**0.5,
    ) -> None:
        super().__init__()
        self.dtype, inputs = dtype, prod(shape)
        for width in hidden:
            layer = dense(inputs, width, hidden_scale, dtype, generator, self.lecun)
            self.extend([layer, ACTIVATIONS[activation]()])
            inputs = width
        self.append(dense(inputs, outputs, head_scale, dtype, generator, self.lecun))

    def forward(self, x: Shaped[Tensor, "B *I"]) -> Float[Tensor, "B O"]:
        return super().forward(x.reshape(x.shape[0], -1).to(self.dtype))


class LecunMLP(MLP):
    """MLP with LeCun normal weights and zero biases; flattens observations."""

    lecun = True


class CNN(nn.Sequential):
    """Convolutions and dense layers with relu and a linear output layer; bytes are divided by 255."""

    plan: ClassVar[Tower] = MINATAR

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: torch.dtype,
        generator: torch.Generator,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.dtype, channels = dtype, shape[-1]
        for filters, size, stride in self.plan.convolutions:
            self.extend([convolution(channels, filters, size, stride, dtype, generator), nn.ReLU()])
            channels = filters
        self.append(Flatten())
        self.extend(MLP(self.plan.image(shape), hidden, outputs, head_scale, dtype, generator, "relu"))

    def forward(self, x: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B O"]:
        x = x.to(self.dtype) / 255 if x.dtype == torch.uint8 else x.to(self.dtype)
        # Images are channels last in memory and stay so: torch sees them as [B, C, H, W].
        return super().forward(x.permute(0, 3, 1, 2))


class Flatten(nn.Module):
    """Flattens images in the order height, width, channels, as in frameworks whose channels are last.

    Weights of the dense layer behind it are then the same in all of them.
    """

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B I"]:
        return x.permute(0, 2, 3, 1).flatten(1)


class NatureCNN(CNN):
    """The network of Atari."""

    plan = NATURE


def convolution(
    channels: int, filters: int, size: int, stride: int, dtype: torch.dtype, generator: torch.Generator
) -> nn.Conv2d:
    """A convolution without padding, with orthogonal weights and zero biases."""
    layer = nn.Conv2d(channels, filters, size, stride, dtype=dtype, device="meta").to_empty(device=generator.device)
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, 2**0.5, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def dense(
    inputs: int, outputs: int, scale: float, dtype: torch.dtype, generator: torch.Generator, lecun: bool = False
) -> nn.Linear:
    """A layer with new weights and zero biases."""
    # Created on the meta device first: torch's default initialisation would draw from the global generator.
    layer = nn.Linear(inputs, outputs, dtype=dtype, device="meta").to_empty(device=generator.device)
    if lecun:
        # Of variance 1 / inputs and cut at two standard deviations, which reduces these: JAX's LeCun normal weights.
        std = inputs**-0.5 / 0.87962566
        nn.init.trunc_normal_(layer.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
    else:
        nn.init.orthogonal_(layer.weight, scale, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
