"""PPO's learning in plain NumPy and float64: the reference of every backend.

Written independently from the equations: gradients by hand, advantages by a loop per environment. It imports
only data types from the rest of the project (configuration and records), no computations. Random numbers are
arguments.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch
from benchback.parity import oracle
from benchback.parity.onpolicy import advantage
from benchback.parity.oracle import backward, clip_by_global_norm, episodes, forward, global_norm, summed, widened

Metrics = dict[str, float]


Slopes = Callable[[np.ndarray, float], tuple[np.ndarray, Weights]]
"""(dL/dlog_prob, dL/dentropy) -> gradient by the actor's output and by the other weights of the policy."""


def policy(weights: Weights, output: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, float, Slopes]:
    """log pi(action) and mean entropy, given the actor's output, and their derivatives."""
    if "log_std" in weights:
        return gaussian(output, weights["log_std"], action)
    return categorical(output, action)


def categorical(logits: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, float, Slopes]:
    """log p = logits - log sum exp logits, H = -sum p log p."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    p, chosen = np.exp(log_p), np.eye(log_p.shape[-1])[action]
    each = -(p * log_p).sum(-1, keepdims=True)

    def slopes(by_log_prob: np.ndarray, by_entropy: float) -> tuple[np.ndarray, Weights]:
        # By the logits: of log p(a) the indicator of a minus p, of H it is -p (log p + H).
        return by_log_prob[:, None] * (chosen - p) - by_entropy * p * (log_p + each) / len(p), {}

    return (log_p * chosen).sum(-1), each.mean(), slopes


def gaussian(mean: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, float, Slopes]:
    """log p = -sum (z^2 + log(2 pi)) / 2 + log sigma, z = (a - mu) / sigma; H = sum log sigma + log(2 pi e) / 2."""
    std = np.exp(log_std)
    z = (action - mean) / std

    def slopes(by_log_prob: np.ndarray, by_entropy: float) -> tuple[np.ndarray, Weights]:
        # Of log p: z / sigma by mu, z^2 - 1 by log sigma; of H: 1 by log sigma.
        return by_log_prob[:, None] * z / std, {"log_std": (by_log_prob[:, None] * (z**2 - 1)).sum(0) + by_entropy}

    log_prob = -(z**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(-1)
    return log_prob, float((log_std + np.log(2 * np.pi * np.e) / 2).sum()), slopes


def log_prob(weights: Weights, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """log pi(action | obs)."""
    return policy(weights, forward(weights, "actor", obs)[-1], np.asarray(action))[0]


def value(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """V(obs)."""
    return forward(weights, "critic", obs)[-1][..., 0]


def greedy(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """The most probable action: argmax of the logits, or the mean."""
    output = forward(weights, "actor", obs)[-1]
    return output if "log_std" in weights else output.argmax(-1)


def sampled(weights: Weights, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The action sampled with this noise: argmax of logits and Gumbel noise, or mean and std times normal noise."""
    output = forward(weights, "actor", obs)[-1]
    return output + np.exp(weights["log_std"]) * noise if "log_std" in weights else (output + noise).argmax(-1)


# The objective and its gradient.


def surrogate(log_ratio: np.ndarray, advantage: np.ndarray, config: Config) -> tuple[float, np.ndarray]:
    """-mean of the surrogate over the standardised A, and its derivative by log r."""
    advantage = (advantage - advantage.mean()) / (np.sqrt(((advantage - advantage.mean()) ** 2).mean()) + 1e-8)
    gain, slope = SURROGATES[config.surrogate](log_ratio, advantage, config)
    return -gain.mean(), -slope / len(log_ratio)


Gain = tuple[np.ndarray, np.ndarray]
"""What each sample contributes to the objective, and its derivative by log r."""


def clipped_gain(log_ratio: np.ndarray, advantage: np.ndarray, config: Config) -> Gain:
    """min(r A, clip(r) A)."""
    ratio = np.exp(log_ratio)
    free = ratio * advantage
    clipped = np.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage
    # Zero where the clipped branch is smaller; where both are equal, that of the unclipped one.
    return np.minimum(free, clipped), np.where(free <= clipped, free, 0)


