"""VPG's two objectives and what they work on, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any, NamedTuple

from benchback.algorithms.onpolicy import Transition, advantages, rewards_to_go
from benchback.algorithms.vpg.config import Config, Hyper


class Minibatch(NamedTuple):
    """What a gradient step learns from; `[B, ...]`."""

    obs: Any
    action: Any
    log_prob: Any
    advantage: Any
    target: Any


def learnable(math: ModuleType, batch: Transition, last_value: Any, hyper: Hyper, config: Config) -> Minibatch:
    """The rollout with advantages and value targets, flattened to one row per environment step."""
    advantage = advantages(math, batch, last_value, hyper, config.truncation)
    target = rewards_to_go(math, batch, last_value, hyper, config.truncation)
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, advantage, target)
    return Minibatch(*(x.reshape(config.batch_size, *x.shape[2:]) for x in rows))


def policy_loss(math: ModuleType, policy: ModuleType, head: Any, minibatch: Minibatch) -> tuple[Any, dict[str, Any]]:
    """-mean log pi(a | s) A over standardised advantages, and beside it the entropy, which is not optimised.

    `policy` is the distribution and `head` what the network emits for it.
    """
    loss = -(policy.log_prob(head, minibatch.action) * math.standardise(minibatch.advantage)).mean()
    return loss, {"policy_loss": loss, "entropy": policy.entropy(head).mean()}


def policy_change(math: ModuleType, policy: ModuleType, head: Any, minibatch: Minibatch) -> dict[str, Any]:
    """How far the policy that emits `head` is from the one that acted."""
    log_ratio = policy.log_prob(head, minibatch.action) - minibatch.log_prob
    return {"approximate_kl": math.approximate_kl(log_ratio)}


def value_loss(value: Any, minibatch: Minibatch) -> tuple[Any, dict[str, Any]]:
    """mean (V(s) - R)^2."""
    loss = ((value - minibatch.target) ** 2).mean()
    return loss, {"value_loss": loss}
