"""Test cases of TD3: configurations, weights, minibatches and rollouts that cover every branch.

float32 holds every number exactly, hyper-parameters included: both precisions and the oracle start from the
same values, and what deviates is the arithmetic.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.offpolicy import Transition
from benchback.algorithms.td3.config import Config
from benchback.algorithms.td3.loss import Minibatch
from benchback.parity.cases import exact, rounded
from benchback.parity.environment import ACTION_SIZE, BOX, OBSERVATION_SIZE
from benchback.parity.oracle import fresh_adam, of_towers
from benchback.parity.td3.oracle import CRITICS

BASE = Config(
    num_envs=8,
    num_steps=4,
    num_iterations=4,
    num_updates=3,
    minibatch_size=32,
    replay_capacity=80,
    start_steps=48,
    update_after=33,
    policy_delay=3,
    hidden_sizes=(16,),
    actor_learning_rate=2**-12,
    critic_learning_rate=2**-11,
    adam_beta1=1 - 2**-3,
    adam_beta2=1 - 2**-10,
    adam_epsilon=2**-17,
    gamma=1 - 2**-6,
    polyak=1 - 2**-4,
    exploration_noise=2**-2,
    target_noise=2**-2,
    target_noise_clip=0.375,
)
"""Random actions end in the middle of the second rollout, learning starts with it, the third wraps the replay."""

PLAIN = replace(BASE, truncation="terminal")
"""The other value of the option."""

TINY = replace(
    BASE,
    num_envs=4,
    num_steps=4,
    minibatch_size=8,
    replay_capacity=24,
    start_steps=24,
    update_after=1,
    policy_delay=2,
    hidden_sizes=(8,),
)
"""The smallest configuration with every feature: its cost is compilation."""


@dataclass(frozen=True)
class Case:
    """Inputs of one gradient step."""

    config: Config
    weights: Weights
    minibatch: Minibatch


def networks(random: np.random.Generator) -> Weights:
    """Weights whose policy reaches its bounds in some rows, different target networks, and initial Adam states."""
    online = _towers(random)
    slow = {f"target/{name}": x for name, x in _towers(random).items()}
    actor = fresh_adam(of_towers(online, ("actor",)), "actor_adam")
    critics = fresh_adam(of_towers(online, CRITICS), "critic_adam")
    return exact(online | slow | actor | critics)


def _towers(random: np.random.Generator) -> Weights:
    weights = {}
    ends = {"actor": (OBSERVATION_SIZE, ACTION_SIZE)} | dict.fromkeys(CRITICS, (OBSERVATION_SIZE + ACTION_SIZE, 1))
    for tower, (inputs, outputs) in ends.items():
        for i, (fan_in, fan_out) in enumerate(pairwise((inputs, *BASE.hidden, outputs))):
            weights[f"{tower}/{i}/kernel"] = 1.5 * random.normal(size=(fan_in, fan_out)) / np.sqrt(fan_in)
            weights[f"{tower}/{i}/bias"] = 0.1 * random.normal(size=fan_out)
    return weights


def midway(weights: Weights, random: np.random.Generator, count: int) -> Weights:
    """The same networks with Adam states from the middle of training, the critics' after `count` steps."""
    result = dict(weights)
    for name, x in weights.items():
        if "/mean/" in name:
            result[name] = 0.01 * random.normal(size=x.shape)
        elif "/variance/" in name:
            result[name] = 1e-4 * random.random(size=x.shape)
    counts = {"critic_adam/count": np.array(count, np.int32), "actor_adam/count": np.array(count // 3, np.int32)}
    return exact(result) | counts


def minibatch(random: np.random.Generator, *, error: float = 1.0) -> Minibatch:
    """Transitions, a quarter of them terminal; noise that is clipped in some rows."""
    rows = BASE.minibatch_size
    result = Minibatch(
        obs=random.normal(size=(rows, OBSERVATION_SIZE)),
        action=random.uniform(BOX.low, BOX.high, (rows, ACTION_SIZE)),
        reward=error * random.normal(size=rows),
        next_obs=random.normal(size=(rows, OBSERVATION_SIZE)),
        terminated=random.random(rows) < 0.25,
        noise=random.normal(size=(rows, ACTION_SIZE)),
    )
    return Minibatch(*map(rounded, result))


def transitions(random: np.random.Generator, config: Config) -> Transition:
    """A rollout whose episodes end in every way: terminated, truncated, both."""
    shape = config.num_steps, config.num_envs
    terminated, truncated = random.random(shape) < 0.2, random.random(shape) < 0.2
    terminated[0, :4] = False, True, False, True
    truncated[0, :4] = False, False, True, True
    batch = Transition(
        obs=random.normal(size=(*shape, OBSERVATION_SIZE)),
        action=random.uniform(BOX.low, BOX.high, (*shape, ACTION_SIZE)),
        reward=random.normal(size=shape),
        terminated=terminated,
        truncated=truncated,
        final_obs=random.normal(size=(*shape, OBSERVATION_SIZE)),
        episode_return=random.normal(size=shape),
        episode_length=random.integers(1, 100, size=shape).astype(np.int32),
    )
    return Transition(*map(rounded, batch))


def single_steps() -> list[Case]:
    """Initial and midway Adam states, with and without a policy update; small and large rewards."""
    random = np.random.default_rng(0)
    weights = networks(random)
    data = [minibatch(random), minibatch(random, error=10.0)]
    starts = [weights, *(midway(weights, random, count) for count in (6, 7))]
    return [Case(BASE, w, m) for w in starts for m in data]


def twenty_steps() -> tuple[Weights, list[Minibatch]]:
    """Weights and twenty minibatches with alternately small and large rewards."""
    random = np.random.default_rng(1)
    return networks(random), [minibatch(random, error=10.0 if i % 2 else 1.0) for i in range(20)]
