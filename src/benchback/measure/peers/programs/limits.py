"""What this machine can do at most, by itself and now: the work's products, copies of memory, environment steps.

Standard library and NumPy; JAX where a side's environment is a JAX program. Timed in the side's process right after its
training, so that both saw the machine in the same state.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

PRODUCTS_S, FEWEST_CALLS = 0.3, 5
"""Seconds to spend on all products, and calls of each at least."""
COPY_BYTES, COPIES = 2**27, 5
ENV_STEPS, ENV_S, MOST_CALLS = 64, 0.5, 50
"""Environment steps of a call, seconds to spend on calls, and calls at most."""


def of_machine(demand: dict[str, Any]) -> dict[str, float]:
    """Seconds of one iteration's products by themselves, and bytes a second of copying; nothing if nothing is asked."""
    if not demand:
        return {}
    return {
        "iteration_flops": demand["flops"],
        "iteration_bytes": demand["bytes"],
        "product_s": products_s(demand["products"], demand["agents"]),
        "copy_bytes_per_s": copy_bytes_per_s(),
    }


def products_s(products: Sequence[Sequence[float]], agents: int = 1) -> float:
    """Seconds of all products, each shape timed by itself in NumPy; of several agents as one call for all of them."""
    shapes: dict[tuple[int, int, int], float] = {}
    for count, rows, inputs, outputs in products:
        key = int(rows), int(inputs), int(outputs)
        shapes[key] = shapes.get(key, 0) + count
    return sum(count * product_s(*shape, PRODUCTS_S / len(shapes), agents) for shape, count in shapes.items())


def product_s(rows: int, inputs: int, outputs: int, budget_s: float, agents: int = 1) -> float:
    """Median seconds of [rows, inputs] x [inputs, outputs] in float32, for every agent."""
    import numpy as np

    random = np.random.default_rng(0)
    many = (agents,) if agents > 1 else ()
    shapes = (*many, rows, inputs), (*many, inputs, outputs)
    left, right = (random.standard_normal(shape, np.float32) for shape in shapes)
    out = np.empty((*many, rows, outputs), np.float32)
    # With one input it is an outer product, which NumPy's matmul computes up to 20 times slower than by broadcasting.
    multiply = np.multiply if inputs == 1 else np.matmul
    return median_s(lambda: multiply(left, right, out=out), budget_s, 10_000)


def copy_bytes_per_s() -> float:
    """Bytes read and written in a second by a copy that no cache holds."""
    import numpy as np

    source, target = np.ones(COPY_BYTES // 8), np.zeros(COPY_BYTES // 8)
    return 2 * COPY_BYTES / median_s(lambda: np.copyto(target, source), 0, COPIES)


def median_s(call: Callable[[], Any], budget_s: float, most: int) -> float:
    """Median seconds of a call, after one that is not counted."""
    call()
    times: list[float] = []
    while len(times) < FEWEST_CALLS or (len(times) < most and sum(times) < budget_s):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def env_step_s(play: Callable[[], Any]) -> float:
    """Median seconds of one step of all environments; `play` makes ENV_STEPS of them and waits."""
    return median_s(play, ENV_S, MOST_CALLS) / ENV_STEPS


def jax_env_step_s(reset: Any, step: Any, draw: Any) -> float:
    """The same of a JAX environment: `reset(key)`, `step(state, action, key)` -> state, what it shows; `draw(key)`."""
    import jax
    import jax.numpy as jnp

    def advance(state: Any, key: Any) -> tuple[Any, Any]:
        action_key, step_key = jax.random.split(key)
        state, shown = step(state, draw(action_key), step_key)
        # Used, so that the compiler cannot leave out the step, and summed, so that nothing is stored.
        return state, sum(jnp.sum(x.astype(jnp.float32)) for x in jax.tree.leaves(shown))

    state = jax.jit(reset)(jax.random.PRNGKey(0))
    play = jax.jit(lambda state, key: jax.lax.scan(advance, state, jax.random.split(key, ENV_STEPS)))
    return env_step_s(lambda: jax.block_until_ready(play(state, jax.random.PRNGKey(1))))
