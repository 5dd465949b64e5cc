"""Gradients of kernels with the factors in the order that is fastest on a CPU: the option `gradients=reordered`.

The gradient of a kernel is x^T g, where x is the input of the layer and g the gradient of its output. On a CPU
[64, rows] x [rows, 2] takes 14 times as long as its transpose, [2, rows] x [rows, 64], and XLA rewrites the second
into the first unless a barrier prevents it. `gradients=framework` leaves the order to the framework and XLA.
"""

from functools import partial
from typing import Any

import jax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Shaped

from benchback.agent import Gradients as Gradients


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: Float[Array, "B I"], kernel: Float[Array, "..."], axis: int = 0) -> Float[Array, "B O"]:
    """x @ kernel, or x @ kernel^T where the kernel is stored with its inputs along `axis` 1."""
    return x @ (kernel.T if axis else kernel)


def _forward(x: Float[Array, "B I"], kernel: Float[Array, "..."], axis: int) -> tuple[Float[Array, "B O"], Any]:
    return product(x, kernel, axis), (x, kernel)


def _backward(axis: int, seen: Any, gradient: Float[Array, "B O"]) -> tuple[Float[Array, "B I"], Float[Array, "..."]]:
    x, kernel = seen
    if axis:
        return gradient @ kernel, over_rows(gradient, x)
    return gradient @ kernel.T, over_rows(x, gradient)


product.defvjp(_forward, _backward)


def over_rows(x: Float[Array, "B M"], y: Float[Array, "B N"]) -> Float[Array, "M N"]:
    """x^T y, computed with the narrower factor on the left; for equal widths x is transposed beforehand."""
    keep = jax.lax.optimization_barrier
    if y.shape[1] < x.shape[1]:
        return keep(y.T @ x).T
    return keep((keep(x.T) if x.shape == y.shape else x.T) @ y)


def dot_general(x: Array, kernel: Array, dimension_numbers: Any, **options: Any) -> Array:
    """jax.lax.dot_general, as `product` where it multiplies rows with a kernel without further options."""
    plain = dimension_numbers == (((1,), (0,)), ((), ())) and kernel.ndim == 2
    if plain and x.dtype == kernel.dtype and not any(options.values()):
        return product(x, kernel)
    return jax.lax.dot_general(x, kernel, dimension_numbers, **options)


@custom_vmap
def row_product(kernel: Float[Array, "O I"], x: Float[Array, "I"]) -> Float[Array, "O"]:
    """kernel @ x of one row; vmapped over rows it is their `product`."""
    return kernel @ x


@row_product.def_vmap
def _row_products(size: int, batched: list[bool], kernel: Shaped[Array, "..."], x: Shaped[Array, "..."]) -> Any:
    if batched == [False, True]:
        return product(x, kernel, 1), True
    return jax.vmap(row_product.fun, [0 if each else None for each in batched])(kernel, x), True


DOT_GENERAL: dict[Gradients, Any] = {"framework": jax.lax.dot_general, "reordered": dot_general}
"""Product of a layer with a `dot_general` hook, for either value of the option `gradients`."""
