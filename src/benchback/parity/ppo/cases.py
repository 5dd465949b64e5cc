"""Test cases of PPO: configurations, weights, minibatches and a rollout that cover every branch.

float32 holds every number exactly, hyper-parameters included: both precisions and the oracle start from the
same values, and what deviates is the arithmetic.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch
from benchback.parity.cases import (
    as_bits,
    clear_images,
    ends_of_episodes,
    exact,
    layers,
    on_policy_rollout,
    random_kernels,
    rounded,
)
from benchback.parity.environment import ACTION_SIZE, LARGE, NUM_ACTIONS, observations
from benchback.parity.oracle import fresh_adam, parameters
from benchback.parity.ppo import oracle
from benchback.plugins.towers import TOWERS

BASE = Config(
    num_envs=8,
    num_steps=8,
    num_iterations=4,
    num_epochs=2,
    num_minibatches=1,
    hidden_sizes=(16, 16),
    learning_rate=2**-12,
    adam_beta1=1 - 2**-3,
    adam_beta2=1 - 2**-10,
    adam_epsilon=2**-17,
    max_grad_norm=0.5,
    gamma=1 - 2**-6,
    gae_lambda=1 - 2**-4,
    clip=0.1875,
    entropy_coefficient=2**-6,
    value_coefficient=0.5,
    drift_alpha=1.5,
    drift_beta=0.625,
)
"""One minibatch per epoch."""

PLAIN = replace(BASE, clip_value=False, anneal=False, truncation="terminal")
"""The other value of every option."""

MINIBATCHES = replace(BASE, num_steps=16, num_minibatches=2)
"""Several minibatches per epoch, each of the size of BASE's, so that both share compiled programs."""

TINY = replace(BASE, num_envs=4, num_steps=4, num_epochs=2, num_minibatches=2, hidden_sizes=(8,))
"""The smallest configuration with every feature: its cost is compilation."""

NORMALISED = replace(BASE, normalise_obs=True, normalise_reward=True, initial_log_std=-0.5)
NORMALISED_MINIBATCHES = replace(NORMALISED, num_steps=16, num_minibatches=2)
"""Normalised observations and rewards; tested with continuous actions."""

DRIFT = replace(BASE, surrogate="drift")
"""The drift of discovered policy optimisation."""

LEARNED = replace(
    BASE,
    surrogate="learned",
    objective=tuple(map(float, np.random.default_rng(9).normal(size=9 * 4).astype(np.float32))),
)
"""A drift by a network of four hidden units."""

OPTIONS = {
    "drift": {"surrogate": "drift"},
    "learned": {"surrogate": "learned", "objective": LEARNED.objective},
}
"""Name of an option in the proof of a cell -> fields of it."""

PROBE = Config(
    num_envs=8,
    num_steps=8,
    num_iterations=25,
    num_epochs=4,
    num_minibatches=2,
    hidden_sizes=(8,),
    learning_rate=0.02,
    gamma=0.5,
    clip=0.4,
    entropy_coefficient=0.0,
    initial_log_std=-1.0,
)
"""Learns environments whose values are known within seconds."""

Kind = Literal["discrete", "box"]


@dataclass(frozen=True)
class Case:
    """Inputs of one gradient step."""

    config: Config
    weights: Weights
    minibatch: Minibatch


def network(random: np.random.Generator, kind: Kind = "discrete", architecture: str = "mlp") -> Weights:
    """Weights with values and logits or means of order one, and an initial Adam state."""
    shared = architecture in TOWERS and TOWERS[architecture].shared
    weights = layers(random, "trunk", architecture, BASE.hidden) if shared else {}
    for tower, outputs in (("actor", NUM_ACTIONS if kind == "discrete" else ACTION_SIZE), ("critic", 1)):
        weights |= (
            random_kernels(random, tower, [(BASE.hidden[-1], outputs)])
            if shared
            else layers(random, tower, architecture, (*BASE.hidden, outputs))
        )
    if kind == "box":
        # So large that the environment clips many actions and the gradient by the means is small.
        weights["log_std"] = 1.25 + 0.2 * random.normal(size=ACTION_SIZE)
    return exact(weights | fresh_adam(weights))


