"""VPG's training batch and losses, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`. This file imports neither framework, so it cannot make two
backends differ.
"""

from typing import NamedTuple

from jaxtyping import Float, Shaped

from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.vpg.config import Config
from benchback.math.protocol import Distribution, Math
from benchback.math.records import Array


class Minibatch(NamedTuple):
    """Inputs of one gradient step."""

    obs: Shaped[Array, "B *O"]
    action: Shaped[Array, "B *A"]
    log_prob: Float[Array, "B"]
    advantage: Float[Array, "B"]
    target: Float[Array, "B"]


def make_training_batch(batch: Transition, advantage: Float[Array, "T E"], target: Float[Array, "T E"]) -> Minibatch:
    """The rollout with its advantages and value targets, flattened to one row per environment step."""
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, advantage, target)
    return Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))


def policy_loss(
    math: Math, distribution: Distribution, policy_params: Float[Array, "B P"], minibatch: Minibatch
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """-mean log pi(a | s) A over standardised advantages, and metrics; the entropy is reported, not optimised."""
    log_prob = distribution.log_prob(policy_params, minibatch.action)
    loss = -(log_prob * math.standardise(minibatch.advantage)).mean()
    return loss, {"policy_loss": loss, "entropy": distribution.entropy(policy_params).mean()}


def policy_change(
    math: Math, distribution: Distribution, policy_params: Float[Array, "B P"], minibatch: Minibatch
) -> dict[str, Float[Array, ""]]:
    """Approximate KL divergence between the policy with these parameters and the behaviour policy."""
    log_ratio = distribution.log_prob(policy_params, minibatch.action) - minibatch.log_prob
    return {"approximate_kl": math.approximate_kl(log_ratio)}


def value_loss(value: Float[Array, "B"], minibatch: Minibatch) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """mean (V(s) - R)^2."""
    loss = ((value - minibatch.target) ** 2).mean()
    return loss, {"value_loss": loss}


def example_minibatch(batch: Transition, config: Config) -> Minibatch:
    """The rollout as a minibatch, to time a gradient step; its advantages are placeholders."""
    return make_training_batch(batch, batch.log_prob, batch.value + batch.reward)
