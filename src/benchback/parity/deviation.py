"""How far two results are apart. A missing, misshapen or undefined array is NaN or infinitely far."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from benchback.agent import Weights

Deviation = tuple[str, float]
"""A quantity and how far it is off; what follows a slash in its name only tells it from its like."""


def worst(deviations: Iterable[Deviation]) -> Iterator[Deviation]:
    """Each quantity once, with its largest deviation; NaN if one is."""
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
    """Share of entries that are not equal."""
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.mean(found != expected)) if found.shape == expected.shape else np.inf


def unlike(found: Any, expected: Any) -> float:
    """Of actions: the share of discrete ones that are not equal; whether real-valued ones are not near."""
    exact = np.issubdtype(np.asarray(expected).dtype, np.integer)
    return mismatch(found, expected) if exact else float(not absolute(found, expected) <= 1e-5)


def off_orthogonal(kernel: np.ndarray) -> float:
    """How far the inner products of the kernel's shorter side are from the identity."""
    gram = kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel
    return absolute(gram, np.eye(len(gram)))


def of_metrics(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[Deviation]:
    """Every expected metric, relative to its size where that exceeds 1, since most are differences.

    NaN says that an iteration has nothing to report; where it is expected it must be found.
    """
    for name, value in expected.items():
        kind = "episode" if name.startswith("episode") else "metric"
        silent = np.isnan(value) & np.isnan(found[name]) if name in found else False
        ours, theirs = (np.where(silent, 0.0, x) for x in (found.get(name, np.nan), value))
        yield f"{kind}/{name}", relative(ours, theirs, floor=1.0)


def of_weights(found: Weights, expected: Weights) -> Iterator[Deviation]:
    """Weights absolutely, moments of an Adam as `of_towers` has it, its count and all names exactly.

    Statistics of what was seen relative to the largest of their features.
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
        elif "adam/" not in name:
            yield "weight", absolute(found.get(name, np.nan), x)


def trained(weights: Weights) -> Weights:
    """What training changes and every backend must agree on: neither the environment nor what was seen in it."""
    return {name: x for name, x in weights.items() if not name.startswith(("env/", "rng", "replay/"))}


def of_towers(quantity: str, found: Weights, expected: Weights) -> Iterator[Deviation]:
    """Arrays relative to the largest entry of their tower: a sum that all but cancels has no scale."""
    for tower in sorted({_tower(name) for name in expected}):
        members = {name: x for name, x in expected.items() if _tower(name) == tower}
        scale = max(np.max(np.abs(x)) for x in members.values())
        for name, x in members.items():
            yield quantity, absolute(found.get(name, np.nan), x) / scale


def _tower(name: str) -> str:
    """The spread of a policy belongs to its actor."""
    return "actor" if name == "log_std" else name.split("/")[0]


def section(weights: Weights, prefix: str) -> Weights:
    """The arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): x for name, x in weights.items() if name.startswith(prefix)}
