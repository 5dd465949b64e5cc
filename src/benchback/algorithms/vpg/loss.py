"""VPG's two objectives and what they work on, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any, NamedTuple

from benchback.algorithms.onpolicy import Transition


class Minibatch(NamedTuple):
    """What a gradient step learns from; `[B, ...]`."""

    obs: Any
    action: Any
    log_prob: Any
    advantage: Any
    target: Any


def make_training_batch(batch: Transition, advantage: Any, target: Any) -> Minibatch:
    """The rollout with its advantages and value targets, flattened to one row per environment step."""
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, advantage, target)
    return Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))


def policy_loss(
    math: ModuleType, distribution: ModuleType, policy_params: Any, minibatch: Minibatch
) -> tuple[Any, dict[str, Any]]:
    """-mean log pi(a | s) A over standardised advantages, and beside it the entropy, which is not optimised."""
    log_prob = distribution.log_prob(policy_params, minibatch.action)
    loss = -(log_prob * math.standardise(minibatch.advantage)).mean()
    return loss, {"policy_loss": loss, "entropy": distribution.entropy(policy_params).mean()}


def policy_change(
    math: ModuleType, distribution: ModuleType, policy_params: Any, minibatch: Minibatch
) -> dict[str, Any]:
    """Approximate KL divergence of the policy with these parameters from the one that acted."""
    log_ratio = distribution.log_prob(policy_params, minibatch.action) - minibatch.log_prob
    return {"approximate_kl": math.approximate_kl(log_ratio)}


def value_loss(value: Any, minibatch: Minibatch) -> tuple[Any, dict[str, Any]]:
    """mean (V(s) - R)^2."""
    loss = ((value - minibatch.target) ** 2).mean()
    return loss, {"value_loss": loss}