def acquainted(weights: Weights, config: Config, random: np.random.Generator) -> tuple[Weights, list[Transition]]:
    """The weights with normaliser statistics of one rollout (if normalised), and that rollout."""
    if not (config.normalise_obs or config.normalise_reward):
        return weights, []
    before = [transitions(weights, config, random)]
    # Not rounded to float32: the comparison is of statistics over this rollout and the following ones.
    return weights | oracle.normaliser(before, config), before


def midway(weights: Weights, random: np.random.Generator) -> Weights:
    """The same network with an Adam state from the middle of training, with half the initial learning rate."""
    result = dict(weights)
    for name in parameters(weights):
        result[f"adam/mean/{name}"] = 0.01 * random.normal(size=weights[name].shape)
        result[f"adam/variance/{name}"] = 1e-4 * random.random(size=weights[name].shape)
    return exact(result) | {"adam/count": np.array(2 * BASE.updates_per_iteration + 1, np.int32)}


def sized(config: Config, architecture: str) -> Config:
    """The configuration with a quarter of the rows for a large network: its products are most of the work."""
    return replace(config, num_envs=4, num_steps=config.num_steps // 2) if architecture in LARGE else config


def near(
    weights: Weights,
    random: np.random.Generator,
    architecture: str = "mlp",
    now: Weights | None = None,
    *,
    error: float = 0.1,
) -> Minibatch:
    """Data as at the start of an update: ratios and values within the clipping range, a small gradient.

    Images are clear of the edges of relus with the weights `now`, by default the given ones. `error` is that of values.
    """
    return _minibatch(weights, random, _seen(now or weights, random, architecture), drift=0.05, error=error)


def far(
    weights: Weights, random: np.random.Generator, architecture: str = "mlp", now: Weights | None = None
) -> Minibatch:
    """Data of a distant policy: ratios and values clipped on both sides, gradient norm above the limit."""
    return _minibatch(weights, random, _seen(now or weights, random, architecture), drift=1.0, error=3.0)


def binary(weights: Weights, random: np.random.Generator, architecture: str = "mlp") -> Minibatch:
    """Bool observations, as in MinAtar."""
    return _minibatch(weights, random, _seen(weights, random, architecture, bits=True), drift=0.2, error=0.5)


def _seen(weights: Weights, random: np.random.Generator, architecture: str, *, bits: bool = False) -> np.ndarray:
    rows = sized(BASE, architecture).batch_size
    if architecture in TOWERS:
        return clear_images(random, rows, architecture, weights, ("actor", "critic"), bits=bits)
    obs = observations(random, (rows,), architecture)
    return as_bits(obs) if bits else obs


def _minibatch(
    weights: Weights, random: np.random.Generator, obs: np.ndarray, *, drift: float, error: float
) -> Minibatch:
    rows = len(obs)
    action = _action(weights, obs, random, (rows,))
    old_value = oracle.value(parameters(weights), obs) + drift * random.normal(size=rows)
    # Images are bright, so that values of all rows share their rounding; it would count sixty times where errors of
    # both signs cancel in the gradient.
    mean_error = 1.0 if obs.ndim == 4 else 0.0
    minibatch = Minibatch(
        obs=obs,
        action=action,
        log_prob=oracle.log_prob(parameters(weights), obs, action) + drift * random.normal(size=rows),
        value=old_value,
        advantage=random.normal(size=rows) + 0.5,
        target=old_value + error * (mean_error + random.normal(size=rows)),
    )
    return Minibatch(*map(rounded, minibatch))


def _action(weights: Weights, obs: np.ndarray, random: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
    """Uniform discrete actions; continuous actions sampled from the policy."""
    if "log_std" not in weights:
        return random.integers(NUM_ACTIONS, size=leading).astype(np.int32)
    mean = oracle.greedy(parameters(weights), oracle.normalise_obs(weights, obs))
    return mean + np.exp(weights["log_std"]) * random.normal(size=mean.shape)


def transitions(weights: Weights, config: Config, random: np.random.Generator, architecture: str = "mlp") -> Transition:
    """A rollout whose episodes end in every way: terminated, truncated, both, also on the last step."""
    shape = config.num_steps, config.num_envs
    obs = observations(random, shape, architecture)
    if architecture in TOWERS:
        images = clear_images(random, config.batch_size, architecture, weights, ("actor", "critic"))
        obs = images.reshape(obs.shape)
    if config.normalise_obs:
        obs = unlike_each_other(obs)
    action = _action(weights, obs, random, shape)
    ends = ends_of_episodes(random, shape)
    seen = oracle.normalise_obs(weights, obs)
    log_prob = oracle.log_prob(parameters(weights), seen, action)
    value = oracle.value(parameters(weights), seen)
    batch = on_policy_rollout(random, obs, action, log_prob, value, ends)
    if config.normalise_reward:
        batch = batch._replace(reward=0.5 * batch.reward - 1)
    if "normaliser/obs/mean" in weights:  # an outlier, so that clipping matters
        batch.obs[1, 2, 0], batch.reward[1, 2] = 100, -60
    return Transition(*map(rounded, batch))


def unlike_each_other(obs: np.ndarray) -> np.ndarray:
    """Features with different means and scales, environments with different means."""
    return obs * np.array([1, 4, 0.5, 2]) + np.array([2, -1, 0, 5]) + 0.5 * np.arange(obs.shape[1])[:, None]


def single_steps(kind: Kind = "discrete", architecture: str = "mlp") -> list[Case]:
    """Every kind of minibatch, initial and midway Adam states, both values of the options.

    No option concerns actions: continuous ones are tested with one setting.
    """
    random = np.random.default_rng(0)
    weights = network(random, kind, architecture)
    data = [make(weights, random, architecture) for make in (near, far, binary)]
    starts = [(weights, minibatch) for minibatch in data] + [(midway(weights, random), data[0])]
    configs = (BASE, PLAIN) if kind == "discrete" else (BASE,)
    return [Case(sized(config, architecture), *start) for config in configs for start in starts]


def steps_of_surrogate(config: Config) -> list[Case]:
    """Minibatches near and far, with rows whose ratio is 1 and rows whose advantage is 0 once standardised."""
    random = np.random.default_rng(4)
    weights = network(random)
    return [Case(config, weights, _with_edges(weights, make(weights, random))) for make in (near, far)]


def _with_edges(weights: Weights, minibatch: Minibatch) -> Minibatch:
    log_prob, advantage = minibatch.log_prob.copy(), minibatch.advantage.copy()
    log_prob[:4] = rounded(oracle.log_prob(parameters(weights), minibatch.obs, minibatch.action)[:4])
    # Whole numbers whose mean is a whole number: zero stays exactly zero in either precision.
    advantage[:] = np.resize(np.array([3, -2, 0, 1, -4, 2], np.float32), len(advantage))
    advantage[-1] -= advantage.sum() % len(advantage)
    advantage[:] = advantage - advantage.mean()
    return minibatch._replace(log_prob=log_prob, advantage=advantage)


def steps_of_one_program(architecture: str = "mlp") -> list[Case]:
    """The steps of one configuration with observations of one type, which one compiled program covers."""
    return [
        replace(case, config=sized(MINIBATCHES, architecture))
        for case in single_steps("discrete", architecture)
        if case.config == sized(BASE, architecture) and case.minibatch.obs.dtype != np.bool_
    ]


def twenty_steps(config: Config, kind: Kind = "discrete", architecture: str = "mlp") -> tuple[Weights, list[Minibatch]]:
    """Weights and twenty minibatches, alternately `near` and `far`, for gradient steps of this configuration."""
    random = np.random.default_rng(1)
    weights = now = network(random, kind, architecture)
    # Twenty roundings of the weights move the values of bright images by 3e-7, all the same way: of errors of 0.1 the
    # square would be off by 6e-6.
    closer = partial(near, error=0.4) if architecture in TOWERS else near
    minibatches = []
    for i in range(20):
        minibatches.append((far if i % 2 else closer)(weights, random, architecture, now))
        if architecture in TOWERS:
            now, _ = oracle.learn(now, minibatches[-1], config)
    return weights, minibatches
