"""Shared by on-policy algorithms: transitions of a rollout and bootstrap values.

`math` is `benchback.math.jax` or `benchback.math.torch`. This file imports neither framework, so it cannot make two
backends differ.
"""

from typing import Literal, NamedTuple

from jaxtyping import Bool, Float, Int, Shaped

from benchback.envs.interface import Box, Discrete, Step
from benchback.math.protocol import Distribution, Math
from benchback.math.records import Array


class Transition(NamedTuple):
    """Transitions of a rollout; time-major."""

    obs: Shaped[Array, "T E *O"]
    action: Shaped[Array, "T E *A"]
    log_prob: Float[Array, "T E"]
    value: Float[Array, "T E"]
    reward: Float[Array, "T E"]
    terminated: Bool[Array, "T E"]
    truncated: Bool[Array, "T E"]
    final_value: Float[Array, "T E"]
    """Value of the final observation of the episode; only meaningful where truncated."""
    episode_return: Float[Array, "T E"]
    """Return of the episode up to and including this step."""
    episode_length: Int[Array, "T E"]

    @property
    def done(self) -> Bool[Array, "T E"]:
        """Whether the episode ended with this step."""
        return self.terminated | self.truncated


def action_distribution(math: Math, actions: Discrete | Box) -> Distribution:
    """The action distribution: categorical for discrete actions, diagonal Gaussian for continuous ones."""
    return math.categorical if actions.kind == "discrete" else math.gaussian


def to_transitions(
    obs: Shaped[Array, "T E *O"],
    action: Shaped[Array, "T E *A"],
    log_prob: Float[Array, "T E"],
    value: Float[Array, "T E"],
    final_value: Float[Array, "T E"],
    step: Step,
) -> Transition:
    """The rollout made of these arrays and the environment's steps, all time-major."""
    reward, terminated, truncated = step.reward, step.terminated, step.truncated
    episode_return, episode_length = step.episode_return, step.episode_length
    return Transition(
        obs, action, log_prob, value, reward, terminated, truncated, final_value, episode_return, episode_length
    )


def bootstrap(
    math: Math, batch: Transition, last_value: Float[Array, "E"], truncation: Literal["bootstrap", "terminal"]
) -> tuple[Float[Array, "T E"], Bool[Array, "T E"]]:
    """Value of the next observation and whether the return ends there: `next_value`, `terminated`.

    `truncation` selects whether a time limit bootstraps from the final observation or counts as terminal.
    """
    if truncation == "bootstrap":
        return math.successor_value(batch.value, last_value, batch.final_value, batch.truncated), batch.terminated
    return math.successor_value(batch.value, last_value, batch.value, batch.done), batch.done
