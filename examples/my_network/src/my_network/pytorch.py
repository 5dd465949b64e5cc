"""The residual network in PyTorch, for PPO, VPG and DQN."""

from itertools import pairwise
from math import prod

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from benchback.algorithms.dqn import pytorch as dqn
from benchback.backends import pytorch


class Residual(nn.Module):
    """Dense layers around which the signal also passes unchanged."""

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: torch.dtype,
        generator: torch.Generator,
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        self.dtype, self.depth, self.activate = dtype, len(hidden), pytorch.ACTIVATIONS[activation]()
        widths = (prod(shape), *hidden, outputs)
        for i, (inputs, width) in enumerate(pairwise(widths)):
            scale = 2**0.5 if i < self.depth else head_scale
            self.add_module(str(i), pytorch.dense(inputs, width, scale, dtype, generator))
            if 0 < i < self.depth:
                self.add_module(f"{i}_norm", nn.LayerNorm(inputs, dtype=dtype, device=generator.device))

    def forward(self, x: Shaped[Tensor, "B *I"]) -> Float[Tensor, "B O"]:
        layers = dict(self.named_children())
        x = self.activate(layers["0"](x.reshape(x.shape[0], -1).to(self.dtype)))
        for i in range(1, self.depth):
            x = x + self.activate(layers[str(i)](layers[f"{i}_norm"](x)))
        return layers[str(self.depth)](x)


class ActorCritic(pytorch.ActorCritic):
    """Separate residual networks for actor and critic."""

    tower = Residual


class QNetwork(dqn.QNetwork):
    """A residual network for the value of each action."""

    tower = Residual
