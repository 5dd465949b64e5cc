"""VPG's learning in plain NumPy and float64: the reference of every backend.

Written independently from the equations: gradients by hand, returns by a loop per environment. It imports only data
types from the rest of the project (configuration and records), no computations. Random numbers are arguments. The
policy is Gaussian if there is a weight `log_std`, else categorical.
"""

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.vpg.config import Config
from benchback.algorithms.vpg.loss import Minibatch
from benchback.parity import oracle
from benchback.parity.onpolicy import advantage
from benchback.parity.oracle import backward, episodes, forward, global_norm, widened

Metrics = dict[str, float]


def value(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """V(obs)."""
    return forward(weights, "critic", obs)[-1][..., 0]


def actor_output(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """The actor's output: logits, or means."""
    return forward(weights, "actor", obs)[-1]


def log_prob(weights: Weights, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """log pi(action | obs), the action as it was drawn."""
    if "log_std" not in weights:
        return np.take_along_axis(_log_softmax(actor_output(weights, obs)), np.asarray(action)[..., None], -1)[..., 0]
    std = np.exp(weights["log_std"])
    density = np.exp(-(((action - actor_output(weights, obs)) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
    return np.log(density).sum(-1)


def greedy(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """The most probable action."""
    out = actor_output(weights, obs)
    return out if "log_std" in weights else out.argmax(-1)


def sampled(weights: Weights, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The action sampled with this noise: argmax of logits and Gumbel noise, or mean and std times normal noise."""
    out = actor_output(weights, obs)
    return out + np.exp(weights["log_std"]) * noise if "log_std" in weights else (out + noise).argmax(-1)


def entropy(weights: Weights, obs: np.ndarray) -> float:
    """Mean over observations of -sum p log p, or of sum log(sigma sqrt(2 pi e))."""
    if "log_std" in weights:
        return float(np.log(np.exp(weights["log_std"]) * np.sqrt(2 * np.pi * np.e)).sum())
    log_p = _log_softmax(actor_output(weights, obs))
    return float(-(np.exp(log_p) * log_p).sum(-1).mean())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# The objectives and their gradients.


def policy_objective(weights: Weights, minibatch: Minibatch) -> tuple[float, Weights]:
    """-mean log pi(a | s) A over the standardised A, and its gradient."""
    estimate = minibatch.advantage
    deviation = np.sqrt(((estimate - estimate.mean()) ** 2).mean())
    standard = (estimate - estimate.mean()) / (deviation + 1e-8)
    loss = -(log_prob(weights, minibatch.obs, minibatch.action) * standard).mean()
    slope = -standard[:, None] / len(standard)

    layers = forward(weights, "actor", minibatch.obs)
    if "log_std" not in weights:
        # The derivative of log pi(a) by the logits is the indicator of a minus the probabilities.
        chosen = np.eye(layers[-1].shape[-1])[minibatch.action]
        gradient, _ = backward(weights, "actor", layers, slope * (chosen - np.exp(_log_softmax(layers[-1]))))
        return loss, gradient
    # By the mean it is z / sigma and by log sigma z^2 - 1, with z = (a - mu) / sigma.
    std = np.exp(weights["log_std"])
    z = (minibatch.action - layers[-1]) / std
    gradient, _ = backward(weights, "actor", layers, slope * z / std)
    return loss, gradient | {"log_std": (slope * (z**2 - 1)).sum(0)}


def value_objective(weights: Weights, minibatch: Minibatch) -> tuple[float, Weights]:
    """mean (V - R)^2, and its gradient."""
    layers = forward(weights, "critic", minibatch.obs)
    error = layers[-1] - minibatch.target[:, None]
    gradient, _ = backward(weights, "critic", layers, 2 * error / len(error))
    return float((error**2).mean()), gradient


# Gradient steps.


def policy_step(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Weights, Metrics]:
    """Weights and the policy's Adam state after one gradient step, and metrics."""
    loss, gradient = policy_objective(weights, minibatch)
    moved = weights | _adam(weights, gradient, "actor_adam", config.actor_learning_rate, config)
    log_ratio = log_prob(moved, minibatch.obs, minibatch.action) - minibatch.log_prob
    return moved, {
        "policy_loss": loss,
        "entropy": entropy(weights, minibatch.obs),
        "approximate_kl": float((np.exp(log_ratio) - 1 - log_ratio).mean()),
        "actor_grad_norm": global_norm(gradient),
    }


def value_step(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Weights, Metrics]:
    """Weights and the value function's Adam state after one gradient step, and metrics."""
    loss, gradient = value_objective(weights, minibatch)
    moved = weights | _adam(weights, gradient, "critic_adam", config.critic_learning_rate, config)
    return moved, {"value_loss": loss, "critic_grad_norm": global_norm(gradient)}


def _adam(weights: Weights, gradient: Weights, section: str, rate: float, config: Config) -> Weights:
    floats = {"beta1": config.adam_beta1, "beta2": config.adam_beta2, "epsilon": config.adam_epsilon}
    return oracle.adam(weights, gradient, rate=rate, section=section, **floats)


def learn(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Weights, Metrics]:
    """Weights and both Adam states after one gradient step of each, and metrics."""
    minibatch = Minibatch(*map(widened, minibatch))
    weights, of_policy = policy_step(weights, minibatch, config)
    weights, of_value = value_step(weights, minibatch, config)
    return weights, of_policy | of_value


# The whole update.


def rewards_to_go(batch: Transition, last_value: np.ndarray, config: Config) -> np.ndarray:
    """R_t = r_t + gamma R_{t+1} within an episode, environment by environment, backwards in time, `[T, E]`.

    Zero follows a termination; the value estimate follows a truncation and the end of the rollout.
    """
    num_steps, num_envs = np.shape(batch.reward)
    result = np.zeros((num_steps, num_envs))
    for e in range(num_envs):
        following = last_value[e]
        for t in reversed(range(num_steps)):
            if batch.terminated[t, e] or (batch.truncated[t, e] and config.truncation == "terminal"):
                following = 0.0
            elif batch.truncated[t, e]:
                following = batch.final_value[t, e]
            following = result[t, e] = batch.reward[t, e] + config.gamma * following
    return result


def update(weights: Weights, batch: Transition, last_obs: np.ndarray, config: Config) -> tuple[Weights, Metrics]:
    """Weights after one gradient step of the policy and all of the value function, and metrics.

    Metrics of the value function are means over its steps.
    """
    batch = Transition(*map(widened, batch))
    last_value = value(weights, last_obs)
    estimate, target = advantage(batch, last_value, config), rewards_to_go(batch, last_value, config)
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, estimate, target)
    rows = Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))
    weights, metrics = policy_step(weights, rows, config)
    history = []
    for _ in range(config.num_value_steps):
        weights, of_value = value_step(weights, rows, config)
        history.append(of_value)
    mean = {name: float(np.mean([entry[name] for entry in history])) for name in history[0]}
    return weights, metrics | mean | episodes(batch)
