"""One interface for every environment suite.

An Env is always vectorised. `terminated` and `truncated` are separate, environments reset automatically
with a new random start, and the last observation of an episode is in `final_obs`. Episode return and
length are tracked on the environment's device, without a transfer.

Randomness is drawn before it is needed: `draw(random, T)` gives the noise of T steps, and `step` is a
function of state, action and noise alone. That lets a compiled rollout draw all its noise at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Discrete(NamedTuple):
    """Actions 0 .. size - 1, integers of shape `[E]`."""

    size: int

    @property
    def kind(self) -> Literal["discrete", "box"]:
        """The kind of actions that an algorithm must support."""
        return "discrete"


class Box(NamedTuple):
    """Continuous actions of shape `[E, size]`; an environment clips actions to these bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of action components."""
        return len(self.low)

    @property
    def kind(self) -> Literal["discrete", "box"]:
        """The kind of actions that an algorithm must support."""
        return "box"


class Step(NamedTuple):
    """The outcome of one step of all environments; every field is `[E, ...]`."""

    obs: Any
    """The next observation; the first of the new episode where one has ended."""
    reward: Any
    terminated: Any
    truncated: Any
    final_obs: Any
    """The next observation, before any reset."""
    episode_return: Any
    """Sum of rewards of the episode so far, this step included."""
    episode_length: Any


class EnvState(NamedTuple):
    """State of all environments between two steps."""

    inner: Any
    """The suite's own state."""
    obs: Any
    episode_return: Any
    episode_length: Any


@dataclass(frozen=True)
class Env:
    """`num_envs` copies of an environment, stepped together."""

    id: str
    framework: Literal["jax", "torch", "numpy"]
    """The framework of its arrays; of NumPy's are only external environments, before they are served to another."""
    num_envs: int
    observation_shape: tuple[int, ...]
    """The shape of one observation, as its suite gives it; flattening it is up to the network."""
    actions: Discrete | Box
    random: Callable[[int], Any]
    """Seed -> source of randomness: a JAX key, a torch.Generator."""
    reset: Callable[[Any], EnvState]
    """Source of randomness -> state."""
    draw: Callable[[Any, int], Any]
    """(randomness, T) -> noise of T steps, along its first axis."""
    step: Callable[[EnvState, Any, Any], tuple[EnvState, Step]]
    """(state, actions, noise) -> state, outcome."""
    external: Any = None
    """The ExternalEnv behind it, which counts transfers; None where the environment is part of the program."""
    render: Callable[[Any], Any] | None = None
    """The suite's state of one environment, in NumPy arrays -> picture, `[height, width, 3]` in bytes; None if it has
    none, or if another library draws it."""

    @property
    def observation_size(self) -> int:
        """Number of elements in one observation."""
        return math.prod(self.observation_shape)
