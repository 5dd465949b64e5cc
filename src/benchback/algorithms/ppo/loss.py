"""PPO's training batch and loss, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`. This file imports neither framework, so it cannot make two
backends differ.
"""

from typing import NamedTuple

from jaxtyping import Float, Shaped

from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.math.protocol import Distribution, Math
from benchback.math.records import Array


class Minibatch(NamedTuple):
    """Inputs of one gradient step."""

    obs: Shaped[Array, "B *O"]
    action: Shaped[Array, "B *A"]
    log_prob: Float[Array, "B"]
    value: Float[Array, "B"]
    advantage: Float[Array, "B"]
    target: Float[Array, "B"]


def make_training_batch(batch: Transition, advantage: Float[Array, "T E"]) -> Minibatch:
    """The rollout with its advantages and value targets, flattened to one row per environment step."""
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, batch.value, advantage, advantage + batch.value)
    return Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))


def ppo_loss(
    math: Math,
    distribution: Distribution,
    policy_params: Float[Array, "B P"],
    value: Float[Array, "B"],
    minibatch: Minibatch,
    hyper: Hyper,
    config: Config,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Surrogate + value_coefficient x value loss - entropy_coefficient x entropy, and metrics."""
    log_ratio = distribution.log_prob(policy_params, minibatch.action) - minibatch.log_prob
    advantage = math.standardise(minibatch.advantage)
    if config.surrogate == "clip":
        policy_loss = math.clipped_surrogate(log_ratio, advantage, hyper.clip)
    elif config.surrogate == "drift":
        policy_loss = math.drift_surrogate(log_ratio, advantage, hyper.drift_alpha, hyper.drift_beta)
    else:
        policy_loss = math.learned_surrogate(log_ratio, advantage, hyper.objective)
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


def example_minibatch(batch: Transition, config: Config) -> Minibatch:
    """A minibatch of the first rows of a rollout, to time a gradient step; its advantages are placeholders."""
    rows = make_training_batch(batch, batch.log_prob)
    return Minibatch(*(x[: config.batch_size // config.num_minibatches] for x in rows))
