"""Test cases of PPO with a recurrent network: weights, sequences with ends of episodes inside them, and a rollout.

As in `cases.py`, float32 holds every number exactly.
"""

from dataclasses import dataclass, replace

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.recurrent.sequences import Rollout, Sequences
from benchback.parity.cases import ends_of_episodes, exact, on_policy_rollout, rounded
from benchback.parity.environment import ACTION_SIZE, NUM_ACTIONS, OBSERVATION_SIZE
from benchback.parity.oracle import fresh_adam, parameters
from benchback.parity.ppo import cases, oracle, recurrent_oracle
from benchback.parity.ppo.cases import Kind

WIDTH = 12
BASE = replace(cases.BASE, network="gru", hidden_sizes=(WIDTH,))
"""One minibatch per epoch."""
PLAIN = replace(cases.PLAIN, network="gru", hidden_sizes=(WIDTH,))
"""The other value of every option."""
MINIBATCHES = replace(BASE, num_minibatches=2)
"""Several minibatches per epoch, each of some environments."""
NORMALISED = replace(cases.NORMALISED, network="gru", hidden_sizes=(WIDTH,), num_minibatches=2)
"""Normalised observations and rewards; tested with continuous actions."""
TINY = replace(cases.TINY, network="gru")
"""The smallest configuration with every feature: its cost is compilation."""

STEPS, ENVS = BASE.num_steps, BASE.num_envs // 2
"""Sequences of a minibatch of MINIBATCHES; all of a given case have this shape, so that programs are shared."""


@dataclass(frozen=True)
class Case:
    """Inputs of one gradient step."""

    config: Config
    weights: Weights
    sequences: Sequences


def network(random: np.random.Generator, kind: Kind = "discrete") -> Weights:
    """Weights with values, logits or means and gates of order one, and an initial Adam state."""
    outputs = NUM_ACTIONS if kind == "discrete" else ACTION_SIZE
    weights = _dense(random, "encoder", OBSERVATION_SIZE, WIDTH)
    weights |= _dense(random, "gru/input", WIDTH, 3 * WIDTH)
    weights["gru/hidden/kernel"] = _dense(random, "gru", WIDTH, 3 * WIDTH)["gru/kernel"]
    weights["gru/bias_n"] = 0.5 * random.normal(size=WIDTH)
    for tower, last in (("actor", outputs), ("critic", 1)):
        weights |= _dense(random, f"{tower}/0", WIDTH, WIDTH) | _dense(random, f"{tower}/1", WIDTH, last)
    if kind == "box":
        # So large that the environment clips many actions and the gradient by the means is small.
        weights["log_std"] = 1.25 + 0.2 * random.normal(size=ACTION_SIZE)
    return exact(weights | fresh_adam(weights))


def _dense(random: np.random.Generator, name: str, inputs: int, outputs: int) -> Weights:
    kernel = 1.5 * random.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    return {f"{name}/kernel": kernel, f"{name}/bias": 0.1 * random.normal(size=outputs)}


def near(weights: Weights, random: np.random.Generator) -> Sequences:
    """Data as at the start of an update: ratios and values within the clipping range, a small gradient."""
    return _sequences(weights, random, drift=0.05, error=0.1)


def far(weights: Weights, random: np.random.Generator) -> Sequences:
    """Data of a distant policy: ratios and values clipped on both sides, gradient norm above the limit."""
    return _sequences(weights, random, drift=1.0, error=3.0)


def _sequences(weights: Weights, random: np.random.Generator, *, drift: float, error: float) -> Sequences:
    """Sequences that begin with a memory and in which episodes end at every place, the last step among them."""
    shape = STEPS, ENVS
    obs, memory = random.normal(size=(*shape, OBSERVATION_SIZE)), random.uniform(-1, 1, size=(ENVS, WIDTH))
    terminated, truncated = ends_of_episodes(random, shape)
    done = terminated | truncated
    outputs, _, _ = recurrent_oracle.remembered(parameters(weights), obs, done, memory)
    action = action_of(weights, outputs, random)
    old_value = recurrent_oracle.value(weights, outputs) + drift * random.normal(size=shape)
    sequences = Sequences(
        obs=obs,
        action=action,
        log_prob=recurrent_oracle.log_prob(weights, outputs, action) + drift * random.normal(size=shape),
        value=old_value,
        advantage=random.normal(size=shape) + 0.5,
        target=old_value + error * random.normal(size=shape),
        done=done,
        memory=memory,
    )
    return Sequences(*map(rounded, sequences))


def action_of(weights: Weights, outputs: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Uniform discrete actions; continuous actions sampled from the policy."""
    if "log_std" not in weights:
        return random.integers(NUM_ACTIONS, size=outputs.shape[:2]).astype(np.int32)
    mean = recurrent_oracle.greedy(weights, outputs)
    return mean + np.exp(weights["log_std"]) * random.normal(size=mean.shape)


def rollout(weights: Weights, config: Config, random: np.random.Generator) -> Rollout:
    """A rollout that begins with a memory and whose episodes end in every way, also on the last step."""
    shape = config.num_steps, config.num_envs
    obs = random.normal(size=(*shape, OBSERVATION_SIZE))
    if config.normalise_obs:
        obs = cases.unlike_each_other(obs)
    memory = random.uniform(-1, 1, size=(config.num_envs, WIDTH))
    ends = ends_of_episodes(random, shape)
    seen = oracle.normalise_obs(weights, obs)
    outputs, _, _ = recurrent_oracle.remembered(parameters(weights), seen, ends[0] | ends[1], memory)
    action = action_of(weights, outputs, random)
    log_prob = recurrent_oracle.log_prob(weights, outputs, action)
    value = recurrent_oracle.value(weights, outputs)
    batch = on_policy_rollout(random, obs, action, log_prob, value, ends)
    return Rollout(Transition(*map(rounded, batch)), rounded(memory))


def acquainted(weights: Weights, config: Config, random: np.random.Generator) -> tuple[Weights, list[Transition]]:
    """The weights with normaliser statistics of one rollout (if normalised), and that rollout."""
    if not (config.normalise_obs or config.normalise_reward):
        return weights, []
    before = [rollout(weights, config, random).steps]
    # Not rounded to float32: the comparison is of statistics over this rollout and the following ones.
    return weights | oracle.normaliser(before, config), before


def single_steps(kind: Kind = "discrete") -> list[Case]:
    """Every kind of sequences, initial and midway Adam states, both values of the options."""
    random = np.random.default_rng(0)
    weights = network(random, kind)
    data = [make(weights, random) for make in (near, far)]
    starts = [(weights, sequences) for sequences in data] + [(cases.midway(weights, random), data[0])]
    configs = (MINIBATCHES, PLAIN) if kind == "discrete" else (MINIBATCHES,)
    return [Case(config, *start) for config in configs for start in starts]


def twenty_steps(kind: Kind = "discrete") -> tuple[Weights, list[Sequences]]:
    """Weights and twenty sets of sequences, alternately `near` and `far`."""
    random = np.random.default_rng(1)
    weights = network(random, kind)
    return weights, [(far if i % 2 else near)(weights, random) for i in range(20)]
