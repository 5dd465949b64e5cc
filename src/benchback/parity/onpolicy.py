"""Shared by the oracles of on-policy algorithms, in plain NumPy and float64: advantages.

Written from the equations, with a loop per environment. It imports only data types from the rest of the project, no
computations.
"""

from typing import Any

import numpy as np

from benchback.algorithms.onpolicy import Transition


def advantage(batch: Transition, last_value: np.ndarray, config: Any) -> np.ndarray:
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
