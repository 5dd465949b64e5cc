"""What the largest operations of a population take by themselves: products, tanh and Adam of a group of PPO's members.

    NPROC=1 python benchmarks/population_floor.py [--groups 1 8 16]

The shapes are those of `benchmarks/population.py`: two towers of 64-64, gradient steps on 128 rows, 16 of them in an
iteration. Every operation is a loop of its own as one program, its data in the caches; processor time, the least of 25
calls. A program of whole iterations cannot take less than their sum.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

ROWS, WIDTH, INPUTS, ACTIONS = 128, 64, 4, 2
GRADIENT_STEPS = 16
TIMES = {"forward product": 2, "input gradient": 2, "kernel gradient": 2, "tanh": 4, "Adam": 1}
"""Operation -> how often a gradient step has it."""
INSTEAD = "Adam, one vector"
"""Adam on all parameters of a member as one vector: an alternative that is not part of the sum."""
LOOP, CALLS = 200, 25


def params(group: int) -> dict[str, Any]:
    """Parameters of both towers of a group."""
    layers = {
        name: [(INPUTS, WIDTH), (WIDTH, WIDTH), (WIDTH, out)] for name, out in (("actor", ACTIONS), ("critic", 1))
    }
    return {
        f"{name}/{i}": {"kernel": jnp.ones((group, *shape)), "bias": jnp.ones((group, shape[1]))}
        for name, shapes in layers.items()
        for i, shape in enumerate(shapes)
    }


def operations(group: int) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Operation -> a function of what it changes, and that."""
    x = jax.random.normal(jax.random.key(0), (group, ROWS, WIDTH))
    kernel = jax.random.normal(jax.random.key(1), (group, WIDTH, WIDTH)) / WIDTH**0.5
    tree, adam = params(group), optax.adam(1e-3)

    def one_step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        step, state = adam.update(tree, carry[1])
        return optax.apply_updates(carry[0], step), state

    def one_vector(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(tree)
        flat = jnp.concatenate([leaf.reshape(group, -1) for leaf in leaves], axis=1)
        step, state = cast(Any, adam.update(flat, carry[1]))
        ends = [sum(leaf[0].size for leaf in leaves[:i]) for i in range(1, len(leaves))]
        steps = [s.reshape(leaf.shape) for s, leaf in zip(jnp.split(step, ends, axis=1), leaves, strict=True)]
        return optax.apply_updates(carry[0], structure.unflatten(steps)), state

    size = sum(leaf[0].size for leaf in jax.tree.leaves(tree))
    return {
        "forward product": (lambda y: jnp.matmul(y, kernel), x),
        "input gradient": (lambda y: jnp.einsum("bij,bkj->bik", y, kernel), x),
        "kernel gradient": (lambda k: jnp.einsum("bij,bik->bjk", x, x * k[:, :1, :]), kernel),
        "tanh": (lambda y: jnp.tanh(y + 0.1), x),
        "Adam": (one_step, (tree, adam.init(tree))),
        INSTEAD: (one_vector, (tree, adam.init(jnp.ones((group, size))))),
    }


def seconds(function: Callable[[Any], Any], start: Any) -> float:
    """Processor seconds of one application."""
    program = jax.jit(lambda carry: jax.lax.fori_loop(0, LOOP, lambda _, x: function(x), carry))
    jax.block_until_ready(program(start))
    found = []
    for _ in range(CALLS):
        started = time.process_time()
        jax.block_until_ready(program(start))
        found.append(time.process_time() - started)
    return min(found) / LOOP


def main() -> None:
    """Time, then print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 8, 16])
    flags = parser.parse_args()
    print("| group | operation | of the group | GFLOP/s | in an iteration of a member |")
    print("|---:|---|---:|---:|---:|")
    for group in flags.groups:
        total = 0.0
        for name, (function, start) in operations(group).items():
            took = seconds(function, start)
            member = TIMES.get(name, 1) * GRADIENT_STEPS * took / group
            total += 0.0 if name == INSTEAD else member
            rate = f"{2e-9 * group * ROWS * WIDTH**2 / took:.0f}" if "product" in name or "gradient" in name else ""
            print(f"| {group} | {name} | {1e6 * took:.1f} us | {rate} | {1e3 * member:.2f} ms |", flush=True)
        print(f"| {group} | together | | | {1e3 * total:.2f} ms |", flush=True)


if __name__ == "__main__":
    main()
