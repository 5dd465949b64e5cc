"""Configuration of PPO. Integers and strings are static, floats are data of the program."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from benchback.algorithms.fields import (
    LARGEST,
    MODEL_SIZES,
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
    hyper_value,
)
from benchback.errors import InputError
from benchback.math.records import WEIGHTS_PER_UNIT
from benchback.plugins.towers import TOWERS

RECURRENT_SIZES = {"small": (128,), "medium": (256,), "large": (1024,)}
"""Width of a recurrent network by model: that of its encoder, its memory and the hidden layer of each head."""


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
    drift_alpha: Any
    drift_beta: Any
    objective: Any
    """A vector: the weights of the learned drift; () where there is none."""


@dataclass(frozen=True)
class Config:
    """Proximal policy optimisation."""

    algorithm: ClassVar[str] = "ppo"
    later: ClassVar[tuple[str, ...]] = ("surrogate", "drift_alpha", "drift_beta", "objective")
    """Fields that runs from before them do not have: not written where they have their defaults."""

    num_envs: int = 32
    """Number of parallel environments."""
    num_steps: int = 256
    """Steps per environment and rollout."""
    num_iterations: int = 100
    """Number of iterations, each a rollout and an update."""
    num_epochs: int = 10
    """Epochs over the batch per update."""
    num_minibatches: int = 8
    """Minibatches per epoch; must divide num_envs x num_steps, with a recurrent network num_envs."""
    model: Literal["small", "medium", "large"] = "small"
    """Hidden layers of actor and critic: small (64, 64), medium (256, 256, 256), large six of 1024."""
    hidden_sizes: tuple[int, ...] = ()
    """Hidden layers given explicitly; overrides model, and the dense layer of a cnn; a gru has one width."""
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
    surrogate: Literal["clip", "drift", "learned"] = "clip"
    """What keeps the new policy near the old one: clip the ratio, the drift of discovered policy optimisation (DPO), or
    a drift that is read from --objective."""
    drift_alpha: float = 2.0
    """Scale of DPO's drift where the advantage is not negative."""
    drift_beta: float = 0.6
    """Scale of DPO's drift where the advantage is negative."""
    objective: tuple[float, ...] = ()
    """Weights of the learned drift, from a file."""
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
        if self.recurrent:
            self._check_recurrent()
        if self.batch_size % self.num_minibatches:
            raise InputError(
                f"num_minibatches={self.num_minibatches} does not divide the batch of {self.batch_size}; "
                f"choose a divisor, e.g. {_nearest_divisor(self.batch_size, self.num_minibatches)}"
            )
        check_positive(self, ("learning_rate", "adam_epsilon", "max_grad_norm", "clip", "drift_alpha", "drift_beta"))
        check_not_negative(self, ("entropy_coefficient", "value_coefficient"))
        check_shares(self, ("gamma", "gae_lambda"))
        check_decays(self, ("adam_beta1", "adam_beta2"))
        check_log_std(self)
        _check_objective(self)

    def _check_recurrent(self) -> None:
        if len(self.hidden_sizes) > 1:
            raise InputError(
                f"hidden_sizes={self.hidden_sizes} are several, and network={self.network} has one width for all its "
                f"layers; give one, e.g. {self.hidden_sizes[0]}"
            )
        if self.num_envs % self.num_minibatches:
            raise InputError(
                f"num_minibatches={self.num_minibatches} does not divide num_envs={self.num_envs}: minibatches of "
                f"network={self.network} are sequences of whole environments; choose a divisor, e.g. "
                f"{_nearest_divisor(self.num_envs, self.num_minibatches)}"
            )

    @property
    def recurrent(self) -> bool:
        """Whether the network has a memory; its implementations are in the folder `recurrent`."""
        return self.network == "gru"

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
        if self.recurrent:
            head = Rows(forward=batch, gradient=self.gradient_rows, follows=True)
            valued = head._replace(forward=batch + self.num_envs, final=batch)
            return {"encoder": valued._replace(follows=False), "gru": valued, "actor": head, "critic": valued}
        shared = self.network in TOWERS and TOWERS[self.network].shared
        actor = Rows(forward=batch, gradient=self.gradient_rows, follows=shared)
        critic = actor._replace(forward=batch + self.num_envs, final=batch)
        rows = {"actor": actor, "critic": critic}
        # To act and to value each take the trunk; a gradient step takes it once.
        trunk = critic._replace(forward=actor.forward + critic.forward, follows=False)
        return rows | {"trunk": trunk} if shared else rows

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return hidden_layers(self, RECURRENT_SIZES if self.recurrent else MODEL_SIZES)

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
        return Hyper(**{name: hyper_value(getattr(self, name)) for name in Hyper._fields})


def _check_objective(config: Config) -> None:
    if config.surrogate == "learned" and not config.objective:
        raise InputError("surrogate=learned needs its weights; give --objective FILE, which benchback discover writes")
    if config.surrogate != "learned" and config.objective:
        raise InputError(
            f"objective is not used by surrogate={config.surrogate}; use --surrogate learned, or leave it out"
        )
    if len(config.objective) % WEIGHTS_PER_UNIT or not all(abs(x) <= LARGEST for x in config.objective):
        raise InputError(
            f"objective has {len(config.objective)} numbers and must have finite ones, {WEIGHTS_PER_UNIT} for each "
            "hidden unit; benchback discover writes such a file"
        )


def _nearest_divisor(number: int, wanted: int) -> int:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return min((*small, *(number // d for d in small)), key=lambda d: (abs(d - wanted), -d))
