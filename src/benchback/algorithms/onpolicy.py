"""Shared by on-policy algorithms: transitions of a rollout, and what is bootstrapped at its cuts.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any, Literal, NamedTuple

from benchback.envs.interface import Box, Discrete, Step


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

    @property
    def done(self) -> Any:
        """Whether the episode ended with this step."""
        return self.terminated | self.truncated


def action_distribution(math: ModuleType, actions: Discrete | Box) -> ModuleType:
    """The distribution of the policy's actions, by parameters that the network emits: logits, or means and log stds."""
    return math.categorical if actions.kind == "discrete" else math.gaussian


def to_transitions(obs: Any, action: Any, log_prob: Any, value: Any, final_value: Any, step: Step) -> Transition:
    """The rollout of these arrays, `[T, E, ...]`."""
    return Transition(
        obs=obs,
        action=action,
        log_prob=log_prob,
        value=value,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        final_value=final_value,
        episode_return=step.episode_return,
        episode_length=step.episode_length,
    )


def bootstrap(
    math: ModuleType, batch: Transition, last_value: Any, truncation: Literal["bootstrap", "terminal"]
) -> tuple[Any, Any]:
    """V of the observation after each step, and where the return ends: `next_value`, `terminated`, both `[T, E]`.

    A time limit is bootstrapped through from the final observation, or taken for the end, by `truncation`.
    """
    if truncation == "bootstrap":
        return math.successor_value(batch.value, last_value, batch.final_value, batch.truncated), batch.terminated
    return math.successor_value(batch.value, last_value, batch.value, batch.done), batch.done
