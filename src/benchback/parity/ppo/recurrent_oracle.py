"""PPO with a recurrent network in plain NumPy and float64: back-propagation through time, written by hand.

Policies, losses, advantages and Adam are those of `oracle.py`. As there, nothing but data types is imported from what
is checked. Memory is what the network remembers before an observation; `weights["memory"]` is that of the state.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchback.agent import Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch
from benchback.algorithms.ppo.recurrent.sequences import Rollout, Sequences
from benchback.parity.onpolicy import advantage
from benchback.parity.oracle import backward, clip_by_global_norm, episodes, forward, global_norm, widened
from benchback.parity.ppo.oracle import Metrics, adam, normalise_obs, normaliser, policy, scaled, surrogate, value_loss

# The network: an encoder, a cell with memory, and a head each for actor and critic.


class Seen(NamedTuple):
    """What the cell computed in a step, for the way back."""

    x: np.ndarray
    memory: np.ndarray
    reset: np.ndarray
    update: np.ndarray
    new: np.ndarray
    recalled: np.ndarray
    """What the reset gate multiplies: h K + b."""


def encoded(weights: Weights, obs: np.ndarray) -> np.ndarray:
    """The input of the cell: relu(obs K + b)."""
    return np.maximum(np.asarray(obs, float) @ weights["encoder/kernel"] + weights["encoder/bias"], 0)


def cell(weights: Weights, x: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, Seen]:
    """The next memory, which is the cell's output: with r and z sigmoids of sums of products of x and h,

    n = tanh(x K_n + b_n + r (h H_n + c)) and h' = (1 - z) n + z h (Cho et al. 2014, with the reset after the product).
    """
    from_x = np.split(x @ weights["gru/input/kernel"] + weights["gru/input/bias"], 3, axis=-1)
    from_memory = np.split(memory @ weights["gru/hidden/kernel"], 3, axis=-1)
    reset, update = (1 / (1 + np.exp(-(a + b))) for a, b in zip(from_x[:2], from_memory[:2], strict=True))
    recalled = from_memory[2] + weights["gru/bias_n"]
    new = np.tanh(from_x[2] + reset * recalled)
    return (1 - update) * new + update * memory, Seen(x, memory, reset, update, new, recalled)


def cell_backward(weights: Weights, seen: Seen, gradient: np.ndarray) -> tuple[Weights, np.ndarray, np.ndarray]:
    """Gradients of the cell's weights, of its input and of the memory before, given that of the memory after."""
    x, memory, reset, update, new, recalled = seen
    by_new = gradient * (1 - update) * (1 - new**2)
    by_update = gradient * (memory - new) * update * (1 - update)
    by_reset = by_new * recalled * reset * (1 - reset)
    by_recalled = by_new * reset
    of_x = np.concatenate([by_reset, by_update, by_new], -1)
    of_memory = np.concatenate([by_reset, by_update, by_recalled], -1)
    result = {
        "gru/input/kernel": x.T @ of_x,
        "gru/input/bias": of_x.sum(0),
        "gru/hidden/kernel": memory.T @ of_memory,
        "gru/bias_n": by_recalled.sum(0),
    }
    before = gradient * update + of_memory @ weights["gru/hidden/kernel"].T
    return result, of_x @ weights["gru/input/kernel"].T, before


def remembered(
    weights: Weights, obs: np.ndarray, done: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, list[Seen], np.ndarray]:
    """Outputs of the cell `[T, B, H]`, what it computed, and the memory after all steps; empty after each end."""
    outputs, seen = [], []
    for x, ended in zip(encoded(weights, obs), done, strict=True):
        output, computed = cell(weights, x, np.asarray(memory, float))
        outputs.append(output)
        seen.append(computed)
        memory = np.where(ended[:, None], 0.0, output)
    return np.array(outputs), seen, memory


def through_time(
    weights: Weights, obs: np.ndarray, done: np.ndarray, seen: list[Seen], gradient: np.ndarray
) -> Weights:
    """Gradients of cell and encoder, given those of the outputs `[T, B, H]`; none passes the end of an episode."""
    total = {name: np.zeros_like(x) for name, x in weights.items() if name.startswith(("encoder/", "gru/"))}
    later = np.zeros_like(gradient[0])
    for t in reversed(range(len(gradient))):
        later = np.where(done[t][:, None], 0.0, later)
        of_cell, of_x, later = cell_backward(weights, seen[t], gradient[t] + later)
        of_x = of_x * (seen[t].x > 0)
        rows = np.asarray(obs[t], float)
        for name, g in (of_cell | {"encoder/kernel": rows.T @ of_x, "encoder/bias": of_x.sum(0)}).items():
            total[name] += g
    return total


def head(weights: Weights, tower: str, outputs: np.ndarray) -> list[np.ndarray]:
    """Input of every layer of a head, then its output."""
    return forward(weights, tower, outputs, "relu")


