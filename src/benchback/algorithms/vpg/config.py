"""Configuration of VPG. Integers and words give programs their shape, floats travel as data."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from benchback.algorithms.fields import (
    MODEL_SIZES,
    check_counts,
    check_decays,
    check_hidden_sizes,
    check_positive,
    check_shares,
)

SIZES = {"published": (128, 64), **MODEL_SIZES}


class Hyper(NamedTuple):
    """The float hyper-parameters, carried in the state so that a population may differ in them."""

    actor_learning_rate: Any
    critic_learning_rate: Any
    adam_beta1: Any
    adam_beta2: Any
    adam_epsilon: Any
    gamma: Any
    gae_lambda: Any
    initial_log_std: Any


@dataclass(frozen=True)
class Config:
    """Vanilla policy gradient."""

    algorithm: ClassVar[str] = "vpg"

    num_envs: int = 4
    """Environments stepped side by side."""
    num_steps: int = 1250
    """Steps of each environment per iteration."""
    num_iterations: int = 150
    """Iterations of rollout and update."""
    num_value_steps: int = 80
    """Gradient steps of the value per iteration, each on the whole batch; the policy takes one."""
    model: Literal["published", "small", "medium", "large"] = "published"
    """Hidden layers: published (128, 64), small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model when not empty."""
    actor_learning_rate: float = 3e-4
    """Step size of the policy's Adam."""
    critic_learning_rate: float = 1e-3
    """Step size of the value's Adam."""
    adam_beta1: float = 0.9
    """Decay of the first moments of both Adams."""
    adam_beta2: float = 0.999
    """Decay of their second moments."""
    adam_epsilon: float = 1e-8
    """Added to their denominators."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.97
    """Lambda of generalised advantage estimation."""
    initial_log_std: float = -0.5
    """Log standard deviation of real-valued actions at the start; it is learnt, and the same in every state."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """At a time limit: bootstrap from the final observation, or treat it as a terminal state as older work does."""

    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the network, the optimisers and the returns."""

    def __post_init__(self) -> None:
        check_counts(self, ("num_envs", "num_steps", "num_iterations", "num_value_steps"))
        check_hidden_sizes(self)
        check_positive(self, ("actor_learning_rate", "critic_learning_rate", "adam_epsilon"))
        check_shares(self, ("gamma", "gae_lambda"))
        check_decays(self, ("adam_beta1", "adam_beta2"))

    @property
    def batch_size(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.num_steps

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps per iteration: one of the policy, the others of the value."""
        return 1 + self.num_value_steps

    @property
    def gradient_rows(self) -> int:
        """Transitions that gradients are taken of per iteration, of one tower each time."""
        return self.batch_size * self.updates_per_iteration

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.hidden_sizes or SIZES[self.model]

    def for_evaluation(self, num_envs: int) -> "Config":
        """The same agent in other environments, evaluated instead of trained."""
        return replace(self, num_envs=num_envs)

    @property
    def hyper(self) -> Hyper:
        """The float hyper-parameters as one record of data."""
        return Hyper(**{name: getattr(self, name) for name in Hyper._fields})
