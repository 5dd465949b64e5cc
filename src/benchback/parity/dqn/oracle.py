"""DQN's learning in plain NumPy and float64: the reference of every backend.

Written independently from the equations: gradients by hand, the replay a list of which the oldest rows are dropped.
It imports only data types from the rest of the project (configuration and records), no computations. Random numbers
are arguments.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.dqn.config import Config
from benchback.algorithms.dqn.loss import Minibatch
from benchback.algorithms.offpolicy import Transition
from benchback.parity import oracle
from benchback.parity.deviation import section
from benchback.parity.oracle import backward, forward, global_norm, parameters, widened

Metrics = dict[str, float]
Row = tuple[Any, ...]
"""One transition, field by field as in Minibatch."""


def values(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """Q(obs, .), `[..., A]`."""
    return forward(weights, "critic", obs, "relu")[-1]


def greedy(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """The action with the largest Q-value."""
    return values(weights, obs).argmax(-1)


def explored(weights: Weights, obs: np.ndarray, uniform: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """The greedy action, or the `other` where the uniform number is below `share`."""
    return np.where(uniform < share, other, greedy(weights, obs))


def td_target(weights: Weights, minibatch: Minibatch, config: Config) -> np.ndarray:
    """TD target of each row: r if terminated, else r + gamma Q'(s', a')."""
    slow = section(weights, "target/")
    result = np.zeros(len(minibatch.reward))
    for i, (reward, next_obs, terminated) in enumerate(
        zip(minibatch.reward, minibatch.next_obs, minibatch.terminated, strict=True)
    ):
        best = greedy(weights if config.double else slow, next_obs[None])[0]
        result[i] = reward if terminated else reward + config.gamma * values(slow, next_obs[None])[0, best]
    return result


def objective(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Metrics, Weights]:
    """Metrics of the loss and its gradient; the target is constant."""
    layers = forward(weights, "critic", minibatch.obs, "relu")
    one_hot = np.eye(layers[-1].shape[-1])[minibatch.action]
    value, target = (layers[-1] * one_hot).sum(-1), td_target(weights, minibatch, config)
    error = value - target
    gradient, _ = backward(weights, "critic", layers, 2 * error[:, None] * one_hot / len(error), "relu")
    return {
        "loss": (error**2).mean(),
        "value": value.mean(),
        "target": target.mean(),
        "grad_norm": global_norm(gradient),
    }, gradient


def learning_rate(count: int, config: Config) -> float:
    """Learning rate of gradient step `count`: constant, or annealed to zero over the iterations with gradient steps."""
    iterations = [i for i in range(1, config.num_iterations + 1) if i * config.batch_size >= config.learning_starts]
    done = count // config.num_updates if config.anneal else 0
    return config.learning_rate * (1 - done / max(1, len(iterations)))


def learn(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Weights, Metrics]:
    """Weights and Adam state after one gradient step (the target is unchanged), and metrics."""
    metrics, gradient = objective(weights, Minibatch(*map(widened, minibatch)), config)
    after = oracle.adam(
        weights,
        gradient,
        rate=learning_rate(int(weights["adam/count"]), config),
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
    )
    return weights | after, metrics


def update_target(weights: Weights, config: Config) -> Weights:
    """The weights after a target update with tau."""
    moved = {
        f"target/{name}": config.tau * x + (1 - config.tau) * weights[f"target/{name}"]
        for name, x in parameters(weights).items()
    }
    return weights | moved


def epsilon(inserted: int, config: Config) -> float:
    """Epsilon: linear from the first to the last value, then constant; or linear between knots."""
    steps = config.num_envs * config.num_steps * config.num_iterations
    if config.epsilons:
        return float(np.interp(inserted, np.linspace(0, steps, len(config.epsilons)), config.epsilons))
    duration = config.exploration_fraction * steps
    if inserted >= duration:
        return config.last_epsilon
    return config.first_epsilon + (config.last_epsilon - config.first_epsilon) * inserted / duration


def rows(batch: Transition, config: Config) -> list[Row]:
    """The transitions of a rollout in the order of insertion: step by step, environment by environment."""
    num_steps, num_envs = np.shape(batch.reward)
    result = []
    for t in range(num_steps):
        for e in range(num_envs):
            ended = batch.terminated[t, e] or (config.truncation == "terminal" and batch.truncated[t, e])
            result.append((batch.obs[t, e], batch.action[t, e], batch.reward[t, e], batch.final_obs[t, e], ended))
    return result


def ring(history: Sequence[Row], capacity: int) -> list[Row]:
    """Contents of a replay of that capacity after inserting `history`: row i is at index i % capacity."""
    start = max(0, len(history) - capacity)
    places = {i % capacity: history[i] for i in range(start, len(history))}
    return [places[place] for place in sorted(places)]


def update(
    weights: Weights, history: Sequence[Row], batch: Transition, config: Config, order: Iterable[np.ndarray]
) -> tuple[Weights, list[Row], Metrics]:
    """Weights, all inserted rows and metrics after an update; `order` has the rows of each gradient step."""
    share = epsilon(len(history), config)
    history = [*history, *rows(Transition(*map(widened, batch)), config)]
    held = ring(history, config.replay_capacity)
    losses = []
    if len(history) >= config.learning_starts:
        for index in order:
            minibatch = Minibatch(*(np.stack(column) for column in zip(*(held[i] for i in index), strict=True)))
            weights, metrics = learn(weights, minibatch, config)
            losses.append(metrics)
    before = len(history) - config.num_envs * config.num_steps
    if len(history) // config.target_every > before // config.target_every:
        weights = update_target(weights, config)
    names = ("loss", "value", "target", "grad_norm")
    mean = {name: float(np.mean([metrics[name] for metrics in losses])) if losses else np.nan for name in names}
    return weights, history, mean | {"epsilon": share} | oracle.episodes(batch)
