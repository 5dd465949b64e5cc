"""Gradients of kernels with the factors in the order that is fastest on a CPU: the option `gradients=reordered`.

The gradient of a kernel is x^T g, where x is the input of the layer and g the gradient of its output. On a CPU
[64, rows] x [rows, 2] takes 14 times as long as its transpose, [2, rows] x [rows, 64], and XLA rewrites the second
into the first unless a barrier prevents it. The gradients of a convolution are convolutions with their dimensions in
another order. For one order XLA has a fast routine on CPUs, and inside of loops it does not bring others into it.
`gradients=framework` leaves the order to the framework and XLA.
"""

from collections.abc import Callable
from functools import cache, partial
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


MUCH_NARROWER = 4
TRANSPOSED = 256
"""Up to so many columns the left factor is transposed by itself: XLA's library for products wants its rows last."""


def over_rows(x: Float[Array, "B M"], y: Float[Array, "B N"]) -> Float[Array, "M N"]:
    """x^T y; where y is much narrower it is put on the left, and the result transposed."""
    keep = jax.lax.optimization_barrier
    if MUCH_NARROWER * y.shape[1] <= x.shape[1]:
        return over_rows(y, x).T
    return keep((keep(x.T) if x.shape[1] <= TRANSPOSED else x.T) @ y)


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


IMAGES = ("NHWC", "HWIO", "NHWC")
"""The order of dimensions for which XLA has a fast convolution on CPUs."""


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(
    x: Float[Array, "B H W C"], kernel: Float[Array, "h w C F"], stride: int
) -> Float[Array, "B height width F"]:
    """The kernel applied to every place of the images, without padding; its gradients are convolutions of `IMAGES`."""
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=IMAGES)


def _convolve(
    x: Float[Array, "B H W C"], kernel: Float[Array, "h w C F"], stride: int
) -> tuple[Float[Array, "B height width F"], Any]:
    return convolve(x, kernel, stride), (x, kernel)


def _convolve_back(
    stride: int, seen: Any, gradient: Float[Array, "B height width F"]
) -> tuple[Float[Array, "B H W C"], Float[Array, "h w C F"]]:
    """Images take part as channels in the gradient of the kernel, and its entries are the places."""
    x, kernel = seen
    apart, sides, sizes = (stride, stride), x.shape[1:3], kernel.shape[:2]
    used = [stride * (places - 1) + size for size, places in zip(sizes, gradient.shape[1:3], strict=True)]
    of_kernel = jax.lax.conv_general_dilated(
        x[:, : used[0], : used[1]].transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        "VALID",
        rhs_dilation=apart,
        dimension_numbers=IMAGES,
    )
    of_images = jax.lax.conv_general_dilated(
        gradient,
        kernel[::-1, ::-1].swapaxes(2, 3),
        (1, 1),
        [(size - 1, size - 1 + side - end) for size, side, end in zip(sizes, sides, used, strict=True)],
        lhs_dilation=apart,
        dimension_numbers=IMAGES,
    )
    return of_images, of_kernel.transpose(1, 2, 0, 3)


convolve.defvjp(_convolve, _convolve_back)


@cache
def image_convolution(stride: int) -> Callable[[Array, Array], Array]:
    """Convolution of one image, channels first, by a kernel [F C h w]; vmapped over images it is their `convolve`."""

    @custom_vmap
    def convolution(kernel: Float[Array, "F C h w"], x: Float[Array, "C H W"]) -> Float[Array, "F height width"]:
        return jax.lax.conv_general_dilated(x[None], kernel, (stride, stride), "VALID")[0]

    @convolution.def_vmap
    def _(size: int, batched: list[bool], kernel: Shaped[Array, "..."], x: Shaped[Array, "..."]) -> Any:
        if batched == [False, True]:
            out: Any = convolve(x.transpose(0, 2, 3, 1), kernel.transpose(2, 3, 1, 0), stride)
            return out.transpose(0, 3, 1, 2), True
        return jax.vmap(convolution.fun, [0 if each else None for each in batched])(kernel, x), True

    return convolution


USUAL = {
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "dimension_numbers": jax.lax.conv_dimension_numbers((1,) * 4, (1,) * 4, IMAGES),
    "feature_group_count": 1,
}
"""What Flax says of a convolution without special options."""


def conv_general_dilated(x: Array, kernel: Array, strides: tuple[int, ...], padding: Any, **options: Any) -> Array:
    """jax.lax.conv_general_dilated, as `convolve` where there is no padding and no special option."""
    usual = all(value == USUAL.get(name) for name, value in options.items())
    if usual and x.ndim == 4 and padding == "VALID" and strides[0] == strides[1]:
        return convolve(x, kernel, strides[0])
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, **options)


DOT_GENERAL: dict[Gradients, Any] = {"framework": jax.lax.dot_general, "reordered": dot_general}
"""Product of a layer with a `dot_general` hook, for either value of the option `gradients`."""
CONVOLUTION: dict[Gradients, Any] = {"framework": jax.lax.conv_general_dilated, "reordered": conv_general_dilated}
"""Convolution of a layer with a `conv_general_dilated` hook, likewise."""
