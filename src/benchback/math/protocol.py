"""The protocol of `math.jax` and `math.torch`: functions, arguments and shapes. Equations are in the implementations.

Code written once for all backends takes one of them as an argument: `math: Math`. `adam` and its state are not part of
it, because their interfaces differ. The first argument of sampling functions is a key in JAX and a generator in torch,
so it has no name here.
"""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int, Num, Shaped

from benchback.math.records import ActingNoise, Array, Bounds, Count, DType, Index, Moments, Random, Replay


@runtime_checkable
class Distribution(Protocol):
    """An action distribution, given the parameters that a policy network outputs."""

    def log_prob(self, params: Float[Array, "*B P"], /, action: Shaped[Array, "..."]) -> Float[Array, "*B"]: ...

    def entropy(self, params: Float[Array, "*B P"], /) -> Float[Array, "*B"]: ...

    def noise(self, random: Random, /, shape: tuple[int, ...], dtype: DType) -> Float[Array, "..."]: ...

    def sample(self, params: Float[Array, "*B P"], /, noise: Float[Array, "*B A"]) -> Shaped[Array, "..."]: ...

    def greedy(self, params: Float[Array, "*B P"], /) -> Shaped[Array, "..."]: ...


@runtime_checkable
class Categorical(Distribution, Protocol):
    """Categorical distribution over A actions, given logits."""

    def log_prob(self, logits: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]: ...

    def entropy(self, logits: Float[Array, "*B A"]) -> Float[Array, "*B"]: ...

    def sample(self, logits: Float[Array, "*B A"], noise: Float[Array, "*B A"]) -> Int[Array, "*B"]: ...

    def greedy(self, logits: Float[Array, "*B A"]) -> Int[Array, "*B"]: ...


@runtime_checkable
class Gaussian(Distribution, Protocol):
    """Diagonal Gaussian over A components, given concatenated means and log standard deviations: P is 2 A."""

    def parameters(self, mean: Float[Array, "*B A"], log_std: Float[Array, "A"]) -> Float[Array, "*B P"]: ...

    def log_prob(self, params: Float[Array, "*B P"], action: Float[Array, "*B A"]) -> Float[Array, "*B"]: ...

    def entropy(self, params: Float[Array, "*B P"]) -> Float[Array, "*B"]: ...

    def sample(self, params: Float[Array, "*B P"], noise: Float[Array, "*B A"]) -> Float[Array, "*B A"]: ...

    def greedy(self, params: Float[Array, "*B P"]) -> Float[Array, "*B A"]: ...


