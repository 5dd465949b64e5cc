"""PPO's learning in plain NumPy and float64: the specification that every backend is held against.

Written from the equations, slowly and apart: gradients by hand, advantages by a loop per environment. It
takes only data from the rest of the project (the configuration and the records), no line that computes.
Acting is left out: random streams belong to the frameworks.
"""

from collections.abc import Iterable

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch, Transition
from benchback.parity import oracle
from benchback.parity.oracle import backward, clip_by_global_norm, forward, global_norm, widened

Metrics = dict[str, float]


def policy(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """log pi(. | obs), `[B, A]`."""
    logits = forward(weights, "actor", obs)[-1]
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def log_prob(weights: Weights, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """log pi(action | obs)."""
    return np.take_along_axis(policy(weights, obs), np.asarray(action)[..., None], -1)[..., 0]


def value(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """V(obs)."""
    return forward(weights, "critic", obs)[-1][..., 0]


def greedy(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """The most probable action."""
    return policy(weights, obs).argmax(-1)


# The objective and its gradient.


def surrogate(log_ratio: np.ndarray, advantage: np.ndarray, config: Config) -> tuple[float, np.ndarray]:
    """-mean min(r A, clip(r) A) over the standardised A, and its derivative by log r."""
    advantage = (advantage - advantage.mean()) / (np.sqrt(((advantage - advantage.mean()) ** 2).mean()) + 1e-8)
    ratio = np.exp(log_ratio)
    free = ratio * advantage
    clipped = np.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage
    # Where the clipped branch is the smaller it is constant; where both agree it is the free one.
    slope = np.where(free <= clipped, -free, 0) / len(ratio)
    return -np.minimum(free, clipped).mean(), slope


def value_loss(new: np.ndarray, minibatch: Minibatch, config: Config) -> tuple[float, np.ndarray]:
    """Half the mean squared error, the worse of the free and the clipped V; and its derivative by V."""
    error = new - minibatch.target
    if not config.clip_value:
        return 0.5 * (error**2).mean(), error / len(new)
    clipped = np.clip(new, minibatch.value - config.clip, minibatch.value + config.clip) - minibatch.target
    slope = np.where(error**2 >= clipped**2, error, 0) / len(new)
    return 0.5 * np.maximum(error**2, clipped**2).mean(), slope


def entropy(log_p: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean of -sum p log p, and its derivative by the logits: -p (log p + H)."""
    p = np.exp(log_p)
    each = -(p * log_p).sum(-1, keepdims=True)
    return each.mean(), -p * (log_p + each) / len(p)


def objective(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Metrics, Weights]:
    """Every metric of the loss, and the loss's gradient before any clipping."""
    actor, critic = (forward(weights, tower, minibatch.obs) for tower in ("actor", "critic"))
    log_p = policy(weights, minibatch.obs)
    chosen = np.eye(log_p.shape[-1])[minibatch.action]
    log_ratio = (log_p * chosen).sum(-1) - minibatch.log_prob

    policy_part, policy_slope = surrogate(log_ratio, minibatch.advantage, config)
    value_part, value_slope = value_loss(critic[-1][:, 0], minibatch, config)
    entropy_part, entropy_slope = entropy(log_p)

    # The derivative of log pi(a) by the logits is the indicator of a minus the probabilities.
    logits_slope = policy_slope[:, None] * (chosen - np.exp(log_p)) - config.entropy_coefficient * entropy_slope
    of_actor, _ = backward(weights, "actor", actor, logits_slope)
    of_critic, _ = backward(weights, "critic", critic, config.value_coefficient * value_slope[:, None])
    gradient = of_actor | of_critic
    return {
        "loss": policy_part + config.value_coefficient * value_part - config.entropy_coefficient * entropy_part,
        "policy_loss": policy_part,
        "value_loss": value_part,
        "entropy": entropy_part,
        "approximate_kl": (np.exp(log_ratio) - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(np.exp(log_ratio) - 1) > config.clip).mean(),
        "grad_norm": global_norm(gradient),
    }, gradient


# The optimiser.


def learning_rate(count: int, config: Config) -> float:
    """Of gradient step `count`: constant, or one step down per iteration and zero after the last."""
    iteration = count // config.updates_per_iteration if config.anneal else 0
    return config.learning_rate * (1 - iteration / config.num_iterations)


def adam(weights: Weights, gradient: Weights, config: Config) -> Weights:
    """Weights and moments after one step of Adam."""
    return oracle.adam(
        weights,
        gradient,
        rate=learning_rate(int(weights["adam/count"]), config),
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
    )


def learn(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Weights, Metrics]:
    """Weights and Adam's state after one gradient step, and the metrics of the loss."""
    metrics, gradient = objective(weights, Minibatch(*map(widened, minibatch)), config)
    return adam(weights, clip_by_global_norm(gradient, config.max_grad_norm), config), metrics


# Advantages and the whole update.


def advantage(batch: Transition, last_value: np.ndarray, config: Config) -> np.ndarray:
    """Generalised advantage estimation, environment by environment, backwards in time, `[T, E]`.

    A_t = delta_t + gamma lambda A_{t+1} within an episode, delta_t = r_t + gamma V(s_{t+1}) - V(s_t), where
    V(s_{t+1}) is 0 after termination and the value of the final observation after truncation.
    """
    num_steps, num_envs = np.shape(batch.reward)
    result = np.zeros((num_steps, num_envs))
    for e in range(num_envs):
        following_value, following_advantage = last_value[e], 0.0
        for t in reversed(range(num_steps)):
            if batch.terminated[t, e] or (batch.truncated[t, e] and config.truncation == "terminal"):
                following_value, following_advantage = 0.0, 0.0
            elif batch.truncated[t, e]:
                following_value, following_advantage = batch.final_value[t, e], 0.0
            delta = batch.reward[t, e] + config.gamma * following_value - batch.value[t, e]
            result[t, e] = delta + config.gamma * config.gae_lambda * following_advantage
            following_value, following_advantage = batch.value[t, e], result[t, e]
    return result


def update(
    weights: Weights, batch: Transition, last_obs: np.ndarray, config: Config, order: Iterable[np.ndarray]
) -> tuple[Weights, Metrics]:
    """Weights after one gradient step on each set of rows in `order`, mean metrics, and those of episodes.

    Rows are numbered time first: step t of environment e is row t x num_envs + e.
    """
    batch = Transition(*map(widened, batch))
    estimate = advantage(batch, value(weights, last_obs), config)
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, batch.value, estimate, estimate + batch.value)
    rows = Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))
    history = []
    for index in order:
        weights, metrics = learn(weights, Minibatch(*(x[index] for x in rows)), config)
        history.append(metrics)
    mean = {name: float(np.mean([metrics[name] for metrics in history])) for name in history[0]}
    return weights, mean | oracle.episodes(batch)
