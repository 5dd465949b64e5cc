"""PPO's objective and what it works on, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any, NamedTuple

from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config, Hyper


class Minibatch(NamedTuple):
    """What a gradient step learns from; `[B, ...]`."""

    obs: Any
    action: Any
    log_prob: Any
    value: Any
    advantage: Any
    target: Any


def make_training_batch(batch: Transition, advantage: Any) -> Minibatch:
    """The rollout with its advantages and value targets, flattened to one row per environment step."""
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, batch.value, advantage, advantage + batch.value)
    return Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))


def ppo_loss(
    math: ModuleType,
    distribution: ModuleType,
    policy_params: Any,
    value: Any,
    minibatch: Minibatch,
    hyper: Hyper,
    config: Config,
) -> tuple[Any, dict[str, Any]]:
    """Surrogate + value_coefficient x value loss - entropy_coefficient x entropy, and its parts."""
    log_ratio = distribution.log_prob(policy_params, minibatch.action) - minibatch.log_prob
    advantage = math.standardise(minibatch.advantage)
    policy_loss = math.clipped_surrogate(log_ratio, advantage, hyper.clip)
    if config.clip_value:
        value_loss = math.clipped_value_loss(value, minibatch.value, minibatch.target, hyper.clip)
    else:
        value_loss = 0.5 * ((value - minibatch.target) ** 2).mean()
    entropy = distribution.entropy(policy_params).mean()
    loss = policy_loss + hyper.value_coefficient * value_loss - hyper.entropy_coefficient * entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approximate_kl": math.approximate_kl(log_ratio),
        "clip_fraction": math.clip_fraction(log_ratio, hyper.clip),
    }
