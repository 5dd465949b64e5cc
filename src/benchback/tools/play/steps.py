"""Greedy rollouts without learning, in one environment, as a generator of steps."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchback import registry
from benchback.agent import Agent, Backend, State, Weights, network_of, start
from benchback.envs import Env
from benchback.runs import Run, environment
from benchback.training.evaluate import NOISE_STEPS


class Played(NamedTuple):
    """A step in a device environment."""

    inner: Any
    """The suite's own state before the step, of this one environment."""
    episode_return: float
    ended: bool


def played(run: Run, weights: Weights, seed: int) -> Iterator[Played]:
    """Steps of a device environment; the first episode is that of `evaluate` with one episode and this seed."""
    import jax

    agent, backend, env, state = _player(run, weights, seed)
    memory, env_step, env_state, t = agent.initial_memory(1), backend.compile(env.step), env.reset(env.random(seed)), 0
    while True:
        if t % NOISE_STEPS == 0:
            noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
        # A JAX environment served to torch keeps its state in JAX.
        inner = env_state.inner if run.framework == "jax" else env_state.inner.state.inner
        alone = jax.tree.map(lambda x: np.asarray(x)[0], inner)
        memory, action = agent.act(state, memory, env_state.obs)
        env_state, step = env_step(env_state, action, noise[t % NOISE_STEPS])
        found = backend.fetch({"done": step.terminated | step.truncated, "episode_return": step.episode_return})
        ended = bool(found["done"][0])
        memory = agent.initial_memory(1) if ended else memory
        yield Played(alone, float(found["episode_return"][0]), ended)
        t += 1


def chooser(run: Run, weights: Weights, seed: int) -> Callable[[np.ndarray, bool], np.ndarray]:
    """(observation, whether it is an episode's first) -> greedy action, for one environment stepped from Python."""
    agent, backend, _, state = _player(run, weights, seed)
    if run.framework == "jax":
        import jax.numpy as jnp

        place = jnp.asarray
    else:
        import torch

        place = torch.as_tensor
    memory: Any = ()

    def choose(obs: np.ndarray, first: bool) -> np.ndarray:
        nonlocal memory
        memory = agent.initial_memory(1) if first else memory
        memory, action = agent.act(state, memory, place(obs[None]))
        return np.asarray(backend.fetch({"action": action})["action"][0])

    return choose


def _player(run: Run, weights: Weights, seed: int) -> tuple[Agent, Backend, Env, State]:
    """The agent in one environment, compiled, and its state with the networks of `weights`."""
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    env = environment(run, 1)
    agent = backend.modes[run.compile_mode](make(run.config.for_evaluation(1), env))
    return agent, backend, env, start(agent, seed, network_of(weights, replay=False))
