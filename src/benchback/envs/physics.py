"""Shared by brax and MuJoCo Playground: simulations without time limits and without auto-reset.

Both libraries leave that to training wrappers, which reset to one cached first state, the same in every episode, and
drop the last observation of an episode. Here the bare simulation is stepped instead: a step counter truncates, and
every episode starts with its own reset.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from benchback.envs.mujoco_warnings import without_mujoco_warnings
from benchback.envs.vectorise import TimedState


@dataclass(frozen=True)
class Simulation:
    """A brax or Playground environment with gymnax's methods and a time limit."""

    environment: Any
    limit: int
    """Steps after which an episode is truncated."""

    def reset_env(self, key: Key[Array, ""], params: None) -> tuple[Float[Array, "*O"], TimedState]:
        """First observation and state of an episode."""
        with without_warnings():
            # Some keep the key in their state; as raw key data it can be exported like the other arrays.
            state = self.environment.reset(jax.random.key_data(key))
        return state.obs, TimedState(state, jnp.zeros((), jnp.int32))

    def step_env(self, key: Key[Array, ""], timed: TimedState, action: Float[Array, "A"], params: None) -> tuple:
        """Observation, state, reward, termination and an empty info.

        A simulation that diverges terminates, with reward 0 and the last finite observation, so that no NaN enters
        the batch.
        """
        with without_warnings():
            state = self.environment.step(timed.state, action)
        finite = jnp.isfinite(state.obs).all() & jnp.isfinite(state.reward)
        obs = jnp.where(finite, state.obs, timed.state.obs)
        terminated = jnp.asarray(state.done, jnp.bool_) | ~finite
        return obs, TimedState(state, timed.time + 1), jnp.where(finite, state.reward, 0), terminated, {}

    def is_truncated(self, timed: TimedState, params: None) -> Bool[Array, ""]:
        """Whether the time limit has been reached."""
        return timed.time >= self.limit


@contextmanager
def without_warnings() -> Iterator[None]:
    """Context without the libraries' warnings about each other and about their bundled models."""
    with without_mujoco_warnings(), catch_warnings(action="ignore"):
        yield
