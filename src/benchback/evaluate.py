"""Greedy evaluation: one episode in each of several environments, nothing learnt."""

from dataclasses import replace
from typing import Any

import numpy as np

from benchback import registry
from benchback.agent import Weights, network_of
from benchback.run import Run, environment

NOISE_STEPS = 128
"""Steps whose randomness an evaluation draws at once."""


def evaluate(run: Run, weights: Weights, episodes: int, seed: int = 0, max_steps: int = 100_000) -> np.ndarray:
    """Returns of the first episode in each of `episodes` environments, acting greedily; NaN where unfinished."""
    make, backend = registry.load(run.algorithm, run.backend)
    env = environment(run, episodes)
    agent = make(run.config.playing(episodes), env)

    def play(state: Any, scene: Any) -> Any:
        env_state, noise = scene
        return env.step(env_state, agent.act(state, env_state.obs), noise)

    # Compiled as one function, policy and environment together.
    player = backend.modes[run.compile_mode](replace(agent, act=play))
    state = player.init(seed, network_of(weights, replay=False))
    env_state = env.reset(env.random(seed))
    returns, running = np.full(episodes, np.nan), np.ones(episodes, bool)
    for t in range(max_steps):
        if t % NOISE_STEPS == 0:
            noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
        env_state, step = player.act(state, (env_state, noise[t % NOISE_STEPS]))
        outcome = {"done": step.terminated | step.truncated, "episode_return": step.episode_return}
        outcome = backend.fetch(outcome)
        ended = running & outcome["done"].astype(bool)
        returns[ended] = outcome["episode_return"][ended]
        running &= ~ended
        if not running.any():
            break
    return returns
