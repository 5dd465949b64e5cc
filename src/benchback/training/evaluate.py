"""Greedy evaluation: one episode in each of several environments, without learning."""

from typing import Any

import numpy as np

from benchback import registry
from benchback.agent import Agent, Backend, Weights, network_of, start
from benchback.envs import Env
from benchback.training.run import Run, environment

NOISE_STEPS = 128
"""Number of steps whose environment noise is drawn at once."""
MOST_STEPS = 100_000


def evaluate(run: Run, weights: Weights, episodes: int, seed: int = 0, max_steps: int = MOST_STEPS) -> np.ndarray:
    """Returns of the first episode in each of `episodes` environments, acting greedily; NaN where unfinished."""
    return Evaluator(run, episodes)(weights, seed, max_steps)


def greedy_agent(run: Run, num_envs: int) -> tuple[Agent, Backend, Env]:
    """The run's agent as it acts in `num_envs` environments, compiled, its backend and these environments."""
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    env = environment(run, num_envs)
    return backend.modes[run.compile_mode](make(run.config.for_evaluation(num_envs), env)), backend, env


class Evaluator:
    """Evaluates one set of weights after another with the same programs."""

    def __init__(self, run: Run, episodes: int):
        self.agent, self.backend, self.env = greedy_agent(run, episodes)
        self.env_step, self.state = self.backend.compile(self.env.step), None

    def __call__(self, weights: Weights, seed: int = 0, max_steps: int = MOST_STEPS) -> np.ndarray:
        """Returns of the first episode in each environment; NaN where unfinished."""
        agent, env, episodes = self.agent, self.env, self.env.num_envs
        state, memory = self._loaded(weights, seed), agent.initial_memory(episodes)
        env_state = env.reset(env.random(seed))
        returns, running = np.full(episodes, np.nan), np.ones(episodes, bool)
        for t in range(max_steps):
            if t % NOISE_STEPS == 0:
                noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
            memory, action = agent.act(state, memory, env_state.obs)
            env_state, step = self.env_step(env_state, action, noise[t % NOISE_STEPS])
            outcome = {"done": step.terminated | step.truncated, "episode_return": step.episode_return}
            outcome = self.backend.fetch(outcome)
            ended = running & outcome["done"].astype(bool)
            returns[ended] = outcome["episode_return"][ended]
            running &= ~ended
            if not running.any():
                break
        return returns

    def _loaded(self, weights: Weights, seed: int) -> Any:
        """The agent's state with these weights; it is created once, and `act` leaves it as it is."""
        given = network_of(weights, replay=False)
        self.state = start(self.agent, seed, given) if self.state is None else self.agent.load(self.state, given)
        return self.state
