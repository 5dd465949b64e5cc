"""Test cases of VPG: configurations, weights, minibatches and a rollout, for a policy of each kind.

float32 holds every number exactly, hyper-parameters included: both precisions and the oracle start from the
same values, and what deviates is the arithmetic.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.vpg.config import Config
from benchback.algorithms.vpg.loss import Minibatch
from benchback.parity.cases import as_bits, ends_of_episodes, exact, on_policy_rollout, rounded
from benchback.parity.environment import ACTION_SIZE, NUM_ACTIONS, OBSERVATION_SIZE
from benchback.parity.oracle import fresh_adam, of_towers, parameters
from benchback.parity.vpg import oracle

BASE = Config(
    num_envs=8,
    num_steps=8,
    num_iterations=4,
    num_value_steps=3,
    hidden_sizes=(16, 16),
    actor_learning_rate=2**-12,
    critic_learning_rate=2**-10,
    adam_beta1=1 - 2**-3,
    adam_beta2=1 - 2**-10,
    adam_epsilon=2**-17,
    gamma=1 - 2**-6,
    gae_lambda=1 - 2**-4,
)

TERMINAL = replace(BASE, truncation="terminal")
"""Time limits treated as terminal."""

TINY = replace(BASE, num_envs=4, num_steps=4, num_value_steps=2, hidden_sizes=(8,))
"""The smallest configuration with every feature: its cost is compilation."""

Kind = Literal["discrete", "box"]
KINDS: tuple[Kind, ...] = ("discrete", "box")
TOWERS = {"actor_adam": ("actor", "log_std"), "critic_adam": ("critic",)}
"""Optimiser -> the parameters it updates."""


@dataclass(frozen=True)
class Case:
    """Inputs of one gradient step of the policy and one of the value function."""

    kind: Kind
    weights: Weights
    minibatch: Minibatch


def network(random: np.random.Generator, kind: Kind) -> Weights:
    """Weights with values, means and logits of order one, and initial Adam states."""
    weights = {}
    for tower, outputs in (("actor", NUM_ACTIONS if kind == "discrete" else ACTION_SIZE), ("critic", 1)):
        widths = (OBSERVATION_SIZE, *BASE.hidden, outputs)
        for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
            weights[f"{tower}/{i}/kernel"] = 1.5 * random.normal(size=(fan_in, fan_out)) / np.sqrt(fan_in)
            weights[f"{tower}/{i}/bias"] = 0.1 * random.normal(size=fan_out)
    if kind == "box":
        weights["log_std"] = random.uniform(-1, 0.5, size=ACTION_SIZE)
    adams = [fresh_adam(of_towers(weights, towers), section) for section, towers in TOWERS.items()]
    return exact(weights | adams[0] | adams[1])


def midway(weights: Weights, random: np.random.Generator) -> Weights:
    """The same network with Adam states from the middle of training."""
    result = dict(weights)
    for section, towers in TOWERS.items():
        for name, x in of_towers(parameters(weights), towers).items():
            result[f"{section}/mean/{name}"] = 0.01 * random.normal(size=x.shape)
            result[f"{section}/variance/{name}"] = 1e-4 * random.random(size=x.shape)
    return exact(result) | {"actor_adam/count": np.array(3, np.int32), "critic_adam/count": np.array(9, np.int32)}


def minibatch(weights: Weights, random: np.random.Generator, kind: Kind, binary: bool = False) -> Minibatch:
    """As many rows as a rollout of BASE has; `binary`: with bool observations, as in MinAtar."""
    obs = random.normal(size=(BASE.batch_size, OBSERVATION_SIZE))
    obs = as_bits(obs) if binary else obs
    action = _actions(parameters(weights), obs, random, kind)
    log_prob = oracle.log_prob(parameters(weights), obs, action) + 0.2 * random.normal(size=len(obs))
    advantage = random.normal(size=len(obs)) + 0.5
    target = oracle.value(parameters(weights), obs) + random.normal(size=len(obs))
    return Minibatch(*map(rounded, (obs, action, log_prob, advantage, target)))


def transitions(weights: Weights, config: Config, random: np.random.Generator, kind: Kind) -> Transition:
    """A rollout whose episodes end in every way: terminated, truncated, both, also on the last step."""
    shape = config.num_steps, config.num_envs
    obs = random.normal(size=(*shape, OBSERVATION_SIZE))
    action = _actions(parameters(weights), obs, random, kind)
    ends = ends_of_episodes(random, shape)
    log_prob = oracle.log_prob(parameters(weights), obs, action)
    value = oracle.value(parameters(weights), obs)
    batch = on_policy_rollout(random, obs, action, log_prob, value, ends)
    return Transition(*map(rounded, batch))


def _actions(weights: Weights, obs: np.ndarray, random: np.random.Generator, kind: Kind) -> np.ndarray:
    """Uniform discrete actions; or samples of the policy, some beyond the environment's bounds."""
    if kind == "discrete":
        return random.integers(NUM_ACTIONS, size=obs.shape[:-1]).astype(np.int32)
    noise = random.normal(size=(*obs.shape[:-1], ACTION_SIZE))
    return oracle.actor_output(weights, obs) + np.exp(weights["log_std"]) * noise


def single_steps(kind: Kind) -> list[Case]:
    """Both types of observations, initial and midway Adam states."""
    random = np.random.default_rng(0)
    weights = network(random, kind)
    data = [minibatch(weights, random, kind, binary) for binary in (False, True)]
    return [
        Case(kind, *start) for start in ((weights, data[0]), (weights, data[1]), (midway(weights, random), data[0]))
    ]


def ten_steps(kind: Kind) -> tuple[Weights, list[Minibatch]]:
    """Weights and ten minibatches; twenty with those of the other kind of actions."""
    random = np.random.default_rng(1)
    weights = network(random, kind)
    return weights, [minibatch(weights, random, kind) for _ in range(10)]
