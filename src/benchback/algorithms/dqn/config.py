"""Configuration of DQN. Integers and strings are static, floats are data of the program."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from benchback.algorithms.fields import (
    MODEL_SIZES,
    Rows,
    check_batch,
    check_counts,
    check_decays,
    check_finite,
    check_hidden_sizes,
    check_model,
    check_positive,
    check_shares,
    hidden_layers,
    hyper_value,
)
from benchback.errors import InputError

SIZES = {"published": (120, 84), **MODEL_SIZES}


class Hyper(NamedTuple):
    """Float hyper-parameters, part of the state so that they can differ within a vmapped population."""

    learning_rate: Any
    adam_beta1: Any
    adam_beta2: Any
    adam_epsilon: Any
    gamma: Any
    tau: Any
    first_epsilon: Any
    last_epsilon: Any
    exploration_fraction: Any
    epsilons: Any
    """A vector: the knots of epsilon; () where there are none."""


@dataclass(frozen=True)
class Config:
    """Deep Q-learning."""

    algorithm: ClassVar[str] = "dqn"
    later: ClassVar[tuple[str, ...]] = ("exploration", "epsilons")
    """Fields that runs from before them do not have: not written where they have their defaults."""
    schedules: ClassVar[tuple[str, ...]] = ("epsilons",)
    """Fields that are values at evenly spaced moments of the run, see `with_knots`."""

    num_envs: int = 10
    """Number of parallel environments."""
    num_steps: int = 1
    """Steps per environment and rollout."""
    num_iterations: int = 50_000
    """Number of iterations, each a rollout and an update."""
    num_updates: int = 1
    """Gradient steps per iteration, each on a new minibatch."""
    minibatch_size: int = 128
    """Transitions per gradient step, sampled from the replay with replacement."""
    replay_capacity: int = 10_000
    """Capacity of the replay buffer in transitions; the oldest are overwritten first."""
    learning_starts: int = 10_000
    """Environment steps before the first gradient step."""
    target_every: int = 500
    """Environment steps between two updates of the target network."""
    tau: float = 1.0
    """Step size of a target update: target = (1 - tau) target + tau online; 1 copies."""
    double: bool = False
    """Double Q-learning: select the next action by the online network, evaluate it by the target network."""
    model: Literal["published", "small", "medium", "large"] = "published"
    """Hidden layers: published (120, 84), small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model, and the dense layer of a convolutional network."""
    network: str = "mlp"
    """Kind of network; `benchback list` shows them."""
    learning_rate: float = 2.5e-4
    """Adam's learning rate; the initial one if annealed."""
    anneal: bool = False
    """Anneal the learning rate linearly to zero over the iterations with gradient steps, per iteration."""
    adam_beta1: float = 0.9
    """Decay rate of Adam's first moment."""
    adam_beta2: float = 0.999
    """Decay rate of Adam's second moment."""
    adam_epsilon: float = 1e-8
    """Epsilon in Adam's denominator."""
    gamma: float = 0.99
    """Discount factor."""
    first_epsilon: float = 1.0
    """Initial epsilon of the epsilon-greedy policy."""
    last_epsilon: float = 0.05
    """Final epsilon of the epsilon-greedy policy."""
    exploration_fraction: float = 0.5
    """Fraction of the run over which epsilon decreases linearly."""
    exploration: Literal["linear", "knots"] = "linear"
    """Epsilon over the run: linear from the first to the last, or through the values of --epsilons."""
    epsilons: tuple[float, ...] = ()
    """Epsilon at evenly spaced moments, the first at the beginning and the last at the end of the run; linear between
    them."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """At a time limit: bootstrap from the final observation, or treat it as terminal."""

    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the network, the optimiser and the rewards in the replay."""

    def __post_init__(self) -> None:
        check_counts(self, ("num_envs", "num_steps", "num_iterations", "num_updates", "minibatch_size"))
        check_counts(self, ("replay_capacity", "learning_starts", "target_every"))
        check_batch(self)
        check_hidden_sizes(self)
        check_model(self)
        check_finite(self)
        check_positive(self, ("learning_rate", "adam_epsilon", "tau", "exploration_fraction"))
        check_shares(self, ("gamma", "tau", "first_epsilon", "last_epsilon", "exploration_fraction"))
        check_decays(self, ("adam_beta1", "adam_beta2"))
        _check_epsilons(self)
        if self.num_transitions >= 2**31:
            raise InputError(
                f"num_iterations={self.num_iterations} makes {self.num_transitions:,} transitions, and the replay "
                f"counts to {2**31 - 1:,}; choose at most {(2**31 - 1) // self.batch_size}"
            )

    @property
    def batch_size(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.num_steps

    @property
    def num_transitions(self) -> int:
        """Environment steps of the whole run."""
        return self.batch_size * self.num_iterations

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps per iteration, once learning has started."""
        return self.num_updates

    @property
    def learning_iterations(self) -> int:
        """Iterations with gradient steps; at least 1, so that the annealing schedule is defined."""
        before = -(-self.learning_starts // self.batch_size) - 1
        return max(1, self.num_iterations - before)

    @property
    def gradient_rows(self) -> int:
        """Rows processed by gradient steps per iteration."""
        return self.num_updates * self.minibatch_size

    @property
    def network_rows(self) -> dict[str, Rows]:
        """Rows through each network per iteration, once learning has started."""
        targets = self.gradient_rows * (2 if self.double else 1)
        return {"critic": Rows(forward=self.batch_size + targets, gradient=self.gradient_rows)}

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return hidden_layers(self, SIZES)

    @property
    def iterations_before_learning(self) -> int:
        """Iterations before the first that does all the work of later ones."""
        return -(-self.learning_starts // self.batch_size)

    def with_knots(self, name: str, count: int) -> "Config":
        """The config whose schedule `name` is data, its values as they are now at `count` evenly spaced moments."""
        if self.exploration == "knots":
            ends, values = np.linspace(0, 1, len(self.epsilons)), self.epsilons
        else:
            ends, values = (0, self.exploration_fraction), (self.first_epsilon, self.last_epsilon)
        now = np.interp(np.linspace(0, 1, count), ends, values)
        return replace(self, exploration="knots", **{name: tuple(map(float, now))})

    def for_evaluation(self, num_envs: int) -> "Config":
        """The config for evaluation in `num_envs` environments."""
        return replace(self, num_envs=num_envs, num_iterations=1, replay_capacity=1)

    @property
    def hyper(self) -> Hyper:
        """The float hyper-parameters as a record."""
        return Hyper(**{name: hyper_value(getattr(self, name)) for name in Hyper._fields})


def _check_epsilons(config: Config) -> None:
    if config.exploration == "linear" and config.epsilons:
        raise InputError("epsilons are not used by exploration=linear; use --exploration knots, or leave them out")
    if config.exploration == "knots" and len(config.epsilons) < 2:
        raise InputError(
            f"exploration=knots with {len(config.epsilons)} epsilons; give at least two, e.g. --epsilons 1 0.2 0.05"
        )
    for epsilon in config.epsilons:
        if not 0 <= epsilon <= 1:
            raise InputError(f"epsilons: {epsilon} must lie between 0 and 1")
