"""navix's grid worlds (MiniGrid in JAX) as vectorised device environments; what is seen is the whole grid as symbols.

As `navix.make` makes them: 100 steps, seven actions of which most worlds need three, reward at the goal. navix itself
begins the next episode one step late, with a step whose action goes nowhere; ours does so at once. Its state holds an
image of the grid for every environment, which only those who draw it need, and ours does not.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple
from warnings import catch_warnings

import jax
from jaxtyping import Array, Bool, Int, Key, UInt8

from benchback.envs.interface import Discrete, Env
from benchback.envs.lazy_imports import lazy_imports
from benchback.envs.vectorise import vectorise

# For agents of its own, navix loads what takes seconds, and what warns.
with lazy_imports("rlax", "wandb", "wandb.util"), catch_warnings(action="ignore"):
    import navix


class Moment(NamedTuple):
    """Where an episode stands."""

    state: Any
    """The world, without an image of it."""
    time: Int[Array, ""]
    """Steps since the reset."""


@dataclass(frozen=True)
class World:
    """A navix environment as gymnax would have it."""

    environment: navix.Environment

    def reset_env(self, key: Key[Array, ""], params: None) -> tuple[UInt8[Array, "H W 3"], Moment]:
        """First observation and moment of an episode."""
        # The key stays in the world's state; as plain numbers it can be copied out and stored like the rest.
        return _seen(self.environment.reset(jax.random.key_data(key)))

    def step_env(self, key: Key[Array, ""], moment: Moment, action: Int[Array, ""], params: None) -> tuple:
        """Observation, moment, reward, termination and nothing else of note."""
        now = navix.Timestep(moment.time, None, None, None, None, moment.state)  # pyright: ignore
        # Not `step`, which computes a reset at every step besides.
        timestep = self.environment._step(now, action)
        return *_seen(timestep), timestep.reward, timestep.is_termination(), {}

    def is_truncated(self, moment: Moment, params: None) -> Bool[Array, ""]:
        """Whether the time limit has been reached."""
        return moment.time >= self.environment.max_steps


def _seen(timestep: navix.Timestep) -> tuple[UInt8[Array, "H W 3"], Moment]:
    return timestep.observation, Moment(timestep.state.replace(cache=None), timestep.t)


def make(name: str, num_envs: int) -> Env:
    """The navix world `name`, `num_envs` times."""
    environment = navix.make(name)
    actions = Discrete(len(environment.action_set))
    return vectorise(World(environment), None, f"navix/{name}", num_envs, actions)
