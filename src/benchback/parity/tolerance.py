"""Largest deviations allowed: about ten times the measured deviations of the six backends.

The margin is for other processors and summation orders, not for other mathematics: a standard deviation
with ddof=1 instead of 0 changes weights by only 1e-5. Zero means equal.

Deviations of arrays a (actual) from b (expected):
- `weight`: max |a - b|, with weights and learning rate as in `cases.py`;
- `gradient` (recovered from Adam's first mean), `mean`, `variance` (Adam's moments): max |a - b| relative to
  the largest |b| of the same tower, actor or critic;
- `metric`, `episode`, `value`, `final_value`, `log_prob`, `real_action`: max |a - b| / max(1, |b|);
- `initial_spread`: deviation of the standard deviation of LeCun normal weights, of which there are a few hundred, from
  what it is of infinitely many;
- `initial_kernel`: deviation of its columns, scale divided out, from orthonormal; `initial_bias`,
  `initial_log_std` and `final_obs`: max |a - b|;
- `memory` (of a recurrent network, between -1 and 1): max |a - b|;
- `normaliser` (count, mean, variance, ongoing returns): max |a - b| relative to the largest |b|;
- `greedy`, `action`, `count`, `dtype`, `names`, `replay`, `initial_target`: the fraction that differs.
"""

from benchback.parity.environment import LARGE

EXACT = {
    "greedy": 0.0,
    "action": 0.0,
    "count": 0.0,
    "names": 0.0,
    "dtype": 0.0,
    "replay": 0.0,
    "initial_bias": 0.0,
    "initial_log_std": 0.0,
    "initial_target": 0.0,
    "memory": 0.0,
}
FORWARD32 = {"value": 3e-6, "final_value": 3e-6, "log_prob": 2e-6, "initial_kernel": 6e-6, "initial_spread": 0.15}
FORWARD64 = {"value": 3e-15, "final_value": 3e-15, "log_prob": 2e-15, "initial_kernel": 1e-14, "initial_spread": 0.15}
MET32 = {"real_action": 1e-5, "episode": 1e-6, "normaliser": 3e-6, "memory": 5e-6}
# torch averages integers (episode lengths) in float32 in both precisions.
MET64 = {"real_action": 1e-14, "episode": 1e-6, "normaliser": 5e-15, "memory": 1e-14}
"""Tolerances of rollouts."""

TOLERANCE = {
    "float32": {
        "L0": EXACT | FORWARD32 | {"real_action": 3e-6, "final_obs": 1e-6},
        "L1": EXACT | {"metric": 2e-6, "gradient": 2e-5, "weight": 1e-6, "mean": 2e-5, "variance": 2e-5},
        "L2": EXACT | {"metric": 2e-6, "weight": 4e-6, "mean": 1e-5, "variance": 5e-6},
        "L3": EXACT | MET32 | {"metric": 2e-6, "weight": 3e-6, "mean": 5e-6, "variance": 5e-6},
        "L4": EXACT | MET32 | {"metric": 1e-6, "weight": 6e-7, "mean": 5e-6, "variance": 5e-6},
    },
    "float64": {
        "L0": EXACT | FORWARD64 | {"real_action": 3e-15, "final_obs": 2e-15},
        "L1": EXACT | {"metric": 5e-15, "gradient": 2e-14, "weight": 1e-15, "mean": 2e-14, "variance": 2e-14},
        "L2": EXACT | {"metric": 5e-15, "weight": 1e-15, "mean": 1e-14, "variance": 5e-15},
        "L3": EXACT | MET64 | {"metric": 5e-15, "weight": 1e-15, "mean": 5e-15, "variance": 5e-15},
        "L4": EXACT | MET64 | {"metric": 5e-15, "weight": 1e-15, "mean": 5e-15, "variance": 5e-15},
    },
}
"""Precision -> level -> quantity -> largest deviation allowed."""

WIDER = {
    "float32": {"metric": 10, "gradient": 5, "mean": 5, "variance": 10},
    "float64": {"metric": 5, "gradient": 5, "mean": 5, "variance": 10, "weight": 5, "value": 5, "final_value": 5},
}
"""Precision -> quantity -> factor on its tolerance with a large network.

In float32 because of PyTorch: the gradient of separate towers has 152,516 entries, and torch.linalg.vector_norm of so
many is up to 9e-6 too small (`grad_norm`); what it clips is off by as much (`gradient`, `mean`), and squares of that
twice (`variance`). With `(g * g).sum()` in its place, which adds in pairs, everything is within the tolerances of
MLPs, as the JAX family is. In float64 it is the rounding of values after six layers: up to 4e-15.
"""


def tolerance(dtype: str, level: str, quantity: str, network: str = "mlp") -> float:
    """The largest deviation allowed of a quantity, whatever it ends in after a slash."""
    kind = quantity.partition("/")[0]
    wider = WIDER[dtype].get(kind, 1) if network in LARGE else 1
    return wider * TOLERANCE[dtype][level][kind]


CHECKS = {
    "laws": {"law": 0.0},
    "compiles": {"compiles": 0.0},
    "probes": {"probe_value": 0.05, "probe_action": 0.1},
}
"""Check, in float32 -> quantity -> largest deviation allowed. A probe's values are of order one."""
