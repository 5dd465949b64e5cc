"""Kernel gradients with the factors in the order that is fastest on a CPU, for all five JAX frameworks.

The gradient of a kernel is x^T g, where x is the input of the layer and g the gradient of its output. On a CPU
[64, rows] x [rows, 2] takes 14 times as long as its transpose, [2, rows] x [rows, 64], and XLA rewrites the second
into the first unless a barrier prevents it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal
from jax.extend.core.primitives import dot_general_p
from jaxtyping import Array, Float


def fast_gradients(network: Callable[..., Any]) -> Callable[..., Any]:
    """`network` with the same outputs and a faster gradient on a CPU; works for every JAX framework.

    Its arguments are batches of rows, and it closes over its weights. It is traced, and every product of rows with a
    kernel is replaced by `product`. On other devices, and under jax.disable_jit, where tracing would
    cost more than it saves, the network is returned unchanged.
    """
    if jax.default_backend() != "cpu" or jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return network

    def run(*rows: Any) -> Any:
        program, shape = jax.make_jaxpr(network, return_shape=True)(*rows)
        out = _evaluate(program.jaxpr, program.consts, jax.tree.leaves(rows))
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return run


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: Float[Array, "B I"], kernel: Float[Array, "..."], axis: int) -> Float[Array, "B O"]:
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


def _evaluate(program: Jaxpr, weights: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip((*program.constvars, *program.invars), (*weights, *rows), strict=True))
    of_rows = set(program.invars)
    for equation in program.eqns:
        inputs = [_read(values, atom) for atom in equation.invars]
        from_rows = [not isinstance(atom, Literal) and atom in of_rows for atom in equation.invars]
        if _multiplies_rows(equation, from_rows):
            out: Any = _replaced(equation, inputs, from_rows)
        else:
            out = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
        values.update(zip(equation.outvars, out if equation.primitive.multiple_results else [out], strict=True))
        if any(from_rows):
            of_rows.update(equation.outvars)
    return [_read(values, atom) for atom in program.outvars]


def _read(values: dict[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _multiplies_rows(equation: JaxprEqn, from_rows: list[bool]) -> bool:
    """Whether the equation is a plain product of rows, `[B, I]`, with a kernel."""
    if equation.primitive is not dot_general_p or sum(from_rows) != 1 or equation.params["precision"] is not None:
        return False
    avals: list[Any] = [atom.aval for atom in (*equation.invars, *equation.outvars)]
    x, kernel, out = avals
    same_type = x.dtype == kernel.dtype == out.dtype
    contracted, batched = equation.params["dimension_numbers"]
    plain = x.ndim == kernel.ndim == 2 and not any(batched)
    return plain and same_type and tuple(contracted[from_rows.index(True)]) == (1,)


def _replaced(equation: JaxprEqn, inputs: list[Any], from_rows: list[bool]) -> Any:
    rows_at, kernel_at = from_rows.index(True), from_rows.index(False)
    contracted, _ = equation.params["dimension_numbers"]
    out: Any = product(inputs[rows_at], inputs[kernel_at], contracted[kernel_at][0])
    return out.T if rows_at else out
