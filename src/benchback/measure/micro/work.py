"""FLOPs of an update, and the machine's best rate for them: the limit that times are compared with."""

from collections.abc import Callable, Sequence
from itertools import pairwise

OBSERVATION_SIZE, NUM_ACTIONS = 4, 2
"""Sizes of CartPole, the environment of all operations."""


def update_flops(batch: int, hidden: Sequence[int], inputs: int = OBSERVATION_SIZE, actions: int = NUM_ACTIONS) -> int:
    """Floating-point operations in the matrix products of one gradient step of actor and critic.

    A layer of n rows costs 2 n i o forward, the same for the gradient of its weights, and the same again for that of
    its input, which the first layer does not need. Activations, loss and optimiser are left out.
    """
    total = 0
    for outputs in (actions, 1):
        first, *others = pairwise((inputs, *hidden, outputs))
        total += 2 * 2 * batch * first[0] * first[1]
        total += sum(3 * 2 * batch * i * o for i, o in others)
    return total


def matmul_flops(batch: int, width: int) -> int:
    """FLOPs of the dominant product: [batch, width] x [width, width]."""
    return 2 * batch * width * width


def product(rows: int, width: int) -> Callable[[], None]:
    """That product in NumPy, as a measure of the machine without any framework."""
    import numpy as np

    random = np.random.default_rng(0)
    left, right = (random.standard_normal((n, width), np.float32) for n in (rows, width))
    out = np.empty_like(left)

    def multiply() -> None:
        np.matmul(left, right, out=out)

    return multiply