@runtime_checkable
class Math(Protocol):
    """The maths of one framework."""

    @property
    def categorical(self) -> Categorical: ...

    @property
    def gaussian(self) -> Gaussian: ...

    # Values of discrete actions.

    def q_of_action(self, value: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]: ...

    def epsilon_noise(
        self, random: Random, /, epsilon: Float[Array, ""], shape: tuple[int, ...], num_actions: int
    ) -> Int[Array, "..."]: ...

    def epsilon_greedy(self, value: Float[Array, "*B A"], exploration: Int[Array, "*B"]) -> Int[Array, "*B"]: ...

    # Bounded continuous actions.

    def bounds(self, low: tuple[float, ...], high: tuple[float, ...], dtype: DType) -> Bounds: ...

    def squash(self, head: Float[Array, "*B A"], bounds: Bounds) -> Float[Array, "*B A"]: ...

    def add_noise(
        self, action: Float[Array, "*B A"], noise: Float[Array, "*B A"], bounds: Bounds
    ) -> Float[Array, "*B A"]: ...

    def acting_noise(
        self, random: Random, /, shape: tuple[int, int, int], inserted: Count, start_steps: int, dtype: DType
    ) -> ActingNoise: ...

    def explore(
        self, action: Float[Array, "E A"], noise: ActingNoise, bounds: Bounds, scale: Float[Array, ""]
    ) -> Float[Array, "E A"]: ...

    # Losses.

    def standardise(self, x: Float[Array, "B"]) -> Float[Array, "B"]: ...

    def clipped_surrogate(
        self, log_ratio: Float[Array, "B"], advantage: Float[Array, "B"], clip: Float[Array, ""]
    ) -> Float[Array, ""]: ...

    def drift_surrogate(
        self,
        log_ratio: Float[Array, "B"],
        advantage: Float[Array, "B"],
        alpha: Float[Array, ""],
        beta: Float[Array, ""],
    ) -> Float[Array, ""]: ...

    def learned_surrogate(
        self, log_ratio: Float[Array, "B"], advantage: Float[Array, "B"], weights: Float[Array, "W"]
    ) -> Float[Array, ""]: ...

    def clipped_value_loss(
        self,
        value: Float[Array, "B"],
        old_value: Float[Array, "B"],
        target: Float[Array, "B"],
        clip: Float[Array, ""],
    ) -> Float[Array, ""]: ...

    def approximate_kl(self, log_ratio: Float[Array, "B"]) -> Float[Array, ""]: ...

    def clip_fraction(self, log_ratio: Float[Array, "B"], clip: Float[Array, ""]) -> Float[Array, ""]: ...

    # Running statistics.

    def no_moments(self, shape: tuple[int, ...], dtype: DType) -> Moments: ...

    def update_moments(self, moments: Moments, x: Shaped[Array, "..."]) -> Moments: ...

    def normalise(self, x: Shaped[Array, "*S"], moments: Moments) -> Float[Array, "*S"]: ...

    def rescale(self, x: Shaped[Array, "*S"], moments: Moments) -> Float[Array, "*S"]: ...

    # Replay.

    def empty_replay(self, example: Any, capacity: int) -> Replay: ...

    def insert(self, replay: Replay, inserted: Count, rows: Any) -> Replay: ...

    def sample_indices(
        self, random: Random, /, replay: Replay, inserted: Count, shape: tuple[int, ...]
    ) -> Int[Array, "..."]: ...

    def gather(self, replay: Replay, index: Index) -> Any: ...

    # Advantages and returns.

    def successor_value(
        self,
        value: Float[Array, "T E"],
        last_value: Float[Array, "E"],
        final_value: Float[Array, "T E"],
        truncated: Bool[Array, "T E"],
    ) -> Float[Array, "T E"]: ...

    def gae(
        self,
        reward: Float[Array, "T E"],
        value: Float[Array, "T E"],
        next_value: Float[Array, "T E"],
        terminated: Bool[Array, "T E"],
        done: Bool[Array, "T E"],
        *,
        gamma: Float[Array, ""],
        lam: Float[Array, ""],
    ) -> Float[Array, "T E"]: ...

    def rewards_to_go(
        self,
        reward: Float[Array, "T E"],
        next_value: Float[Array, "T E"],
        terminated: Bool[Array, "T E"],
        done: Bool[Array, "T E"],
        *,
        gamma: Float[Array, ""],
    ) -> Float[Array, "T E"]: ...

    def discounted_return(
        self,
        reward: Float[Array, "T E"],
        done: Bool[Array, "T E"],
        before: Float[Array, "E"],
        *,
        gamma: Float[Array, ""],
    ) -> Float[Array, "T E"]: ...

    def mean_where(self, x: Num[Array, "T E"], mask: Bool[Array, "T E"]) -> Float[Array, ""]: ...

    def nanmean(self, x: Float[Array, "U"]) -> Float[Array, ""]: ...

    # Schedules.

    def linear_anneal(
        self, initial: Float[Array, ""], count: Int[Array, ""], *, steps_per_iteration: int, num_iterations: int
    ) -> Float[Array, ""]: ...

    def linear_ramp(
        self, first: Float[Array, ""], last: Float[Array, ""], count: Count, duration: Float[Array, ""]
    ) -> Float[Array, ""]: ...

    def piecewise_linear(self, knot: Float[Array, "K"], count: Count, duration: int) -> Float[Array, ""]: ...

    # Minibatches.

    def permutation(self, random: Random, /, size: int) -> Int[Array, "{size}"]: ...

    def minibatch_indices(
        self, random: Random, /, *, batch_size: int, num_epochs: int, num_minibatches: int
    ) -> Int[Array, "updates minibatch"]: ...

    def take(self, data: Any, index: Int[Array, "B"]) -> Any: ...

    # Targets.

    def stop_gradient(self, x: Float[Array, "*B"]) -> Float[Array, "*B"]: ...

    def polyak(self, target: Any, online: Any, tau: Float[Array, ""]) -> Any: ...

    def smoothing_noise(
        self, noise: Float[Array, "B A"], scale: Float[Array, ""], limit: Float[Array, ""]
    ) -> Float[Array, "B A"]: ...

    def twin_target(
        self,
        reward: Float[Array, "B"],
        terminated: Bool[Array, "B"],
        next_value1: Float[Array, "B"],
        next_value2: Float[Array, "B"],
        gamma: Float[Array, ""],
    ) -> Float[Array, "B"]: ...
