"""Shared by the oracles of all algorithms, in plain NumPy and float64: MLPs and Adam.

Written independently from the equations, with gradients by hand. It imports only data types from the rest of the
project, no computations.

Weights are canonical: `actor/0/kernel` is `[in, out]`, and optimiser states are stored beside them, e.g. under `adam/`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from benchback.agent import Weights, networks

ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
SLOPES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": lambda y: 1 - y**2, "relu": lambda y: (y > 0) * 1.0}
"""Derivative of each activation in terms of its output."""


def parameters(weights: Weights) -> Weights:
    """The weights of the networks, in float64."""
    return {name: np.asarray(x, float) for name, x in networks(weights).items()}


def of_towers(weights: Weights, towers: Iterable[str]) -> Weights:
    """The part of `weights` that belongs to the given towers."""
    return {name: x for name, x in weights.items() if name.split("/")[0] in towers}


def fresh_adam(weights: Weights, section: str = "adam") -> Weights:
    """Initial Adam state for `weights`, under canonical names."""
    zero = {name: np.zeros_like(x) for name, x in weights.items()}
    moments = {f"{section}/{kind}/{name}": x for kind in ("mean", "variance") for name, x in zero.items()}
    return {f"{section}/count": np.array(0)} | moments


# The network: hidden layers with activations and a linear output layer.


def forward(weights: Weights, tower: str, obs: np.ndarray, activation: str = "tanh") -> list[np.ndarray]:
    """Input of every layer, then the output: h_0 = obs, h_{i+1} = f(h_i K_i + b_i), the last layer linear."""
    depth = sum(name.startswith(f"{tower}/") and name.endswith("/kernel") for name in weights)
    layers = [np.asarray(obs, float)]
    for i in range(depth):
        out = layers[-1] @ weights[f"{tower}/{i}/kernel"] + weights[f"{tower}/{i}/bias"]
        layers.append(out if i == depth - 1 else ACTIVATIONS[activation](out))
    return layers


def backward(
    weights: Weights, tower: str, layers: list[np.ndarray], gradient: np.ndarray, activation: str = "tanh"
) -> tuple[Weights, np.ndarray]:
    """Gradient of every weight of the tower and of its input, given the gradient of its output."""
    result = {}
    for i in reversed(range(len(layers) - 1)):
        result[f"{tower}/{i}/kernel"] = layers[i].T @ gradient
        result[f"{tower}/{i}/bias"] = gradient.sum(0)
        gradient = gradient @ weights[f"{tower}/{i}/kernel"].T
        if i > 0:
            gradient = gradient * SLOPES[activation](layers[i])
    return result, gradient


# The optimiser.


def global_norm(gradient: Weights) -> float:
    """Euclidean norm of all gradients as one vector."""
    return float(np.sqrt(sum((g**2).sum() for g in gradient.values())))


def clip_by_global_norm(gradient: Weights, limit: float) -> Weights:
    """The gradient, scaled to norm `limit` if its norm is larger."""
    scale = min(1.0, limit / global_norm(gradient))
    return {name: scale * g for name, g in gradient.items()}


def adam(
    weights: Weights,
    gradient: Weights,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    section: str = "adam",
) -> Weights:
    """Weights and moments after one step of Adam with bias correction (Kingma & Ba 2015, algorithm 1)."""
    count = int(weights[f"{section}/count"]) + 1
    result: Weights = {f"{section}/count": np.array(count)}
    for name, g in gradient.items():
        mean = beta1 * weights[f"{section}/mean/{name}"] + (1 - beta1) * g
        variance = beta2 * weights[f"{section}/variance/{name}"] + (1 - beta2) * g**2
        step = rate * (mean / (1 - beta1**count)) / (np.sqrt(variance / (1 - beta2**count)) + epsilon)
        result |= {name: weights[name] - step, f"{section}/mean/{name}": mean, f"{section}/variance/{name}": variance}
    return result


def widened(x: np.ndarray) -> np.ndarray:
    """Floats converted to float64; other types unchanged."""
    return np.asarray(x, float) if np.issubdtype(np.asarray(x).dtype, np.floating) else np.asarray(x)


def episodes(batch: Any) -> dict[str, float]:
    """Mean return and length of the episodes that ended in a rollout (NaN if none did), and their number."""
    done = np.asarray(batch.terminated | batch.truncated)
    number = int(done.sum())
    return {
        "episode_return": float(np.asarray(batch.episode_return)[done].mean()) if number else float("nan"),
        "episode_length": float(np.asarray(batch.episode_length)[done].mean()) if number else float("nan"),
        "episodes": number,
    }
