"""Configuration of VPG. Integers and strings are static, floats are data of the program."""

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
    check_log_std,
    check_positive,
    check_shares,
)

SIZES = {"published": (128, 64), **MODEL_SIZES}


class Hyper(NamedTuple):
    """Float hyper-parameters, part of the state so that they can differ within a vmapped population."""

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
    """Number of parallel environments."""
    num_steps: int = 1250
    """Steps per environment and rollout."""
    num_iterations: int = 150
    """Number of iterations, each a rollout and an update."""
    num_value_steps: int = 80
    """Gradient steps of the value function per iteration, each on the whole batch; the policy takes one."""
    model: Literal["published", "small", "medium", "large"] = "published"
    """Hidden layers: published (128, 64), small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model when not empty."""
    network: str = "mlp"
    """Kind of network; `benchback list` shows them."""
    actor_learning_rate: float = 3e-4
    """Learning rate of the policy's Adam."""
    critic_learning_rate: float = 1e-3
    """Learning rate of the value function's Adam."""
    adam_beta1: float = 0.9
    """Decay rate of Adam's first moment, for both optimisers."""
    adam_beta2: float = 0.999
    """Decay rate of Adam's second moment, for both optimisers."""
    adam_epsilon: float = 1e-8
    """Epsilon in Adam's denominator, for both optimisers."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.97
    """Lambda of generalised advantage estimation."""
    initial_log_std: float = -0.5
    """Initial log standard deviation of continuous actions; learnt and state-independent."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """At a time limit: bootstrap from the final observation, or treat it as terminal."""

    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the network, the optimisers and the returns."""

    def __post_init__(self) -> None:
        check_counts(self, ("num_envs", "num_steps", "num_iterations", "num_value_steps"))
        check_batch(self)
        check_hidden_sizes(self)
        check_finite(self)
        check_positive(self, ("actor_learning_rate", "critic_learning_rate", "adam_epsilon"))
        check_shares(self, ("gamma", "gae_lambda"))
        check_decays(self, ("adam_beta1", "adam_beta2"))
        check_log_std(self)

    @property
    def batch_size(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.num_steps

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps per iteration: one of the policy, the others of the value function."""
        return 1 + self.num_value_steps

    @property
    def gradient_rows(self) -> int:
        """Rows processed by gradient steps (of one network each) per iteration."""
        return self.batch_size * self.updates_per_iteration

    @property
    def network_rows(self) -> dict[str, Rows]:
        """Rows through each network per iteration."""
        batch = self.batch_size
        return {
            "actor": Rows(forward=2 * batch, gradient=batch),
            "critic": Rows(forward=batch + self.num_envs, gradient=self.num_value_steps * batch, final=batch),
        }

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.hidden_sizes or SIZES[self.model]

    @property
    def iterations_before_learning(self) -> int:
        """Iterations before the first that does all the work of later ones."""
        return 0

    def for_evaluation(self, num_envs: int) -> "Config":
        """The config for evaluation in `num_envs` environments."""
        return replace(self, num_envs=num_envs)

    @property
    def hyper(self) -> Hyper:
        """The float hyper-parameters as a record."""
        return Hyper(**{name: getattr(self, name) for name in Hyper._fields})