def value(weights: Weights, outputs: np.ndarray) -> np.ndarray:
    """V, given the output of the cell."""
    return head(weights, "critic", outputs)[-1][..., 0]


def step(weights: Weights, obs: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Output of the cell for observations seen with this memory."""
    return cell(weights, encoded(weights, obs), memory)[0]


def greedy(weights: Weights, outputs: np.ndarray) -> np.ndarray:
    """The most probable action: argmax of the logits, or the mean."""
    output = head(weights, "actor", outputs)[-1]
    return output if "log_std" in weights else output.argmax(-1)


def sampled(weights: Weights, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The action sampled with this noise: argmax of logits and Gumbel noise, or mean and std times normal noise."""
    output = head(weights, "actor", outputs)[-1]
    return output + np.exp(weights["log_std"]) * noise if "log_std" in weights else (output + noise).argmax(-1)


def log_prob(weights: Weights, outputs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """log pi(action), given the output of the cell, `[T, B]`."""
    rows = outputs.reshape(-1, outputs.shape[-1])
    flat = np.asarray(action).reshape(len(rows), *action.shape[2:])
    return policy(weights, head(weights, "actor", rows)[-1], flat)[0].reshape(outputs.shape[:2])


# The objective and its gradient.


def objective(weights: Weights, sequences: Sequences, config: Config) -> tuple[Metrics, Weights]:
    """Metrics of the loss and its gradient before clipping."""
    outputs, seen, _ = remembered(weights, sequences.obs, sequences.done, sequences.memory)
    rows = Minibatch(*(x.reshape(-1, *x.shape[2:]) for x in sequences[:6]))
    flat = outputs.reshape(-1, outputs.shape[-1])
    actor, critic = (head(weights, tower, flat) for tower in ("actor", "critic"))
    log_prob, entropy, slopes = policy(weights, actor[-1], rows.action)
    log_ratio = log_prob - rows.log_prob

    policy_part, policy_slope = surrogate(log_ratio, rows.advantage, config)
    value_part, value_slope = value_loss(critic[-1][:, 0], rows, config)

    actor_slope, of_rest = slopes(policy_slope, -config.entropy_coefficient)
    of_actor, by_actor = backward(weights, "actor", actor, actor_slope, "relu")
    value_slope = config.value_coefficient * value_slope[:, None]
    of_critic, by_critic = backward(weights, "critic", critic, value_slope, "relu")
    of_outputs = (by_actor + by_critic).reshape(outputs.shape)
    of_cell = through_time(weights, sequences.obs, sequences.done, seen, of_outputs)
    gradient = of_actor | of_critic | of_rest | of_cell
    return {
        "loss": policy_part + config.value_coefficient * value_part - config.entropy_coefficient * entropy,
        "policy_loss": policy_part,
        "value_loss": value_part,
        "entropy": entropy,
        "approximate_kl": (np.exp(log_ratio) - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(np.exp(log_ratio) - 1) > config.clip).mean(),
        "grad_norm": global_norm(gradient),
    }, gradient


def learn(weights: Weights, sequences: Sequences, config: Config) -> tuple[Weights, Metrics]:
    """Weights and Adam's state after one gradient step, and the metrics of the loss."""
    metrics, gradient = objective(weights, Sequences(*map(widened, sequences)), config)
    return adam(weights, clip_by_global_norm(gradient, config.max_grad_norm), config), metrics


# The whole update.


def update(
    weights: Weights,
    batch: Rollout,
    last_obs: np.ndarray,
    config: Config,
    order: Iterable[np.ndarray],
    before: Sequence[Transition] = (),
) -> tuple[Weights, Metrics]:
    """Weights after one gradient step on each set of environments in `order`, mean metrics, and those of episodes.

    `weights["memory"]` is the memory after the rollout; `before` are the rollouts of the normaliser statistics.
    """
    memory = weights["memory"]
    raw = steps = Transition(*map(widened, batch.steps))
    obs, reward = normalise_obs(weights, steps.obs), scaled(weights, steps.reward)
    steps = steps._replace(obs=obs, reward=reward)
    last_value = value(weights, step(weights, normalise_obs(weights, last_obs), memory))
    estimate = advantage(steps, last_value, config)
    done = steps.terminated | steps.truncated
    given = steps.obs, steps.action, steps.log_prob, steps.value, estimate, estimate + steps.value, done
    history = []
    for index in order:
        sequences = Sequences(*(x[:, index] for x in given), memory=widened(batch.memory)[index])
        weights, metrics = learn(weights, sequences, config)
        history.append(metrics)
    mean = {name: float(np.mean([metrics[name] for metrics in history])) for name in history[0]}
    return weights | normaliser([*before, raw], config) | {"memory": memory}, mean | episodes(steps)
