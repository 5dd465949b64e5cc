"""What brax and MuJoCo Playground have in common: simulations that say neither when time is up nor what comes next.

Both libraries leave that to wrappers for training, which return to one cached first state, the same in every episode,
and drop the last observation of the episode that ended. We step the bare simulation instead: a counter of our own
truncates, and every episode begins with a reset of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from warnings import catch_warnings

import jax
import jax.numpy as jnp
import mujoco
from jaxtyping import Array, Bool, Float, Int, Key


class Moment(NamedTuple):
    """Where an episode stands."""

    state: Any
    """The library's own."""
    time: Int[Array, ""]
    """Steps since the reset."""


@dataclass(frozen=True)
class Simulation:
    """An environment of brax's kind as gymnax would have it, with a time limit."""

    environment: Any
    limit: int
    """Steps after which an episode is truncated."""

    def reset_env(self, key: Key[Array, ""], params: None) -> tuple[Float[Array, "*O"], Moment]:
        """First observation and moment of an episode."""
        with quietly():
            # Some keep the key in their state; as plain numbers it can be copied out and stored like the rest.
            state = self.environment.reset(jax.random.key_data(key))
        return state.obs, Moment(state, jnp.zeros((), jnp.int32))

    def step_env(self, key: Key[Array, ""], moment: Moment, action: Float[Array, "A"], params: None) -> tuple:
        """Observation, moment, reward, termination and nothing else of note.

        A simulation that diverges has ended: with no reward, and what was last observed instead of what is no number,
        so that one of them cannot spoil what is learnt from all.
        """
        with quietly():
            state = self.environment.step(moment.state, action)
        sound = jnp.isfinite(state.obs).all() & jnp.isfinite(state.reward)
        obs = jnp.where(sound, state.obs, moment.state.obs)
        terminated = jnp.asarray(state.done, jnp.bool_) | ~sound
        return obs, Moment(state, moment.time + 1), jnp.where(sound, state.reward, 0), terminated, {}

    def is_truncated(self, moment: Moment, params: None) -> Bool[Array, ""]:
        """Whether the time limit has been reached."""
        return moment.time >= self.limit


@contextmanager
def quietly() -> Iterator[None]:
    """Drops what the libraries warn of in each other and in the models they come with.

    MuJoCo would print it, and append it to a file in the folder that the user happens to be in.
    """
    library: Any = mujoco  # what is compiled is unknown to the type checker
    before = library.get_mju_user_warning()
    library.set_mju_user_warning(lambda message: None)
    try:
        with catch_warnings(action="ignore"):
            yield
    finally:
        library.set_mju_user_warning(before)