def drift_gain(log_ratio: np.ndarray, advantage: np.ndarray, config: Config) -> Gain:
    """r A - relu(u - a tanh(u / a)), whose second term is zero unless u > 0, with derivative u' tanh(u / a)^2."""
    free = np.exp(log_ratio) * advantage
    gain, slope = free.copy(), free.copy()
    for i, a in enumerate(advantage):
        u, by_log_ratio, scale = (
            ((np.exp(log_ratio[i]) - 1) * a, np.exp(log_ratio[i]) * a, config.drift_alpha)
            if a >= 0
            else (log_ratio[i] * a, a, config.drift_beta)
        )
        if u > 0:
            gain[i] -= u - scale * np.tanh(u / scale)
            slope[i] -= by_log_ratio * np.tanh(u / scale) ** 2
    return gain, slope


def learned_gain(log_ratio: np.ndarray, advantage: np.ndarray, config: Config) -> Gain:
    """r A - relu(sum_j v_j relu(sum_f x_f K_fj) - 1e-6), a hidden unit after the other."""
    units = len(config.objective) // 9
    table = np.reshape(config.objective, (9, units))
    r, one = np.exp(log_ratio), np.ones_like(log_ratio)
    plain = [(r - 1, r), ((r - 1) ** 2, 2 * (r - 1) * r), (log_ratio, one), (log_ratio**2, 2 * log_ratio)]
    features = plain + [(x * advantage, slope * advantage) for x, slope in plain]
    total, total_slope = np.full_like(r, -1e-6), np.zeros_like(r)
    for j in range(units):
        inner = sum(table[f, j] * x for f, (x, _) in enumerate(features))
        inner_slope = sum(table[f, j] * slope for f, (_, slope) in enumerate(features))
        total += table[8, j] * np.where(inner > 0, inner, 0)
        total_slope += table[8, j] * np.where(inner > 0, inner_slope, 0)
    far = total > 0
    return r * advantage - np.where(far, total, 0), r * advantage - np.where(far, total_slope, 0)


SURROGATES: Mapping[str, Callable[[np.ndarray, np.ndarray, Config], Gain]] = {
    "clip": clipped_gain,
    "drift": drift_gain,
    "learned": learned_gain,
}


def value_loss(new: np.ndarray, minibatch: Minibatch, config: Config) -> tuple[float, np.ndarray]:
    """Half the mean of the larger squared error of clipped and unclipped V, and its derivative by V."""
    error = new - minibatch.target
    if not config.clip_value:
        return 0.5 * (error**2).mean(), error / len(new)
    clipped = np.clip(new, minibatch.value - config.clip, minibatch.value + config.clip) - minibatch.target
    slope = np.where(error**2 >= clipped**2, error, 0) / len(new)
    return 0.5 * np.maximum(error**2, clipped**2).mean(), slope


def objective(weights: Weights, minibatch: Minibatch, config: Config) -> tuple[Metrics, Weights]:
    """Metrics of the loss and its gradient before clipping."""
    actor, critic = (forward(weights, tower, minibatch.obs) for tower in ("actor", "critic"))
    log_prob, entropy, slopes = policy(weights, actor[-1], minibatch.action)
    log_ratio = log_prob - minibatch.log_prob

    policy_part, policy_slope = surrogate(log_ratio, minibatch.advantage, config)
    value_part, value_slope = value_loss(critic[-1][:, 0], minibatch, config)

    actor_slope, of_rest = slopes(policy_slope, -config.entropy_coefficient)
    of_actor, _ = backward(weights, "actor", actor, actor_slope)
    of_critic, _ = backward(weights, "critic", critic, config.value_coefficient * value_slope[:, None])
    gradient = summed(of_actor, of_critic) | of_rest
    return {
        "loss": policy_part + config.value_coefficient * value_part - config.entropy_coefficient * entropy,
        "policy_loss": policy_part,
        "value_loss": value_part,
        "entropy": entropy,
        "approximate_kl": (np.exp(log_ratio) - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(np.exp(log_ratio) - 1) > config.clip).mean(),
        "grad_norm": global_norm(gradient),
    }, gradient


# The optimiser.


