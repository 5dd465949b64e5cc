"""Deviations between two results; NaN or infinite if an array is missing, has another shape or contains NaN."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchback.agent import Weights

Deviation = tuple[str, float]
"""A quantity and its deviation; the part of the name after a slash only distinguishes variants."""


def worst(deviations: Iterable[Deviation]) -> Iterator[Deviation]:
    """The largest deviation of each quantity; NaN if any is NaN."""
    found: dict[str, float] = {}
    for quantity, deviation in deviations:
        found[quantity] = float(np.maximum(found.get(quantity, 0.0), deviation))
    yield from found.items()


def absolute(found: Any, expected: Any) -> float:
    """max |a - b|."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return np.inf
    return float(np.max(np.abs(found.astype(float) - expected.astype(float)), initial=0.0))


def relative(found: Any, expected: Any, floor: float) -> float:
    """max |a - b| over the largest |b| of the array, or over `floor` where that is larger."""
    return absolute(found, expected) / float(np.max(np.abs(expected), initial=floor))


def mismatch(found: Any, expected: Any) -> float:
    """Fraction of entries that differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.mean(found != expected)) if found.shape == expected.shape else np.inf


def unlike(found: Any, expected: Any) -> float:
    """Deviation of actions: fraction of discrete ones that differ; whether continuous ones are not close."""
    exact = np.issubdtype(np.asarray(expected).dtype, np.integer)
    return mismatch(found, expected) if exact else float(not absolute(found, expected) <= 1e-5)


def off_orthogonal(kernel: np.ndarray) -> float:
    """Deviation of the Gram matrix of the kernel's shorter side from the identity."""
    gram = kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel
    return absolute(gram, np.eye(len(gram)))


CUT = 2 / 0.87962566
"""Largest size of a LeCun normal weight times the root of its layer's inputs."""


def off_lecun_normal(kernels: Sequence[np.ndarray]) -> float:
    """How far the standard deviation of all weights, times the root of their layer's inputs, is from 1.

    Infinity if one is beyond the cut at two standard deviations.
    """
    scaled = np.concatenate([(x * len(x) ** 0.5).ravel() for x in kernels])
    return abs(float(scaled.std()) - 1) if np.abs(scaled).max() < CUT * (1 + 1e-6) else np.inf


def of_metrics(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[Deviation]:
    """Deviation of every expected metric, relative to its size where that exceeds 1, since most are differences.

    Where NaN (nothing to report) is expected, the metric must be NaN.
    """
    for name, value in expected.items():
        kind = "episode" if name.startswith("episode") else "metric"
        silent = np.isnan(value) & np.isnan(found[name]) if name in found else False
        ours, theirs = (np.where(silent, 0.0, x) for x in (found.get(name, np.nan), value))
        yield f"{kind}/{name}", relative(ours, theirs, floor=1.0)


def of_weights(found: Weights, expected: Weights) -> Iterator[Deviation]:
    """Deviation of weights (absolute), Adam's moments (as in `of_towers`), counts and names (exact).

    Normaliser statistics are relative to their largest feature; the memory of a network lies between -1 and 1.
    """
    yield "names", float(trained(found).keys() != expected.keys())
    for name, x in expected.items():
        if name.endswith("adam/count"):
            yield "count", mismatch(found.get(name, np.nan), x)
            for moment in ("mean", "variance"):
                prefix = f"{name.removesuffix('count')}{moment}/"
                yield from of_towers(moment, section(found, prefix), section(expected, prefix))
        elif name.startswith("normaliser/"):
            yield "normaliser", relative(found.get(name, np.nan), x, floor=1e-3)
        elif name == "memory":
            yield "memory", absolute(found.get(name, np.nan), x)
        elif "adam/" not in name:
            yield "weight", absolute(found.get(name, np.nan), x)


def trained(weights: Weights) -> Weights:
    """The weights that all backends must agree on: without the environment and collected data."""
    return {name: x for name, x in weights.items() if not name.startswith(("env/", "rng", "replay/"))}


def of_towers(quantity: str, found: Weights, expected: Weights) -> Iterator[Deviation]:
    """Deviation relative to the largest entry of the same tower: single arrays may be near zero by cancellation."""
    for tower in sorted({_tower(name) for name in expected}):
        members = {name: x for name, x in expected.items() if _tower(name) == tower}
        scale = max(np.max(np.abs(x)) for x in members.values())
        for name, x in members.items():
            yield quantity, absolute(found.get(name, np.nan), x) / scale


def _tower(name: str) -> str:
    """Tower of a weight; the log standard deviation belongs to the actor."""
    return "actor" if name == "log_std" else name.split("/")[0]


def section(weights: Weights, prefix: str) -> Weights:
    """The arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): x for name, x in weights.items() if name.startswith(prefix)}
