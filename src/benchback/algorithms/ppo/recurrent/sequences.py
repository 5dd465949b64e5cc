"""Shared by all backends: rollouts with the memory they began with, and gradient steps on whole sequences.

Memory is what the network remembers *before* it sees an observation: zero at the first one of an episode. A gradient
step replays the rollouts of some environments from the memory they began with. This file imports neither framework, so
it cannot make two backends differ.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int, Shaped

from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch
from benchback.math.records import Array


class Rollout(NamedTuple):
    """A rollout, and what the network remembered before it."""

    steps: Transition
    memory: Float[Array, "E H"]

    @property
    def obs(self) -> Shaped[Array, "T E *O"]:
        """The observations."""
        return self.steps.obs

    @property
    def action(self) -> Shaped[Array, "T E *A"]:
        """The actions."""
        return self.steps.action

    @property
    def value(self) -> Float[Array, "T E"]:
        """The critic's estimates."""
        return self.steps.value


class Sequences(NamedTuple):
    """Inputs of one gradient step: all steps of some environments; time-major."""

    obs: Shaped[Array, "T B *O"]
    action: Shaped[Array, "T B *A"]
    log_prob: Float[Array, "T B"]
    value: Float[Array, "T B"]
    advantage: Float[Array, "T B"]
    target: Float[Array, "T B"]
    done: Bool[Array, "T B"]
    """Whether the episode ended with this step: the next begins with an empty memory."""
    memory: Float[Array, "B H"]
    """Memory before the first step."""


def make_sequences(batch: Transition, memory: Float[Array, "E H"], advantage: Float[Array, "T E"]) -> Sequences:
    """The rollout with its advantages and value targets."""
    target = advantage + batch.value
    return Sequences(batch.obs, batch.action, batch.log_prob, batch.value, advantage, target, batch.done, memory)


def take(data: Sequences, index: Int[Array, "B"]) -> Sequences:
    """The sequences of the given environments."""
    *steps, memory = data
    return Sequences(*(x[:, index] for x in steps), memory=memory[index])


def as_rows(sequences: Sequences) -> Minibatch:
    """The sequences as rows of a minibatch, whose loss does not depend on their order."""
    return Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in sequences[: len(Minibatch._fields)]))


def reset_where(done: Bool[Array, "E"], memory: Float[Array, "E H"]) -> Float[Array, "E H"]:
    """The memory before the next observation: empty where that is the first of an episode."""
    return memory * ~done[:, None]


def example_minibatch(batch: Rollout, config: Config) -> Sequences:
    """Sequences of the first environments, to time a gradient step; their advantages are placeholders."""
    count = config.num_envs // config.num_minibatches
    *steps, memory = make_sequences(batch.steps, batch.memory, batch.steps.log_prob)
    return Sequences(*(x[:, :count] for x in steps), memory=memory[:count])
