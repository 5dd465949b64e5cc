"""What algorithms share that learn from what their policy has just done: the record of a rollout, and advantages.

`math` is `benchback.math.jax` or `benchback.math.torch`: twins with the same names. This file imports
neither framework, so it cannot make two backends differ.
"""

from types import ModuleType
from typing import Any, Literal, NamedTuple

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


def distribution(math: ModuleType, actions: Discrete | Box) -> ModuleType:
    """Of the policy: what it emits are logits, or means and log standard deviations."""
    return math.categorical if actions.kind == "discrete" else math.gaussian


def advantages(
    math: ModuleType,
    batch: Transition,
    last_value: Any,
    hyper: Any,
    truncation: Literal["bootstrap", "terminal"],
) -> Any:
    """Generalised advantages, `[T, E]`; a time limit is bootstrapped through or taken for the end, by `truncation`."""
    done = batch.terminated | batch.truncated
    if truncation == "bootstrap":
        terminated = batch.terminated
        next_value = math.successor_value(batch.value, last_value, batch.final_value, batch.truncated)
    else:
        terminated = done
        next_value = math.successor_value(batch.value, last_value, batch.value, done)
    return math.gae(batch.reward, batch.value, next_value, terminated, done, gamma=hyper.gamma, lam=hyper.gae_lambda)


def rewards_to_go(
    math: ModuleType,
    batch: Transition,
    last_value: Any,
    hyper: Any,
    truncation: Literal["bootstrap", "terminal"],
) -> Any:
    """Discounted rewards from each step to the end of its episode, `[T, E]`; beyond a cut, what is expected there.

    R_t = A_t + V(s_t) with lambda 1, where every value but those at a cut drops out: they are left out at once.
    """
    unvalued = batch._replace(value=0 * batch.value)
    undiminished = hyper._replace(gae_lambda=0 * hyper.gae_lambda + 1)
    return advantages(math, unvalued, last_value, undiminished, truncation)
