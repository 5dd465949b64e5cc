"""FLOPs of an update, and the machine's best rate for them: the limit that times are compared with."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from benchback.measure.flops import gradient_flops

OBSERVATION_SIZE, NUM_ACTIONS = 4, 2
"""Sizes of CartPole, the environment of all operations."""


def update_flops(batch: int, hidden: Sequence[int], inputs: int = OBSERVATION_SIZE, actions: int = NUM_ACTIONS) -> int:
    """FLOPs in the matrix products of one gradient step of actor and critic."""
    return sum(gradient_flops(batch, list(pairwise((inputs, *hidden, outputs)))) for outputs in (actions, 1))


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
