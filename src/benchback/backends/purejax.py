"""Plain JAX: parameters are lists of dictionaries, layers are two lines."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

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

Layers = list[dict[str, Any]]


def init_mlp(key: Key[Array, ""], sizes: tuple[int, ...], head_scale: float, dtype: jnp.dtype) -> Layers:
    """Orthogonal weights and zero biases for layers of `sizes`; the last one has a scale of its own."""
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


def mlp(layers: Layers, x: Shaped[Array, "*B I"], activation: str = "tanh") -> Float[Array, "*B O"]:
    """Layers with an activation each, then a linear head."""
    activate = getattr(jax.nn, activation)
    x = x.astype(layers[0]["kernel"].dtype)
    for layer in layers[:-1]:
        x = activate(x @ layer["kernel"] + layer["bias"])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"]
