"""Test cases of DQN: configurations, weights and minibatches that cover every branch.

float32 holds every number exactly, hyper-parameters included: both precisions and the oracle start from the
same values, and what deviates is the arithmetic.
"""

from dataclasses import dataclass, replace

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.dqn.config import Config
from benchback.algorithms.dqn.loss import Minibatch
from benchback.parity.cases import as_bits, clear_images, exact, layers, rounded
from benchback.parity.dqn import oracle
from benchback.parity.environment import LARGE, NUM_ACTIONS, observations
from benchback.parity.oracle import fresh_adam, parameters
from benchback.plugins.towers import TOWERS

BASE = Config(
    num_envs=4,
    num_steps=4,
    num_iterations=16,
    num_updates=2,
    minibatch_size=32,
    replay_capacity=40,
    learning_starts=32,
    target_every=40,
    hidden_sizes=(16, 16),
    learning_rate=2**-10,
    adam_beta1=1 - 2**-3,
    adam_beta2=1 - 2**-10,
    adam_epsilon=2**-26,
    gamma=1 - 2**-6,
    first_epsilon=0.75,
    last_epsilon=2**-3,
    exploration_fraction=0.1875,
)
"""Iterations of 16 rows: the first does not learn, the third fills the replay and updates the target, and epsilon has
reached its final value after it."""

LINEAR = replace(BASE, double=True, anneal=True, truncation="terminal", tau=0.25)
"""The other value of every option of learning."""

OTHER = replace(LINEAR, exploration="knots", epsilons=(0.75, 0.125, 0.5, 0.25, 1.0, 0.0, 0.125, 0.0, 0.25))
"""The other value of every option. Knots are 32 rows apart, two iterations."""

OPTIONS = {"knots": {"exploration": "knots", "epsilons": OTHER.epsilons}}
"""Name of an option in the proof of a cell -> fields of it."""

GREEDY = replace(BASE, first_epsilon=0.0, last_epsilon=0.0)
"""No exploration: every action is greedy."""

TINY = replace(LINEAR, minibatch_size=8, hidden_sizes=(8,))
"""The smallest configuration with every feature of learning: its cost is compilation."""
PROBE = Config(
    num_envs=4,
    num_steps=2,
    num_iterations=400,
    num_updates=2,
    minibatch_size=16,
    replay_capacity=256,
    learning_starts=32,
    target_every=32,
    hidden_sizes=(16,),
    learning_rate=0.01,
    gamma=0.5,
    last_epsilon=0.5,
)
"""Learns environments whose action values are known within seconds; half of its actions stay random."""

ROWS = BASE.minibatch_size


@dataclass(frozen=True)
class Case:
    """Inputs of one gradient step."""

    config: Config
    weights: Weights
    minibatch: Minibatch


def sized(config: Config, architecture: str) -> Config:
    """The configuration with a larger epsilon of Adam for a large network.

    A first step divides each gradient by its size. Of 76,275 some are a billionth of the largest, by cancellation.
    """
    return replace(config, adam_epsilon=2**-10) if architecture in LARGE else config


def network(random: np.random.Generator, architecture: str = "mlp") -> Weights:
    """Weights with values of order one, a different target network, and an initial Adam state."""
    online, target = (layers(random, "critic", architecture, (*BASE.hidden, NUM_ACTIONS)) for _ in range(2))
    return exact(online | {f"target/{name}": x for name, x in target.items()} | fresh_adam(online))


def midway(weights: Weights, random: np.random.Generator) -> Weights:
    """The same network with an Adam state from the middle of training."""
    result = dict(weights)
    for name in parameters(weights):
        result[f"adam/mean/{name}"] = 0.01 * random.normal(size=weights[name].shape)
        result[f"adam/variance/{name}"] = 1e-4 * random.random(size=weights[name].shape)
    return exact(result) | {"adam/count": np.array(6 * BASE.num_updates + 1, np.int32)}


def minibatch(
    random: np.random.Generator, weights: Weights, architecture: str = "mlp", *, binary: bool = False
) -> Minibatch:
    """Transitions, a quarter of them terminal; observations float, bytes of images or, as in MinAtar, bool.

    Images are clear of the edges of relus of the network with these weights.
    """
    seen = rounded(observations(random, (2, ROWS), architecture))
    obs, next_obs = as_bits(seen) if binary else seen
    if architecture in TOWERS:
        obs = clear_images(random, ROWS, architecture, weights, ("critic",), bits=binary)
    return Minibatch(
        obs=obs,
        action=random.integers(NUM_ACTIONS, size=ROWS).astype(np.int32),
        reward=random.normal(size=ROWS).astype(np.float32),
        next_obs=next_obs,
        terminated=random.random(ROWS) < 0.25,
    )


def single_steps(architecture: str = "mlp") -> list[Case]:
    """Both types of observations, initial and midway Adam states, both values of the options."""
    random = np.random.default_rng(0)
    weights = network(random, architecture)
    data = [minibatch(random, weights, architecture, binary=binary) for binary in (False, True)]
    starts = [(weights, data[0]), (weights, data[1]), (midway(weights, random), data[0])]
    return [Case(sized(config, architecture), *start) for config in (BASE, OTHER) for start in starts]


def twenty_steps(config: Config, architecture: str = "mlp") -> tuple[Weights, list[Minibatch]]:
    """Weights and twenty minibatches, for gradient steps of this configuration."""
    random = np.random.default_rng(1)
    weights = now = network(random, architecture)
    minibatches = []
    for _ in range(20):
        minibatches.append(minibatch(random, now, architecture))
        if architecture in TOWERS:
            now, _ = oracle.learn(now, minibatches[-1], config)
    return weights, minibatches
