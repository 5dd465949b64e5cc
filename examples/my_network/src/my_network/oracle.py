"""The residual network's forward pass in NumPy, from the equation: what the backends are checked against."""

import numpy as np


def forward(weights: dict[str, np.ndarray], tower: str, obs: np.ndarray, activation: str = "tanh") -> np.ndarray:
    """The outputs `[B, O]` of one tower, given canonical weights such as `actor/0/kernel`."""
    activate = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[activation]

    def dense(x: np.ndarray, i: int) -> np.ndarray:
        return x @ weights[f"{tower}/{i}/kernel"] + weights[f"{tower}/{i}/bias"]

    blocks = sum(name.startswith(f"{tower}/") and name.endswith("_norm/scale") for name in weights)
    x = activate(dense(obs.reshape(len(obs), -1), 0))
    for i in range(1, blocks + 1):
        scale, bias = (weights[f"{tower}/{i}_norm/{kind}"] for kind in ("scale", "bias"))
        standard = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        x = x + activate(dense(standard * scale + bias, i))
    return dense(x, blocks + 1)