def learning_rate(count: int, config: Config) -> float:
    """Learning rate of gradient step `count`: constant, or annealed to zero per iteration."""
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


# The whole update.


def update(
    weights: Weights,
    batch: Transition,
    last_obs: np.ndarray,
    config: Config,
    order: Iterable[np.ndarray],
    before: Sequence[Transition] = (),
) -> tuple[Weights, Metrics]:
    """Weights after one gradient step on each set of rows in `order`, mean metrics, and those of episodes.

    Rows are numbered time first: step t of environment e is row t x num_envs + e. `before` are the rollouts of
    the normaliser statistics in `weights`.
    """
    raw = batch = Transition(*map(widened, batch))
    last_obs, obs, reward = (
        normalise_obs(weights, last_obs),
        normalise_obs(weights, batch.obs),
        scaled(weights, batch.reward),
    )
    batch = batch._replace(obs=obs, reward=reward)
    estimate = advantage(batch, value(weights, last_obs), config)
    rows = Minibatch(batch.obs, batch.action, batch.log_prob, batch.value, estimate, estimate + batch.value)
    rows = Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in rows))
    history = []
    for index in order:
        weights, metrics = learn(weights, Minibatch(*(x[index] for x in rows)), config)
        history.append(metrics)
    mean = {name: float(np.mean([metrics[name] for metrics in history])) for name in history[0]}
    return weights | normaliser([*before, raw], config), mean | episodes(batch)


# Normalisation.


def nothing_seen(config: Config) -> Weights:
    """Initial statistics: mean 0 and variance 1, which change numbers by a relative 5e-9 only."""
    result: Weights = {}
    if config.normalise_obs:
        result |= {"normaliser/obs/mean": np.zeros(()), "normaliser/obs/variance": np.ones(())}
    if config.normalise_reward:
        result |= {"normaliser/discounted_return/variance": np.ones(())}
    return result


def normalise_obs(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """Observations normalised by running mean and std, clipped to +-10."""
    if "normaliser/obs/mean" not in weights:
        return obs
    mean, variance = weights["normaliser/obs/mean"], weights["normaliser/obs/variance"]
    return np.clip((np.asarray(obs, float) - mean) / np.sqrt(variance + 1e-8), -10, 10)


def scaled(weights: Weights, reward: np.ndarray) -> np.ndarray:
    """Rewards divided by the std of the discounted return, clipped to +-10; not centred."""
    if "normaliser/discounted_return/variance" not in weights:
        return reward
    return np.clip(reward / np.sqrt(weights["normaliser/discounted_return/variance"] + 1e-8), -10, 10)


def normaliser(rollouts: Sequence[Transition], config: Config) -> Weights:
    """Normaliser statistics of all these rollouts, in their order."""
    result: Weights = {}
    if config.normalise_obs:
        obs = np.concatenate([batch.obs for batch in rollouts])
        result |= moments("normaliser/obs", obs.reshape(-1, obs.shape[-1]))
    if config.normalise_reward:
        found, ongoing = discounted_returns(rollouts, config.gamma)
        result |= moments("normaliser/discounted_return", found.ravel()) | {"normaliser/ongoing_return": ongoing}
    return result


def moments(section: str, rows: np.ndarray) -> Weights:
    """Count, mean and variance of each column, in two passes over all rows."""
    mean = np.asarray(rows, float).sum(0) / len(rows)
    variance = ((rows - mean) ** 2).sum(0) / len(rows)
    return {f"{section}/count": np.array(float(len(rows))), f"{section}/mean": mean, f"{section}/variance": variance}


def discounted_returns(rollouts: Sequence[Transition], gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """After each step, `[T, E]`: r_t + gamma r_{t-1} + ... back to the episode's start; and the one carried on."""
    reward, done = (
        np.concatenate(x) for x in zip(*((b.reward, b.terminated | b.truncated) for b in rollouts), strict=True)
    )
    result, ongoing = np.zeros(reward.shape), np.zeros(reward.shape[1])
    for t, e in np.ndindex(reward.shape):
        result[t, e] = reward[t, e] + gamma * ongoing[e]
        ongoing[e] = 0.0 if done[t, e] else result[t, e]
    return result, ongoing
