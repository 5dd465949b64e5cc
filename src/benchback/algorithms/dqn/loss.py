"""DQN's schedules, TD target and objective, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any

from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.offpolicy import Experience

Minibatch = Experience
"""A gradient step learns from rows of replay; `[B, ...]`."""

LOSS_METRICS = ("loss", "value", "target", "grad_norm")
"""What a gradient step reports; NaN in an iteration without one."""


def epsilon_at(math: ModuleType, inserted: Any, hyper: Hyper, config: Config) -> Any:
    """Epsilon of the epsilon-greedy policy after `inserted` environment steps."""
    duration = hyper.exploration_fraction * config.num_transitions
    return math.linear_ramp(hyper.first_epsilon, hyper.last_epsilon, inserted, duration)


def learns(inserted: Any, config: Config) -> Any:
    """Whether an iteration that ends with `inserted` environment steps takes gradient steps."""
    return inserted >= config.learning_starts


def updates_target(inserted: Any, config: Config) -> Any:
    """Whether an iteration that ends with `inserted` environment steps has reached a multiple of `target_every`."""
    return inserted % config.target_every < config.batch_size


def td_target(math: ModuleType, next_value: Any, selecting_value: Any, minibatch: Minibatch, hyper: Hyper) -> Any:
    """r + gamma Q'(s', a') while the episode goes on, r at its end; `next_value` is Q'(s', .) of the target network.

    a' is the best action by `selecting_value`: by Q' itself (Mnih et al. 2015), or by the online network's values of
    s' in double Q-learning (van Hasselt et al. 2016).
    """
    action = math.categorical.greedy(selecting_value)
    return minibatch.reward + hyper.gamma * ~minibatch.terminated * math.q_of_action(next_value, action)


def dqn_loss(math: ModuleType, value: Any, target: Any, minibatch: Minibatch) -> tuple[Any, dict[str, Any]]:
    """Mean of (Q(s, a) - target)^2 over the minibatch, and its parts; `value` is Q(s, .), `[B, A]`.

    No gradient passes through the target.
    """
    q_of_action = math.q_of_action(value, minibatch.action)
    target = math.stop_gradient(target)
    loss = ((q_of_action - target) ** 2).mean()
    return loss, {"loss": loss, "value": q_of_action.mean(), "target": target.mean()}
