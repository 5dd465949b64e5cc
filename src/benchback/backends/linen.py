"""Flax Linen: parameters are a tree beside the module."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Shaped

from benchback.agent import Backend
from benchback.backends import xla

backend = Backend(
    modes={"eager": xla.eager, "none": xla.none, "jit": xla.jit},
    units=xla.UNITS,
    block=xla.block,
    mark=xla.mark,
    fetch=xla.fetch,
    compiles=xla.compiles,
)

LAYOUT = xla.TREE


class MLP(nn.Module):
    """Layers with orthogonal weights and zero biases, then a linear head of its own scale."""

    hidden: tuple[int, ...]
    outputs: int
    head_scale: float
    dtype: jnp.dtype
    activation: str = "tanh"

    @nn.compact
    def __call__(self, x: Shaped[Array, "*B I"]) -> Float[Array, "*B O"]:
        x = x.astype(self.dtype)
        for i, width in enumerate(self.hidden):
            x = getattr(nn, self.activation)(self.dense(width, 2**0.5, i)(x))
        return self.dense(self.outputs, self.head_scale, len(self.hidden))(x)

    def dense(self, width: int, scale: float, index: int) -> nn.Dense:
        return nn.Dense(
            width,
            kernel_init=nn.initializers.orthogonal(scale),
            dtype=self.dtype,
            param_dtype=self.dtype,
            name=str(index),
        )
