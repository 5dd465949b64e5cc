"""TD3's learning in plain NumPy and float64: the reference of every backend.

Written from the equations (Fujimoto et al. 2018; the pseudocode of Spinning Up): gradients by hand, the replay a loop
over rows. It imports only data types from the rest of the project (configuration and records), no computations. Random
numbers are arguments.
"""

from typing import NamedTuple

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.offpolicy import Experience, Transition
from benchback.algorithms.td3.config import Config
from benchback.algorithms.td3.loss import Minibatch
from benchback.envs.interface import Box
from benchback.parity import oracle
from benchback.parity.oracle import backward, forward, global_norm, of_towers, widened

Metrics = dict[str, float]
CRITICS = ("critic1", "critic2")


class Memory(NamedTuple):
    """A replay: its rows by index, and the number of inserted rows."""

    rows: dict[int, Experience]
    inserted: int


# Acting.


def half_range(bounds: Box) -> np.ndarray:
    """Half the range between the bounds."""
    return (np.array(bounds.high) - np.array(bounds.low)) / 2


def squashed(pre_tanh: np.ndarray, bounds: Box) -> np.ndarray:
    """The centre of the bounds + half their range x tanh(pre_tanh)."""
    return (np.array(bounds.high) + np.array(bounds.low)) / 2 + half_range(bounds) * np.tanh(pre_tanh)


def policy(weights: Weights, obs: np.ndarray, bounds: Box) -> np.ndarray:
    """mu(obs), `[*B, A]`."""
    return squashed(forward(weights, "actor", obs, "relu")[-1], bounds)


def explored(weights: Weights, obs: np.ndarray, normal: np.ndarray, bounds: Box, config: Config) -> np.ndarray:
    """mu(obs) + normal noise scaled by half the range, clipped to the bounds."""
    action = policy(weights, obs, bounds) + config.exploration_noise * half_range(bounds) * normal
    return np.clip(action, bounds.low, bounds.high)


# The objectives and their gradients.


def target(weights: Weights, minibatch: Minibatch, bounds: Box, config: Config) -> np.ndarray:
    """r + gamma (1 - terminated) min over both targets of Q(s', clip(mu_target(s') + clip(noise)))."""
    slow = {name.removeprefix("target/"): x for name, x in weights.items() if name.startswith("target/")}
    noise = np.clip(config.target_noise * minibatch.noise, -config.target_noise_clip, config.target_noise_clip)
    action = policy(slow, minibatch.next_obs, bounds) + half_range(bounds) * noise
    action = np.clip(action, bounds.low, bounds.high)
    following = [value(slow, tower, minibatch.next_obs, action) for tower in CRITICS]
    result = np.array(minibatch.reward, float)
    for i, ended in enumerate(minibatch.terminated):
        if not ended:
            result[i] += config.gamma * min(following[0][i], following[1][i])
    return result


