"""Shared by the oracles of all algorithms, in plain NumPy and float64: MLPs, convolutions and Adam.

Written independently from the equations, with gradients by hand. It imports only data types from the rest of the
project, no computations.

Weights are canonical: `actor/0/kernel` is `[in, out]`, of a convolution `[height, width, in, out]`, and the states of
optimisers are stored beside them, e.g. under `adam/`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from benchback.agent import Weights, networks

ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
SLOPES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": lambda y: 1 - y**2, "relu": lambda y: (y > 0) * 1.0}
"""Derivative of each activation in terms of its output."""
STRIDES = {8: 4, 4: 2, 3: 1}
"""Size of a kernel -> its stride (Mnih et al. 2015, table 1; in MinAtar's network 3 x 3 has stride 1, too)."""


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


# The network: hidden layers with activations and a linear output layer. Of images the first layers are convolutions,
# and all activations are relu.


def depth(weights: Weights, tower: str) -> int:
    """Number of layers of a tower."""
    return sum(name.startswith(f"{tower}/") and name.endswith("/kernel") for name in weights)


def layer_names(weights: Weights, tower: str) -> list[str]:
    """The layers from the observation to the output: those of a trunk, if there is one, then the tower's own."""
    return [f"{part}/{i}" for part in ("trunk", tower) for i in range(depth(weights, part))]


def forward(weights: Weights, tower: str, obs: np.ndarray, activation: str = "tanh") -> list[np.ndarray]:
    """Input of every layer, then the output: h_0 = obs, h_{i+1} = f(h_i K_i + b_i), the last layer linear."""
    names = layer_names(weights, tower)
    if weights[f"{names[0]}/kernel"].ndim == 4:
        return _forward_of_images(weights, names, np.asarray(obs))
    layers = [np.asarray(obs, float)]
    for name in names:
        out = layers[-1] @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
        layers.append(out if name == names[-1] else ACTIVATIONS[activation](out))
    return layers


def _forward_of_images(weights: Weights, names: list[str], obs: np.ndarray) -> list[np.ndarray]:
    """As `forward`, of images `[..., H, W, C]`: bytes are divided by 255."""
    layers = [(obs / 255 if obs.dtype == np.uint8 else obs.astype(float)).reshape(-1, *obs.shape[-3:])]
    for name in names:
        out = _product(layers[-1], weights[f"{name}/kernel"]) + weights[f"{name}/bias"]
        layers.append(out if name == names[-1] else ACTIVATIONS["relu"](out))
    layers[-1] = layers[-1].reshape(*obs.shape[:-3], -1)
    return layers


def _product(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return convolve(x, kernel) if kernel.ndim == 4 else x.reshape(len(x), -1) @ kernel


def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """y[b, i, j] = sum_uv x[b, s i + u, s j + v] K[u, v], with the stride s of the kernel and no padding."""
    height, width = (1 + (n - k) // STRIDES[k] for n, k in zip(x.shape[1:3], kernel.shape[:2], strict=True))
    result = np.zeros((len(x), height, width, kernel.shape[3]))
    for u, v in np.ndindex(kernel.shape[:2]):
        result += x[_seen(u, v, kernel, result)] @ kernel[u, v]
    return result


def convolve_backward(x: np.ndarray, kernel: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the kernel and of x: sum_bij x[b, s i + u, s j + v] g[b, i, j], and g[b, i, j] K[u, v] put there."""
    of_kernel, of_x = np.zeros(kernel.shape), np.zeros(x.shape)
    for u, v in np.ndindex(kernel.shape[:2]):
        there = _seen(u, v, kernel, gradient)
        of_kernel[u, v] = np.tensordot(x[there], gradient, axes=((0, 1, 2), (0, 1, 2)))
        of_x[there] += gradient @ kernel[u, v].T
    return of_kernel, of_x


def _seen(u: int, v: int, kernel: np.ndarray, output: np.ndarray) -> tuple[slice, slice, slice]:
    """The pixels that entry (u, v) of a kernel meets, one for each place of the output."""
    stride = STRIDES[len(kernel)]
    rows, columns = (slice(at, at + stride * n, stride) for at, n in zip((u, v), output.shape[1:3], strict=True))
    return slice(None), rows, columns


def backward(
    weights: Weights, tower: str, layers: list[np.ndarray], gradient: np.ndarray, activation: str = "tanh"
) -> tuple[Weights, np.ndarray]:
    """Gradient of every weight of the tower and of its input, given the gradient of its output."""
    result, names = {}, layer_names(weights, tower)
    for i in reversed(range(len(names))):
        x, kernel = layers[i], weights[f"{names[i]}/kernel"]
        result[f"{names[i]}/bias"] = gradient.reshape(-1, gradient.shape[-1]).sum(0)
        if kernel.ndim == 4:
            result[f"{names[i]}/kernel"], gradient = convolve_backward(x, kernel, gradient)
        else:
            result[f"{names[i]}/kernel"] = x.reshape(len(x), -1).T @ gradient
            gradient = (gradient @ kernel.T).reshape(x.shape)
        if i > 0:
            gradient = gradient * SLOPES["relu" if layers[0].ndim == 4 else activation](x)
    return result, gradient


def nearest_edge(weights: Weights, tower: str, obs: np.ndarray) -> np.ndarray:
    """The smallest |h K + b| of any relu for each image: how far they are from changing sides."""
    layers, names = forward(weights, tower, obs), layer_names(weights, tower)
    found = [
        np.abs(_product(x, weights[f"{name}/kernel"]) + weights[f"{name}/bias"]).reshape(len(obs), -1).min(1)
        for name, x in zip(names[:-1], layers, strict=False)
    ]
    return np.min(found, 0)


def summed(*gradients: Weights) -> Weights:
    """The sum of gradients: a trunk has some from each tower on it."""
    names = dict.fromkeys(name for gradient in gradients for name in gradient)
    return {name: np.sum([gradient[name] for gradient in gradients if name in gradient], 0) for name in names}


def unscaled_kernels(weights: Weights, head_scale: Mapping[str, float]) -> Iterator[np.ndarray]:
    """Every kernel as a matrix `[inputs, out]` without its initial scale: sqrt 2, or that of the tower's last layer."""
    heads = {f"{tower}/{depth(weights, tower) - 1}/kernel": scale for tower, scale in head_scale.items()}
    for name, x in weights.items():
        if name.endswith("/kernel"):
            yield x.reshape(-1, x.shape[-1]) / heads.get(name, 2**0.5)


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
