"""PPO's objective and the records it works on, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any, NamedTuple

from benchback.algorithms.ppo.config import Config, Hyper
from benchback.envs.interface import Box, Discrete


class Transition(NamedTuple):
    """What a rollout keeps of each step; time-major, `[T, E, ...]`."""

    obs: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_value: Any
    """Value of the observation that ended the episode; meaningful where truncated."""
    episode_return: Any
    """Return of the episode up to and including this step."""
    episode_length: Any


class Minibatch(NamedTuple):
    """What a gradient step learns from; `[B, ...]`."""

    obs: Any
    action: Any
    log_prob: Any
    value: Any
    advantage: Any
    target: Any


def distribution(math: ModuleType, actions: Discrete | Box) -> ModuleType:
    """Of the policy: what it emits are logits, or means and log standard deviations."""
    return math.categorical if actions.kind == "discrete" else math.gaussian


def learnable(math: ModuleType, batch: Transition, last_value: Any, hyper: Hyper, config: Config) -> Minibatch:
    """The rollout with advantages and value targets, flattened to one row per environment step."""
    done = batch.terminated | batch.truncated
    if config.truncation == "bootstrap":
        terminated = batch.terminated
        next_value = math.successor_value(batch.value, last_value, batch.final_value, batch.truncated)
    else:
        terminated = done
        next_value = math.successor_value(batch.value, last_value, batch.value, done)
    advantage = math.gae(
        batch.reward, batch.value, next_value, terminated, done, gamma=hyper.gamma, lam=hyper.gae_lambda
    )
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, batch.value, advantage, advantage + batch.value)
    return Minibatch(*(x.reshape(config.batch_size, *x.shape[2:]) for x in rows))


def ppo_loss(
    math: ModuleType,
    policy: ModuleType,
    head: Any,
    value: Any,
    minibatch: Minibatch,
    hyper: Hyper,
    config: Config,
) -> tuple[Any, dict[str, Any]]:
    """Surrogate + value_coefficient x value loss - entropy_coefficient x entropy, and its parts.

    `policy` is the distribution and `head` what the network emits for it.
    """
    log_ratio = policy.log_prob(head, minibatch.action) - minibatch.log_prob
    advantage = math.standardise(minibatch.advantage)
    policy_loss = math.clipped_surrogate(log_ratio, advantage, hyper.clip)
    if config.clip_value:
        value_loss = math.clipped_value_loss(value, minibatch.value, minibatch.target, hyper.clip)
    else:
        value_loss = 0.5 * ((value - minibatch.target) ** 2).mean()
    entropy = policy.entropy(head).mean()
    loss = policy_loss + hyper.value_coefficient * value_loss - hyper.entropy_coefficient * entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approximate_kl": math.approximate_kl(log_ratio),
        "clip_fraction": math.clip_fraction(log_ratio, hyper.clip),
    }


def episode_metrics(math: ModuleType, batch: Transition) -> dict[str, Any]:
    """Mean return and length of the episodes that ended in this rollout (NaN if none did), and their number."""
    done = batch.terminated | batch.truncated
    return {
        "episode_return": math.mean_where(batch.episode_return, done),
        "episode_length": math.mean_where(batch.episode_length, done),
        "episodes": done.sum(),
    }
