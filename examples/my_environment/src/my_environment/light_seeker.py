"""Find the light: a JAX environment of one copy, as gymnax has them. benchback makes as many copies as it needs.

A lamp stands somewhere on a table. The seeker feels how bright it is where it stands, and how much brighter it is a
stride away in each of four directions. Reaching the lamp ends the episode; wandering for too long cuts it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchback.envs.interface import Discrete

SIZE = 1.0
STRIDE = 0.1
MOVES = ((STRIDE, 0.0), (-STRIDE, 0.0), (0.0, STRIDE), (0.0, -STRIDE))
NEAR = 0.12
LIMIT = 100
PIXELS = 64


class State(NamedTuple):
    """Where things are."""

    seeker: Any
    lamp: Any
    time: Any


class LightSeeker:
    """The table, the lamp and the seeker."""

    actions = Discrete(len(MOVES))

    def reset_env(self, key: Any, params: Any) -> tuple[Any, State]:
        """First observation and state of an episode."""
        seeker, lamp = jax.random.uniform(key, (2, 2), minval=-SIZE, maxval=SIZE)
        state = State(seeker, lamp, jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def step_env(self, key: Any, state: State, action: Any, params: Any) -> tuple[Any, State, Any, Any, dict]:
        """Observation, state, reward, whether the lamp was reached, and an empty dictionary."""
        seeker = jnp.clip(state.seeker + jnp.array(MOVES)[action], -SIZE, SIZE)
        following = State(seeker, state.lamp, state.time + 1)
        reached = jnp.linalg.norm(seeker - state.lamp) < NEAR
        return self.observe(following), following, jnp.where(reached, 1.0, -0.01), reached, {}

    def is_truncated(self, state: State, params: Any) -> Any:
        """Whether time is up."""
        return state.time >= LIMIT

    def observe(self, state: State) -> Any:
        """Brightness here, and by how much it is brighter a stride away in each direction."""
        places = state.seeker + jnp.array([(0.0, 0.0), *MOVES])
        here, *there = 1 / (0.25 + jnp.linalg.norm(places - state.lamp, axis=1))
        return jnp.stack([here, *(x - here for x in there)])

    def render_state(self, state: State, params: Any) -> np.ndarray:
        """A picture for `benchback play`: the lamp yellow, the seeker white."""
        image = np.zeros((PIXELS, PIXELS, 3), np.uint8)
        for place, colour in ((state.lamp, (255, 220, 0)), (state.seeker, (255, 255, 255))):
            column, row = ((np.asarray(place) / SIZE + 1) / 2 * (PIXELS - 5)).astype(int) + 2
            image[row - 2 : row + 3, column - 2 : column + 3] = colour
        return image
