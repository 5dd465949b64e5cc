"""DQN's schedules, TD target and objective, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`. This file imports neither framework, so it cannot make two
backends differ.
"""

from jaxtyping import Bool, Float

from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.offpolicy import Experience
from benchback.math.protocol import Math
from benchback.math.records import Array, Count

Minibatch = Experience
"""A gradient step learns from rows of replay."""

LOSS_METRICS = ("loss", "value", "target", "grad_norm")
"""What a gradient step reports; NaN in an iteration without one."""


def epsilon_at(math: Math, inserted: Count, hyper: Hyper, config: Config) -> Float[Array, ""]:
    """Epsilon of the epsilon-greedy policy after `inserted` environment steps."""
    duration = hyper.exploration_fraction * config.num_transitions
    return math.linear_ramp(hyper.first_epsilon, hyper.last_epsilon, inserted, duration)


def learns(inserted: Count, config: Config) -> Bool[Array, ""] | bool:
    """Whether an iteration that ends with `inserted` environment steps takes gradient steps."""
    return inserted >= config.learning_starts


def updates_target(inserted: Count, config: Config) -> Bool[Array, ""] | bool:
    """Whether an iteration that ends with `inserted` environment steps has reached a multiple of `target_every`."""
    return inserted % config.target_every < config.batch_size


def td_target(
    math: Math,
    next_value: Float[Array, "B A"],
    selecting_value: Float[Array, "B A"],
    minibatch: Minibatch,
    hyper: Hyper,
) -> Float[Array, "B"]:
    """r + gamma Q'(s', a') while the episode goes on, r at its end; `next_value` is Q'(s', .) of the target network.

    a' is the best action by `selecting_value`: by Q' itself (Mnih et al. 2015), or by the online network's values of
    s' in double Q-learning (van Hasselt et al. 2016).
    """
    action = math.categorical.greedy(selecting_value)
    return minibatch.reward + hyper.gamma * ~minibatch.terminated * math.q_of_action(next_value, action)


def dqn_loss(
    math: Math, value: Float[Array, "B A"], target: Float[Array, "B"], minibatch: Minibatch
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Mean of (Q(s, a) - target)^2 over the minibatch, and its parts; `value` is Q(s, .).

    No gradient passes through the target.
    """
    q_of_action = math.q_of_action(value, minibatch.action)
    target = math.stop_gradient(target)
    loss = ((q_of_action - target) ** 2).mean()
    return loss, {"loss": loss, "value": q_of_action.mean(), "target": target.mean()}
