"""DQN's schedules, TD target and loss, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`. This file imports neither framework, so it cannot make two
backends differ.
"""

from jaxtyping import Bool, Float

from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.offpolicy import Experience, Transition, repeated_rows, to_experience
from benchback.math.protocol import Math
from benchback.math.records import Array, Count

Minibatch = Experience
"""A minibatch is rows of the replay."""

LOSS_METRICS = ("loss", "value", "target", "grad_norm")
"""Metrics of a gradient step; NaN in an iteration without one."""


def epsilon_at(math: Math, inserted: Count, hyper: Hyper, config: Config) -> Float[Array, ""]:
    """Epsilon of the epsilon-greedy policy after `inserted` environment steps."""
    if config.exploration == "knots":
        return math.piecewise_linear(hyper.epsilons, inserted, config.num_transitions)
    duration = hyper.exploration_fraction * config.num_transitions
    return math.linear_ramp(hyper.first_epsilon, hyper.last_epsilon, inserted, duration)


def learns(inserted: Count, config: Config) -> Bool[Array, ""] | bool:
    """Whether the iteration that ends after `inserted` environment steps takes gradient steps."""
    return inserted >= config.learning_starts


def updates_target(inserted: Count, config: Config) -> Bool[Array, ""] | bool:
    """Whether the iteration that ends after `inserted` environment steps passes a multiple of `target_every`."""
    return inserted % config.target_every < config.batch_size


def td_target(
    math: Math,
    next_value: Float[Array, "B A"],
    selecting_value: Float[Array, "B A"],
    minibatch: Minibatch,
    hyper: Hyper,
) -> Float[Array, "B"]:
    """r + gamma (1 - terminated) Q'(s', a'); `next_value` is Q'(s', .) of the target network.

    a' is the greedy action of `selecting_value`: Q' itself (Mnih et al. 2015), or the online network's Q(s', .)
    in double Q-learning (van Hasselt et al. 2016).
    """
    action = math.categorical.greedy(selecting_value)
    return minibatch.reward + hyper.gamma * ~minibatch.terminated * math.q_of_action(next_value, action)


def dqn_loss(
    math: Math, value: Float[Array, "B A"], target: Float[Array, "B"], minibatch: Minibatch
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Mean of (Q(s, a) - target)^2 over the minibatch, and metrics; `value` is Q(s, .).

    No gradient passes through the target.
    """
    q_of_action = math.q_of_action(value, minibatch.action)
    target = math.stop_gradient(target)
    loss = ((q_of_action - target) ** 2).mean()
    return loss, {"loss": loss, "value": q_of_action.mean(), "target": target.mean()}


def example_minibatch(batch: Transition, config: Config) -> Minibatch:
    """A minibatch of repeated rows of the rollout, to time a gradient step."""
    return repeated_rows(to_experience(batch, config), config)
