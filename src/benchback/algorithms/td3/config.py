"""Configuration of TD3. Integers and words give programs their shape, floats travel as data."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from benchback.algorithms.fields import (
    MODEL_SIZES,
    check_counts,
    check_decays,
    check_hidden_sizes,
    check_not_negative,
    check_positive,
    check_shares,
)


class Hyper(NamedTuple):
    """The float hyper-parameters, carried in the state so that a population may differ in them."""

    actor_learning_rate: Any
    critic_learning_rate: Any
    adam_beta1: Any
    adam_beta2: Any
    adam_epsilon: Any
    gamma: Any
    polyak: Any
    exploration_noise: Any
    target_noise: Any
    target_noise_clip: Any


@dataclass(frozen=True)
class Config:
    """Twin delayed deep deterministic policy gradient."""

    algorithm: ClassVar[str] = "td3"

    num_envs: int = 1
    """Environments stepped side by side."""
    num_steps: int = 50
    """Steps of each environment per iteration."""
    num_iterations: int = 400
    """Iterations of rollout and update."""
    num_updates: int = 50
    """Gradient steps per iteration."""
    minibatch_size: int = 100
    """Transitions drawn from replay for each gradient step."""
    replay_capacity: int = 1_000_000
    """Transitions kept, of 8 x observation + 4 x action + 5 bytes each in float32: 33 MB for Pendulum, 165 MB for
    HalfCheetah's 17 observations and 6 actions."""
    start_steps: int = 10_000
    """First steps, all environments counted, whose actions are uniformly random."""
    update_after: int = 1_000
    """Steps, all environments counted, before the first gradient step."""
    policy_delay: int = 2
    """Gradient steps of the critics for each of the policy and the targets."""
    model: Literal["small", "medium", "large"] = "medium"
    """Hidden layers of actor and critics: small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model when not empty."""
    actor_learning_rate: float = 1e-3
    """Step size of the actor's Adam."""
    critic_learning_rate: float = 1e-3
    """Step size of the critics' Adam."""
    adam_beta1: float = 0.9
    """Decay of Adam's first moment."""
    adam_beta2: float = 0.999
    """Decay of Adam's second moment."""
    adam_epsilon: float = 1e-8
    """Added to Adam's denominator."""
    gamma: float = 0.99
    """Discount."""
    polyak: float = 0.995
    """Share of themselves that target networks keep at each update; the rest comes from the online networks."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions, in halves of their range."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions, in halves of their range."""
    target_noise_clip: float = 0.5
    """Limit of the noise on target actions, in halves of their range."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """At a time limit: bootstrap from the final observation, or treat it as a terminal state as older work does."""

    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the networks, the optimisers and actions."""

    def __post_init__(self) -> None:
        check_counts(self, ("num_envs", "num_steps", "num_iterations", "num_updates", "minibatch_size"))
        check_counts(self, ("replay_capacity", "policy_delay"))
        check_hidden_sizes(self)
        check_positive(self, ("actor_learning_rate", "critic_learning_rate", "adam_epsilon"))
        check_not_negative(self, ("start_steps", "update_after"))
        check_not_negative(self, ("exploration_noise", "target_noise", "target_noise_clip"))
        check_shares(self, ("gamma", "polyak"))
        check_decays(self, ("adam_beta1", "adam_beta2"))

    @property
    def batch_size(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.num_steps

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps per iteration."""
        return self.num_updates

    @property
    def gradient_rows(self) -> int:
        """Transitions that gradients are taken of per iteration."""
        return self.num_updates * self.minibatch_size

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.hidden_sizes or MODEL_SIZES[self.model]

    def for_evaluation(self, num_envs: int) -> "Config":
        """The same agent in other environments, evaluated instead of trained: it needs no replay."""
        return replace(self, num_envs=num_envs, replay_capacity=1)

    @property
    def hyper(self) -> Hyper:
        """The float hyper-parameters as one record of data."""
        return Hyper(**{name: getattr(self, name) for name in Hyper._fields})
