"""TD3's minibatches and losses, written once for all backends.

`math` is `benchback.math.jax` or `benchback.math.torch`. This file imports neither framework, so it cannot make two
backends differ.
"""

from math import isfinite
from typing import NamedTuple

from jaxtyping import Bool, Float, Shaped

from benchback.algorithms.offpolicy import Experience, Transition, repeated_rows, to_experience
from benchback.algorithms.td3.config import Config
from benchback.envs.interface import Box, Env
from benchback.errors import InputError
from benchback.math.protocol import Math
from benchback.math.records import Array, Bounds, DType


class Minibatch(NamedTuple):
    """Inputs of one gradient step."""

    obs: Shaped[Array, "B *O"]
    action: Float[Array, "B A"]
    reward: Float[Array, "B"]
    next_obs: Shaped[Array, "B *O"]
    terminated: Bool[Array, "B"]
    noise: Float[Array, "B A"]
    """Standard normal, for target policy smoothing."""


HIDDEN_SCALE = 1.0
"""Scale of the hidden layers' orthogonal weights; the README says why it is not sqrt 2, as elsewhere."""

CRITIC_METRICS = ("critic_loss", "value1", "value2", "critic_grad_norm")
ACTOR_METRICS = ("actor_loss", "actor_grad_norm")
"""Metrics of policy updates; NaN in gradient steps without one."""
METRICS = CRITIC_METRICS + ACTOR_METRICS


def action_bounds(math: Math, env: Env, dtype: DType) -> Bounds:
    """Bounds of the actions as arrays; InputError unless they are finite."""
    assert isinstance(env.actions, Box)
    low, high = env.actions.low, env.actions.high
    if not all(map(isfinite, (*low, *high))):
        raise InputError(
            f"env={env.id} has actions without finite bounds, and td3 squashes its policy into them; "
            "choose another environment, e.g. gymnax/Pendulum-v1"
        )
    return math.bounds(low, high, dtype)


def make_minibatches(rows: Experience, noise: Float[Array, "U B A"], config: Config) -> Minibatch:
    """Rows `[U B, ...]` and their noise as one minibatch for each of U gradient steps, `[U, B, ...]`."""
    shape = config.num_updates, config.minibatch_size
    return Minibatch(**{name: x.reshape(*shape, *x.shape[1:]) for name, x in rows._asdict().items()}, noise=noise)


def critic_loss(
    values: tuple[Float[Array, "B"], Float[Array, "B"]], target: Float[Array, "B"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """mean (Q1 - y)^2 + mean (Q2 - y)^2, and metrics."""
    value1, value2 = values
    loss = ((value1 - target) ** 2).mean() + ((value2 - target) ** 2).mean()
    return loss, {"critic_loss": loss, "value1": value1.mean(), "value2": value2.mean()}


def actor_loss(value1: Float[Array, "B"]) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """-mean Q1(s, mu(s)), by the first critic only."""
    loss = -value1.mean()
    return loss, {"actor_loss": loss}


def mean_metrics(math: Math, losses: dict[str, Float[Array, "U"]]) -> dict[str, Float[Array, ""]]:
    """Mean of each metric over the gradient steps; of actor metrics, over the policy updates."""
    critic = {name: losses[name].mean() for name in CRITIC_METRICS}
    return critic | {name: math.nanmean(losses[name]) for name in ACTOR_METRICS}


def example_minibatch(batch: Transition, config: Config) -> Minibatch:
    """A minibatch of repeated rows of the rollout, to time a gradient step; actions stand in for noise."""
    rows = repeated_rows(to_experience(batch, config), config)
    return Minibatch(*rows, noise=rows.action)
