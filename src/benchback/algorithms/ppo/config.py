"""Configuration of PPO. Integers and strings are static, floats are data of the program."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from benchback.algorithms.fields import (
    Rows,
    check_batch,
    check_counts,
    check_decays,
    check_finite,
    check_hidden_sizes,
    check_log_std,
    check_model,
    check_not_negative,
    check_positive,
    check_shares,
    hidden_layers,
)
from benchback.errors import InputError
from benchback.plugins.towers import TOWERS


class Hyper(NamedTuple):
    """Float hyper-parameters, part of the state so that they can differ within a vmapped population."""

    learning_rate: Any
    adam_beta1: Any
    adam_beta2: Any
    adam_epsilon: Any
    max_grad_norm: Any
    gamma: Any
    gae_lambda: Any
    clip: Any
    entropy_coefficient: Any
    value_coefficient: Any
    initial_log_std: Any


@dataclass(frozen=True)
class Config:
    """Proximal policy optimisation."""

    algorithm: ClassVar[str] = "ppo"

    num_envs: int = 32
    """Number of parallel environments."""
    num_steps: int = 256
    """Steps per environment and rollout."""
    num_iterations: int = 100
    """Number of iterations, each a rollout and an update."""
    num_epochs: int = 10
    """Epochs over the batch per update."""
    num_minibatches: int = 8
    """Minibatches per epoch; must divide num_envs x num_steps."""
    model: Literal["small", "medium", "large"] = "small"
    """Hidden layers of actor and critic: small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model, and the dense layer of a convolutional network."""
    network: str = "mlp"
    """Kind of network; `benchback list` shows them."""
    learning_rate: float = 2.5e-4
    """Adam's learning rate; the initial one if annealed."""
    anneal: bool = True
    """Anneal the learning rate linearly to zero over the run, per iteration."""
    adam_beta1: float = 0.9
    """Decay rate of Adam's first moment."""
    adam_beta2: float = 0.999
    """Decay rate of Adam's second moment."""
    adam_epsilon: float = 1e-5
    """Epsilon in Adam's denominator."""
    max_grad_norm: float = 0.5
    """Maximum global norm of the gradient."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip: float = 0.2
    """Clipping range of the probability ratio, and of the value function if clip_value is on."""
    clip_value: bool = True
    """Use the clipped value loss."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions; learnt and state-independent."""
    normalise_obs: bool = False
    """Normalise observations by running mean and std, clipped to +-10."""
    normalise_reward: bool = False
    """Scale rewards by the running std of the discounted return, clipped to +-10; reported returns stay raw."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """At a time limit: bootstrap from the final observation, or treat it as terminal."""

    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the network, the optimiser and the returns."""

    def __post_init__(self) -> None:
        check_counts(self, ("num_envs", "num_steps", "num_iterations", "num_epochs", "num_minibatches"))
        check_batch(self)
        check_hidden_sizes(self)
        check_model(self)
        check_finite(self)
        if self.batch_size % self.num_minibatches:
            raise InputError(
                f"num_minibatches={self.num_minibatches} does not divide the batch of {self.batch_size}; "
                f"choose a divisor, e.g. {_nearest_divisor(self.batch_size, self.num_minibatches)}"
            )
        check_positive(self, ("learning_rate", "adam_epsilon", "max_grad_norm", "clip"))
        check_not_negative(self, ("entropy_coefficient", "value_coefficient"))
        check_shares(self, ("gamma", "gae_lambda"))
        check_decays(self, ("adam_beta1", "adam_beta2"))
        check_log_std(self)

    @property
    def batch_size(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.num_steps

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps per iteration."""
        return self.num_epochs * self.num_minibatches

    @property
    def gradient_rows(self) -> int:
        """Rows processed by gradient steps per iteration."""
        return self.batch_size * self.num_epochs

    @property
    def network_rows(self) -> dict[str, Rows]:
        """Rows through each network per iteration."""
        batch = self.batch_size
        rows = {
            "actor": Rows(forward=batch, gradient=self.gradient_rows),
            "critic": Rows(forward=batch + self.num_envs, gradient=self.gradient_rows, final=batch),
        }
        if self.network in TOWERS and TOWERS[self.network].shared:
            # To act and to value each take the trunk; a gradient step takes it once.
            forward = sum(found.forward for found in rows.values())
            rows["trunk"] = Rows(forward=forward, gradient=self.gradient_rows, final=batch)
        return rows

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return hidden_layers(self)

    @property
    def iterations_before_learning(self) -> int:
        """Iterations before the first that does all the work of later ones."""
        return 0

    def for_evaluation(self, num_envs: int) -> "Config":
        """The config for evaluation in `num_envs` environments."""
        return replace(self, num_envs=num_envs, num_minibatches=1)

    @property
    def hyper(self) -> Hyper:
        """The float hyper-parameters as a record."""
        return Hyper(**{name: getattr(self, name) for name in Hyper._fields})


def _nearest_divisor(number: int, wanted: int) -> int:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return min((*small, *(number // d for d in small)), key=lambda d: (abs(d - wanted), -d))
