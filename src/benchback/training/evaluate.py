"""Greedy evaluation: one episode in each of several environments, without learning."""

import numpy as np

from benchback import registry
from benchback.agent import Weights, network_of, start
from benchback.runs import Run, environment

NOISE_STEPS = 128
"""Number of steps whose environment noise is drawn at once."""


def evaluate(run: Run, weights: Weights, episodes: int, seed: int = 0, max_steps: int = 100_000) -> np.ndarray:
    """Returns of the first episode in each of `episodes` environments, acting greedily; NaN where unfinished."""
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    env = environment(run, episodes)
    agent = backend.modes[run.compile_mode](make(run.config.for_evaluation(episodes), env))
    state, memory = start(agent, seed, network_of(weights, replay=False)), agent.initial_memory(episodes)
    env_step, env_state = backend.compile(env.step), env.reset(env.random(seed))
    returns, running = np.full(episodes, np.nan), np.ones(episodes, bool)
    for t in range(max_steps):
        if t % NOISE_STEPS == 0:
            noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
        memory, action = agent.act(state, memory, env_state.obs)
        env_state, step = env_step(env_state, action, noise[t % NOISE_STEPS])
        outcome = {"done": step.terminated | step.truncated, "episode_return": step.episode_return}
        outcome = backend.fetch(outcome)
        ended = running & outcome["done"].astype(bool)
        returns[ended] = outcome["episode_return"][ended]
        running &= ~ended
        if not running.any():
            break
    return returns
