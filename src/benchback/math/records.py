"""Framework-independent types and records of `math.jax` and `math.torch`."""

from typing import Annotated, Any, NamedTuple

# A JAX array or a torch tensor: `Float[Array, "T E"]` checks the kind of number and the shape of either. Imported
# because pyright takes `x | y` for a type where it knows x and y by an alias, `Array = Any`.
from typing import Any as Array

from jaxtyping import Bool, Float

Random = Annotated[Any, "random"]
"""A JAX key or a torch.Generator."""
DType = Annotated[Any, "dtype"]
"""Data type of an array: NumPy's for JAX, torch's for torch."""
Count = Annotated[Any, "count"]
"""A number of steps: a scalar integer array in JAX programs, a Python int in torch."""

Index = Annotated[Any, "index"]
"""Indices of replay rows: `[B]` for one minibatch; of any shape in JAX, where one program uses many minibatches."""

DRIFT_FEATURES = 8
"""Features of ratio and advantage that a learned drift is a function of."""
WEIGHTS_PER_UNIT = DRIFT_FEATURES + 1
"""Weights of a learned drift for each of its hidden units: one for each feature, and one of the output."""
DRIFT_MARGIN = 1e-6
"""A learned drift is zero where its network's output is below this."""


class Bounds(NamedTuple):
    """Lower and upper bound of each action component."""

    low: Float[Array, "A"]
    high: Float[Array, "A"]


class ActingNoise(NamedTuple):
    """Noise for acting: of one step, or of many along the first axis."""

    normal: Float[Array, "*T E A"]
    """Standard normal."""
    uniform: Float[Array, "*T E A"]
    """Uniform on [0, 1)."""
    at_random: Bool[Array, "*T"]
    """Whether to take a uniformly random action instead of the policy's."""


class Moments(NamedTuple):
    """Running moments of each feature over all rows so far; initially mean 0 and variance 1."""

    count: Float[Array, ""]
    mean: Float[Array, "*F"]
    variance: Float[Array, "*F"]
    """Population variance (ddof 0)."""


class Replay(NamedTuple):
    """Replay buffer of the latest transitions. The number inserted is a separate counter, shared by a population."""

    data: Any
    """A record of arrays, `[capacity, ...]`."""
