"""navix's grid worlds (MiniGrid in JAX) as vectorised device environments; an observation is the whole grid as symbols.

Configured as by `navix.make`: 100 steps, seven actions of which most worlds need three, reward at the goal. navix
resets one step late, in a step that ignores its action; ours resets at once. Its state contains an image of the grid
for every environment, which only rendering needs; ours drops it.
"""

from dataclasses import dataclass
from warnings import catch_warnings

import jax
from jaxtyping import Array, Bool, Int, Key, UInt8

from benchback.envs.interface import Discrete, Env
from benchback.envs.lazy_imports import lazy_imports
from benchback.envs.vectorise import TimedState, vectorise

# navix imports packages for its own agents, which takes seconds and emits warnings.
with lazy_imports("rlax", "wandb", "wandb.util"), catch_warnings(action="ignore"):
    import navix


@dataclass(frozen=True)
class World:
    """A navix environment with gymnax's methods."""

    environment: navix.Environment

    def reset_env(self, key: Key[Array, ""], params: None) -> tuple[UInt8[Array, "H W 3"], TimedState]:
        """First observation and state of an episode."""
        # The key is part of the world's state; as raw key data it can be exported like the other arrays.
        return _observed(self.environment.reset(jax.random.key_data(key)))

    def step_env(self, key: Key[Array, ""], timed: TimedState, action: Int[Array, ""], params: None) -> tuple:
        """Observation, state, reward, termination and an empty info."""
        now = navix.Timestep(timed.time, None, None, None, None, timed.state)  # pyright: ignore
        # Not `step`, which also computes a reset at every step.
        timestep = self.environment._step(now, action)
        return *_observed(timestep), timestep.reward, timestep.is_termination(), {}

    def is_truncated(self, timed: TimedState, params: None) -> Bool[Array, ""]:
        """Whether the time limit has been reached."""
        return timed.time >= self.environment.max_steps


def _observed(timestep: navix.Timestep) -> tuple[UInt8[Array, "H W 3"], TimedState]:
    return timestep.observation, TimedState(timestep.state.replace(cache=None), timestep.t)


def make(name: str, num_envs: int) -> Env:
    """The navix world `name`, `num_envs` times."""
    environment = navix.make(name)
    actions = Discrete(len(environment.action_set))
    return vectorise(World(environment), None, f"navix/{name}", num_envs, actions)
