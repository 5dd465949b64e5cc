"""Image environments that need no package but gymnasium, registered on import: `Picture-v0`, `LargePicture-v0`."""

from typing import Any

import gymnasium
import numpy as np

SHAPE = (6, 5, 3)
LARGE = (37, 36, 3)
"""As large as the convolutions of `nature_cnn` need."""
LIMIT = 50


class Picture(gymnasium.Env):
    """A random image that moves one column to the left or to the right; moving right earns 1."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, shape: tuple[int, ...] = SHAPE, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.image = self.np_random.integers(256, size=self.observation_space.shape, dtype=np.uint8)
        return self.image, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.image = np.roll(self.image, 2 * int(action) - 1, axis=1)
        return self.image, float(action), False, False, {}


gymnasium.register("Picture-v0", lambda **options: Picture(**options), max_episode_steps=LIMIT)
gymnasium.register("LargePicture-v0", lambda **options: Picture(LARGE, **options), max_episode_steps=LIMIT)
