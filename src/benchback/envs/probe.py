"""Probe environments: tiny environments whose optimal values and policies are known analytically.

Each isolates one property: an agent that fails `TwoStep` but not `OneStep` discounts wrongly, one that fails
only `Truncated` does not bootstrap through time limits. After the probe environments of rejax and of
A. Jones, "Debugging RL, without the agonizing pain".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from benchback.envs.interface import Box, Discrete, Env
from benchback.envs.vectorise import vectorise

TWO = Discrete(2)


class Moment(NamedTuple):
    """State of an episode."""

    time: Int[Array, ""]
    sign: Float[Array, ""]
    """+1 or -1, drawn for each episode."""


@dataclass(frozen=True)
class Probe:
    """An environment with episodes of fixed length, with gymnax's methods."""

    length: int
    observe: Callable[[Moment], Float[Array, ""]]
    reward: Callable[[Moment, Shaped[Array, "*A"]], Any]
    """(moment before the step, action) -> reward."""
    truncates: bool = False
    """Whether episodes are truncated instead of terminated."""
    actions: Discrete | Box = TWO

    def reset_env(self, key: Key[Array, ""], params: None) -> tuple[Float[Array, "1"], Moment]:
        """First observation and state of an episode."""
        moment = Moment(jnp.zeros((), jnp.int32), jax.random.rademacher(key, (), jnp.zeros(()).dtype))
        return self.observe(moment)[None], moment

    def step_env(self, key: Key[Array, ""], moment: Moment, action: Shaped[Array, "*A"], params: None) -> tuple:
        """Observation, state, reward, termination and an empty info."""
        following = moment._replace(time=moment.time + 1)
        terminated = (following.time >= self.length) & (not self.truncates)
        return self.observe(following)[None], following, self.reward(moment, action), terminated, {}

    def is_truncated(self, moment: Moment, params: None) -> Bool[Array, ""]:
        """Whether the time limit has been reached."""
        return (moment.time >= self.length) & self.truncates


def _constant(moment: Moment) -> Float[Array, ""]:
    return jnp.ones_like(moment.sign)


def _clock(moment: Moment) -> Float[Array, ""]:
    return moment.time.astype(moment.sign.dtype)


PROBES = {
    # One step, reward 1: the value is 1.
    "OneStep": Probe(1, _constant, lambda moment, action: 1.0),
    # Two steps with different observations, reward 1 at the end: the values are gamma and 1.
    "TwoStep": Probe(2, _clock, lambda moment, action: moment.time == 1),
    # One step, reward 1 for action 1 and -1 for action 0: the policy must choose 1.
    "ActionReward": Probe(1, _constant, lambda moment, action: 2.0 * action - 1),
    # One step, the reward equals the observation, and so does the value.
    "ObsReward": Probe(1, lambda moment: moment.sign, lambda moment, action: moment.sign),
    # Reward 1 at every step, truncated every second step: the value is 1 / (1 - gamma), less without bootstrapping.
    "Truncated": Probe(2, _constant, lambda moment, action: 1.0, truncates=True),
    # One step, continuous action: the optimal action is 0.5, with value 0.
    "Target": Probe(1, _constant, lambda moment, action: -((action[0] - 0.5) ** 2), actions=Box((-1.0,), (1.0,))),
    # The same; the optimal action is half the observation.
    "ObsTarget": Probe(
        1,
        lambda moment: moment.sign,
        lambda moment, action: -((action[0] - 0.5 * moment.sign) ** 2),
        actions=Box((-1.0,), (1.0,)),
    ),
    # Reward 1 for action 0.5, less for others, truncated every second step: the value is 1 / (1 - gamma).
    "CutTarget": Probe(
        2,
        _constant,
        lambda moment, action: 1 - (action[0] - 0.5) ** 2,
        truncates=True,
        actions=Box((-1.0,), (1.0,)),
    ),
}


def make(name: str, num_envs: int) -> Env:
    """The probe `name`, `num_envs` times."""
    return vectorise(PROBES[name], None, f"probe/{name}", num_envs, PROBES[name].actions)
