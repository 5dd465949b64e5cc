"""Words of the maths that name no framework: arrays, what a twin is free to choose, and the records both use."""

from typing import Annotated, Any, NamedTuple

# A JAX array or a torch tensor: `Float[Array, "T E"]` checks the kind of number and the shape of either. Imported
# because pyright takes `x | y` for a type where it knows x and y by an alias, `Array = Any`.
from typing import Any as Array

from jaxtyping import Bool, Float

Random = Annotated[Any, "random"]
"""A JAX key or a torch.Generator."""
DType = Annotated[Any, "dtype"]
"""A type of numbers: numpy's for JAX, torch's own."""
Count = Annotated[Any, "count"]
"""A number of steps: an integer array, `[]`, where the program counts; an int where Python does."""

Index = Annotated[Any, "index"]
"""Rows of a replay: of one minibatch, `[B]`; in JAX, where one program learns from many, of any shape."""


class Bounds(NamedTuple):
    """The least and the greatest value of each component of an action."""

    low: Float[Array, "A"]
    high: Float[Array, "A"]


class ActingNoise(NamedTuple):
    """The randomness of acting, of one step or of many along the first axis."""

    normal: Float[Array, "*T E A"]
    """Standard normal."""
    uniform: Float[Array, "*T E A"]
    """Uniform on [0, 1)."""
    at_random: Bool[Array, "*T"]
    """Whether to act uniformly, whatever the policy would do."""


class Moments(NamedTuple):
    """Of each feature, over all rows ever seen; before the first, those that change nothing: mean 0, variance 1."""

    count: Float[Array, ""]
    mean: Float[Array, "*F"]
    variance: Float[Array, "*F"]
    """The mean squared distance from the mean (ddof 0)."""


class Replay(NamedTuple):
    """The last transitions that were inserted. How many ever were is counted apart: it decides, and decides for all."""

    data: Any
    """A record of arrays, `[capacity, ...]`."""
