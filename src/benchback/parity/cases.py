"""Shared by the test cases of all algorithms: numbers that float32 holds exactly, and rollouts with every ending."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.parity.environment import OBSERVATION_SIZE, observation_shape, observations
from benchback.parity.oracle import nearest_edge, parameters
from benchback.plugins.towers import TOWERS

EDGE = 1e-5
"""How far relus of images are from changing sides: ten times what rounding to float32 makes of their sums."""


def rounded(x: np.ndarray) -> np.ndarray:
    """Floats rounded to float32; other types unchanged."""
    return x.astype(np.float32) if np.issubdtype(x.dtype, np.floating) else x


def as_bits(obs: np.ndarray) -> np.ndarray:
    """Observations of type bool, as in MinAtar: whether bytes or normal numbers are in the upper half."""
    return obs > (127 if obs.dtype == np.uint8 else 0)


def exact(weights: Weights) -> Weights:
    """`weights` rounded to float32, stored in float64 for the oracle."""
    return {name: rounded(x).astype(float) if x.ndim else x for name, x in weights.items()}


def clear_images(
    random: np.random.Generator,
    number: int,
    network: str,
    weights: Weights,
    towers: Iterable[str],
    *,
    bits: bool = False,
) -> np.ndarray:
    """Images of bytes or bools, drawn again where one of a thousand relus is so near its edge that rounding decides.

    The gradient jumps there: one relu on the other side in one of 64 rows changes it by 3e-4.
    """

    def draw(count: int) -> np.ndarray:
        obs = observations(random, (count,), network)
        return as_bits(obs) if bits else obs

    obs, known = draw(number), parameters(weights)
    while len(close := np.flatnonzero(np.min([nearest_edge(known, tower, obs) for tower in towers], 0) < EDGE)):
        obs[close] = draw(len(close))
    return obs


def layers(random: np.random.Generator, tower: str, network: str, widths: Sequence[int]) -> Weights:
    """Random weights of a tower that is given observations; its dense layers have these widths, the last its output."""
    shapes: list[tuple[int, ...]] = []
    inputs = OBSERVATION_SIZE
    if network in TOWERS:
        *_, channels = image = observation_shape(network)
        for filters, size, _ in TOWERS[network].convolutions:
            shapes.append((size, size, channels, filters))
            channels = filters
        inputs = int(np.prod(TOWERS[network].image(image)))
    return random_kernels(random, tower, [*shapes, *pairwise((inputs, *widths))])


def random_kernels(random: np.random.Generator, tower: str, shapes: Sequence[tuple[int, ...]]) -> Weights:
    """Kernels of these shapes whose outputs are of order one, and biases."""
    weights = {}
    for i, shape in enumerate(shapes):
        weights[f"{tower}/{i}/kernel"] = 1.5 * random.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
        weights[f"{tower}/{i}/bias"] = 0.1 * random.normal(size=shape[-1])
    return weights


def ends_of_episodes(random: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Where episodes of a rollout are terminated and truncated: either, both, also on the last step, `[T, E]`."""
    terminated, truncated = random.random(shape) < 0.15, random.random(shape) < 0.15
    terminated[2, 0] = truncated[2, 0] = True
    # The last step of environments 0 to 3: ongoing, terminated, truncated, both.
    terminated[-1, :4] = False, True, False, True
    truncated[-1, :4] = False, False, True, True
    return terminated, truncated


def on_policy_rollout(
    random: np.random.Generator,
    obs: np.ndarray,
    action: np.ndarray,
    log_prob: np.ndarray,
    value: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> Transition:
    """A rollout of these arrays; log probabilities and values are off by a fifth, as of an older policy."""
    shape = ends[0].shape
    return Transition(
        obs=obs,
        action=action,
        log_prob=log_prob + 0.2 * random.normal(size=shape),
        value=value + 0.2 * random.normal(size=shape),
        reward=random.normal(size=shape),
        terminated=ends[0],
        truncated=ends[1],
        final_value=random.normal(size=shape),
        episode_return=random.normal(size=shape),
        episode_length=random.integers(1, 100, size=shape).astype(np.int32),
    )
