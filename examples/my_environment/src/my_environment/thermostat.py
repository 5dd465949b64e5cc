"""Keep a room warm: a gymnasium environment whose observations and actions have several parts."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

PIXELS = 64


class Thermostat(gymnasium.Env):
    """A heater and a window; the room should have 20 degrees. Too cold or too hot, and the tenant moves out."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Dict(
        {"temperature": spaces.Box(-50.0, 50.0, (2,), np.float32), "window": spaces.Discrete(2)}
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """A room that is a little too cold or too warm, on a day that is, too."""
        super().reset(seed=seed)
        self.room, self.outside, self.window = self.np_random.uniform(15, 25), self.np_random.uniform(-5, 30), 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        """The heater is off, low or high, the window closed or open."""
        heat, self.window = int(action[0]), int(action[1])
        self.room += 1.0 * heat + (0.2 if self.window else 0.05) * (self.outside - self.room)
        self.outside += self.np_random.normal(0, 0.3)
        off = abs(self.room - 20.0)
        return self._observed(), 1.0 - off / 5, bool(off > 15), False, {}

    def render(self) -> np.ndarray:
        """The room's colour, from blue to red, with a bar for an open window."""
        warmth = np.clip((self.room - 5) / 30, 0, 1)
        image = np.full((PIXELS, PIXELS, 3), (int(255 * warmth), 60, int(255 * (1 - warmth))), np.uint8)
        image[:8, : PIXELS if self.window else 0] = 255
        return image

    def _observed(self) -> dict[str, Any]:
        return {"temperature": np.array([self.room, self.outside], np.float32), "window": self.window}
