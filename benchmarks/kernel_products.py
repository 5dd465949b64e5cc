"""What the gradient of a kernel costs together with what Adam and the norm do with it, by the order of its factors.

    NPROC=1 OMP_NUM_THREADS=1 python benchmarks/kernel_products.py

x are the inputs of a layer, g the gradient of its output, of several members at once where there are any. Microseconds
of processor time; `backends/kernel_gradients.py` chooses among these orders.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

SHAPES = (
    (8, 128, 4, 64),
    (8, 128, 64, 64),
    (8, 128, 64, 2),
    (8, 128, 4, 120),
    (8, 128, 120, 84),
    (8, 128, 84, 2),
    (1, 2048, 64, 64),
    (1, 256, 256, 256),
    (1, 256, 256, 6),
)
"""Members, rows, inputs, outputs: layers of PPO, DQN and TD3."""
ROUNDS, CALL_PRODUCTS = 7, 4e8
keep = jax.lax.optimization_barrier
ORDERS: dict[str, Callable[[Array, Array], Array]] = {
    "x^T g, XLA's choice": lambda x, g: x.T @ g,
    "x^T transposed beforehand": lambda x, g: keep(keep(x.T) @ g),
    "(g^T x)^T": lambda x, g: keep(g.T @ x).T,
    "(g^T x)^T, g^T transposed beforehand": lambda x, g: keep(keep(g.T) @ x).T,
}


def used(gradient: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """New moments and the sum of squares."""
    return 0.9 * mean + 0.1 * gradient, 0.999 * variance + 0.001 * gradient**2, (gradient**2).sum()


def microseconds(order: Callable[[Array, Array], Array], shape: tuple[int, int, int, int]) -> float:
    """Of one gradient and its use, in a loop that cannot leave any of them out."""
    members, rows, inputs, outputs = shape
    draw = np.random.default_rng(0).normal
    sizes = [(rows, inputs), (rows, outputs), (inputs, outputs), (inputs, outputs)]
    arguments: Any = [jnp.asarray(draw(size=(members, *size) if members > 1 else size), jnp.float32) for size in sizes]

    def one(x: Array, g: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        return used(order(x, g), mean, variance)

    many = jax.vmap(one) if members > 1 else one
    calls = max(20, int(CALL_PRODUCTS / (members * rows * inputs * outputs + 1e6)))

    def loop(x: Array, *rest: Array) -> Any:
        def body(_: int, before: Any) -> Any:
            carried = sum(leaf.ravel()[0] for leaf in before) * 1e-30
            return many(*keep((x.at[(0,) * x.ndim].add(carried), *rest)))

        zeros = tuple(jnp.zeros(leaf.shape, leaf.dtype) for leaf in jax.eval_shape(many, x, *rest))
        return jax.lax.fori_loop(0, calls, body, zeros)

    program = jax.jit(loop)
    jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.process_time() - started)
    return 1e6 * statistics.median(seconds) / calls


def main() -> None:
    print("| members | rows | layer |", " | ".join(ORDERS), "|")
    print("|---:|---:|---|" + "---:|" * len(ORDERS))
    for shape in SHAPES:
        members, rows, inputs, outputs = shape
        found = (f"{microseconds(order, shape):.1f}" for order in ORDERS.values())
        print(f"| {members} | {rows} | {inputs} to {outputs} |", " | ".join(found), "|", flush=True)


if __name__ == "__main__":
    main()
