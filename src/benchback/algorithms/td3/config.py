"""Configuration of TD3. Integers and strings are static, floats are data of the program."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from benchback.algorithms.fields import (
    MODEL_SIZES,
    Rows,
    check_batch,
    check_counts,
    check_decays,
    check_finite,
    check_hidden_sizes,
    check_not_negative,
    check_positive,
    check_shares,
)


class Hyper(NamedTuple):
    """Float hyper-parameters, part of the state so that they can differ within a vmapped population."""

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
    """Number of parallel environments."""
    num_steps: int = 50
    """Steps per environment and rollout."""
    num_iterations: int = 400
    """Number of iterations, each a rollout and an update."""
    num_updates: int = 50
    """Gradient steps per iteration."""
    minibatch_size: int = 100
    """Transitions per gradient step, sampled from the replay with replacement."""
    replay_capacity: int = 1_000_000
    """Capacity of the replay buffer in transitions of 8 x observation + 4 x action + 5 bytes (float32): 33 MB for
    Pendulum, 165 MB for HalfCheetah's 17 observations and 6 actions."""
    start_steps: int = 10_000
    """Environment steps with uniformly random actions at the start of training."""
    update_after: int = 10_000
    """Environment steps before the first gradient step."""
    policy_delay: int = 2
    """Critic updates per update of the policy and the target networks."""
    model: Literal["small", "medium", "large"] = "medium"
    """Hidden layers of actor and critics: small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model when not empty."""
    actor_learning_rate: float = 1e-3
    """Learning rate of the actor's Adam."""
    critic_learning_rate: float = 1e-3
    """Learning rate of the critics' Adam."""
    adam_beta1: float = 0.9
    """Decay rate of Adam's first moment."""
    adam_beta2: float = 0.999
    """Decay rate of Adam's second moment."""
    adam_epsilon: float = 1e-8
    """Epsilon in Adam's denominator."""
    gamma: float = 0.99
    """Discount factor."""
    polyak: float = 0.995
    """Polyak coefficient of the target networks: target = polyak target + (1 - polyak) online."""
    exploration_noise: float = 0.1
    """Std of the exploration noise, as a fraction of half the action range."""
    target_noise: float = 0.2
    """Std of the target policy smoothing noise, as a fraction of half the action range."""
    target_noise_clip: float = 0.5
    """Clipping range of the target policy smoothing noise, as a fraction of half the action range."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """At a time limit: bootstrap from the final observation, or treat it as terminal."""

    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the networks, the optimisers and actions."""

    def __post_init__(self) -> None:
        check_counts(self, ("num_envs", "num_steps", "num_iterations", "num_updates", "minibatch_size"))
        check_counts(self, ("replay_capacity", "policy_delay"))
        check_batch(self)
        check_hidden_sizes(self)
        check_finite(self)
        check_positive(self, ("actor_learning_rate", "critic_learning_rate", "adam_epsilon"))
        check_counts(self, ("start_steps", "update_after"), least=0)
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
        """Rows processed by gradient steps per iteration."""
        return self.num_updates * self.minibatch_size

    @property
    def network_rows(self) -> dict[str, Rows]:
        """Rows through each network per iteration, once learning has started, on average over updates."""
        rows, delayed = self.gradient_rows, self.gradient_rows // self.policy_delay
        return {
            "actor": Rows(forward=self.batch_size + rows, gradient=delayed),
            "critic1": Rows(forward=rows, gradient=rows, input_gradient=delayed),
            "critic2": Rows(forward=rows, gradient=rows),
        }

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.hidden_sizes or MODEL_SIZES[self.model]

    @property
    def iterations_before_learning(self) -> int:
        """Iterations before the first that does all the work of later ones."""
        return -(-max(self.start_steps, self.update_after) // self.batch_size)

    @property
    def delayed_metrics(self) -> tuple[str, ...]:
        """Metrics that are NaN in an iteration without a policy update."""
        return ("actor_loss", "actor_grad_norm") if self.num_updates < self.policy_delay else ()

    def for_evaluation(self, num_envs: int) -> "Config":
        """The config for evaluation in `num_envs` environments, without a replay."""
        return replace(self, num_envs=num_envs, replay_capacity=1)

    @property
    def hyper(self) -> Hyper:
        """The float hyper-parameters as a record."""
        return Hyper(**{name: getattr(self, name) for name in Hyper._fields})