def value(weights: Weights, tower: str, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Q(obs, action) by that critic."""
    return forward(weights, tower, np.concatenate([obs, action], -1), "relu")[-1][..., 0]


def critic_objective(weights: Weights, minibatch: Minibatch, td_target: np.ndarray) -> tuple[Metrics, Weights]:
    """Sum of both critics' mean squared errors and its gradient; the target is constant."""
    gradient, loss, mean = {}, 0.0, {}
    for tower in CRITICS:
        layers = forward(weights, tower, np.concatenate([minibatch.obs, minibatch.action], -1), "relu")
        error = layers[-1][:, 0] - td_target
        loss += (error**2).mean()
        gradient |= backward(weights, tower, layers, 2 * error[:, None] / len(error), "relu")[0]
        mean[tower] = layers[-1].mean()
    return {
        "critic_loss": loss,
        "value1": mean["critic1"],
        "value2": mean["critic2"],
        "critic_grad_norm": global_norm(gradient),
    }, gradient


def actor_objective(weights: Weights, obs: np.ndarray, bounds: Box) -> tuple[Metrics, Weights]:
    """-mean Q1(s, mu(s)) and its gradient by the actor's weights, through the first critic."""
    actor = forward(weights, "actor", obs, "relu")
    action = squashed(actor[-1], bounds)
    critic = forward(weights, "critic1", np.concatenate([obs, action], -1), "relu")
    slope = np.full((len(obs), 1), -1 / len(obs))
    by_action = backward(weights, "critic1", critic, slope, "relu")[1][:, obs.shape[-1] :]
    by_pre_tanh = by_action * half_range(bounds) * (1 - np.tanh(actor[-1]) ** 2)
    gradient, _ = backward(weights, "actor", actor, by_pre_tanh, "relu")
    return {"actor_loss": -critic[-1].mean(), "actor_grad_norm": global_norm(gradient)}, gradient


# One gradient step.


def learn(weights: Weights, minibatch: Minibatch, bounds: Box, config: Config) -> tuple[Weights, Metrics]:
    """Weights after one gradient step; policy and targets are updated every `policy_delay` steps only."""
    minibatch = Minibatch(*map(widened, minibatch))
    due = int(weights["critic_adam/count"]) % config.policy_delay == 0
    metrics, gradient = critic_objective(weights, minibatch, target(weights, minibatch, bounds, config))
    weights = weights | adam(weights, gradient, "critic", config)
    if due:
        delayed, gradient = actor_objective(weights, minibatch.obs, bounds)
        weights = weights | adam(weights, gradient, "actor", config)
        weights, metrics = weights | followed(weights, config), metrics | delayed
    return weights, metrics


def adam(weights: Weights, gradient: Weights, which: str, config: Config) -> Weights:
    """Weights and moments after one step of the Adam of the networks in `gradient`."""
    return oracle.adam(
        weights,
        gradient,
        rate=getattr(config, f"{which}_learning_rate"),
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
        section=f"{which}_adam",
    )


def followed(weights: Weights, config: Config) -> Weights:
    """Target networks after an update: polyak target + (1 - polyak) online."""
    online = of_towers(weights, ("actor", *CRITICS))
    return {
        f"target/{name}": config.polyak * weights[f"target/{name}"] + (1 - config.polyak) * x
        for name, x in online.items()
    }


# The replay and the whole update.


def remember(memory: Memory, batch: Transition, config: Config) -> Memory:
    """The replay after inserting a rollout, step by step and environment by environment; overwrites the oldest."""
    rows, inserted = dict(memory.rows), memory.inserted
    for t, e in np.ndindex(*np.shape(batch.reward)):
        over = batch.terminated[t, e] or (batch.truncated[t, e] and config.truncation == "terminal")
        place = inserted % config.replay_capacity
        rows[place] = Experience(batch.obs[t, e], batch.action[t, e], batch.reward[t, e], batch.final_obs[t, e], over)
        inserted += 1
    return Memory(rows, inserted)


def recalled(memory: Memory, places: np.ndarray, noise: np.ndarray) -> Minibatch:
    """Minibatch of the rows at these indices, with its noise."""
    rows = [memory.rows[int(place)] for place in places]
    obs, action, reward, next_obs, terminated = (np.array(column) for column in zip(*rows, strict=True))
    return Minibatch(obs, action, reward, next_obs, terminated, noise)


def update(
    weights: Weights, memory: Memory, places: np.ndarray, noise: np.ndarray, bounds: Box, config: Config
) -> tuple[Weights, Metrics]:
    """Weights after a gradient step on each row of `places`, `[U, B]`, with its own noise; mean metrics.

    No gradient steps, and no metrics, if the replay has too few rows.
    """
    history: list[Metrics] = []
    if memory.inserted >= config.update_after:
        for row, own_noise in zip(places, noise, strict=True):
            weights, metrics = learn(weights, recalled(memory, row, own_noise), bounds, config)
            history.append(metrics)
    names = {name for metrics in history for name in metrics}
    return weights, {name: float(np.mean([m[name] for m in history if name in m])) for name in names}


def episodes(batch: Transition) -> Metrics:
    """Mean return and length of the episodes that ended, and their number."""
    done = batch.terminated | batch.truncated
    return {
        "episode_return": float(batch.episode_return[done].mean()),
        "episode_length": float(batch.episode_length[done].mean()),
        "episodes": int(done.sum()),
    }
