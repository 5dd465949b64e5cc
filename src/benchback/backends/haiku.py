"""Haiku: a function with modules inside, transformed into init and apply."""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from benchback.agent import Backend, Weights
from benchback.backends import xla

backend = Backend(
    modes={"eager": xla.eager, "none": xla.none, "jit": xla.jit},
    units=xla.UNITS,
    block=xla.block,
    mark=xla.mark,
    fetch=xla.fetch,
    compiles=xla.compiles,
)


class MLP(hk.Module):
    """Layers with orthogonal weights and zero biases, then a linear head of its own scale."""

    def __init__(
        self,
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: jnp.dtype,
        name: str,
        activation: str = "tanh",
    ):
        super().__init__(name)
        self.activate = getattr(jax.nn, activation)
        self.hidden, self.outputs, self.head_scale, self.dtype = hidden, outputs, head_scale, dtype

    def __call__(self, x: Shaped[Array, "*B I"]) -> Float[Array, "*B O"]:
        # Haiku creates parameters in the type of the input.
        x = x.astype(self.dtype)
        for i, width in enumerate(self.hidden):
            x = self.activate(hk.Linear(width, w_init=hk.initializers.Orthogonal(2**0.5), name=f"layer_{i}")(x))
        head_init = hk.initializers.Orthogonal(self.head_scale)
        return hk.Linear(self.outputs, w_init=head_init, name=f"layer_{len(self.hidden)}")(x)


def _canonical(module: str, name: str) -> str:
    # Haiku keeps {"actor/layer_0": {"w": [in, out], "b": [out]}, ...}, and what belongs to no module under "~".
    return name if module == "~" else module.replace("/layer_", "/") + {"w": "/kernel", "b": "/bias"}[name]


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
