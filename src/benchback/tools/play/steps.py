"""Greedy rollouts without learning, in one environment, as a generator of steps."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchback import registry
from benchback.agent import Agent, Backend, State, Weights, network_of, start
from benchback.envs import Env
from benchback.envs.interface import EnvState
from benchback.envs.wrappers.arrays import suite_state
from benchback.training.evaluate import NOISE_STEPS
from benchback.training.run import Run, environment


class Played(NamedTuple):
    """A step."""

    seen: Any
    """What was looked at before the step; by default the suite's own state of this one environment."""
    episode_return: float
    ended: bool


class Player(NamedTuple):
    """An agent in one environment, compiled."""

    agent: Agent
    backend: Backend
    env: Env
    state: State


def player(run: Run, weights: Weights, seed: int, render_mode: str | None = None) -> Player:
    """The agent in one environment, compiled, and its state with the networks of `weights`."""
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    env = environment(run, 1, render_mode)
    agent = backend.modes[run.compile_mode](make(run.config.for_evaluation(1), env))
    return Player(agent, backend, env, start(agent, seed, network_of(weights, replay=False)))


def played(playing: Player, seed: int, look: Callable[[EnvState], Any] | None = None) -> Iterator[Played]:
    """Steps without end; the first episode is that of `evaluate` with one episode and this seed."""
    agent, backend, env, state = playing
    look = look or suite_state_of_one
    memory, env_step, env_state, t = agent.initial_memory(1), backend.compile(env.step), env.reset(env.random(seed)), 0
    while True:
        if t % NOISE_STEPS == 0:
            noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
        seen = look(env_state)
        memory, action = agent.act(state, memory, env_state.obs)
        env_state, step = env_step(env_state, action, noise[t % NOISE_STEPS])
        found = backend.fetch({"done": step.terminated | step.truncated, "episode_return": step.episode_return})
        ended = bool(found["done"][0])
        memory = agent.initial_memory(1) if ended else memory
        yield Played(seen, float(found["episode_return"][0]), ended)
        t += 1


def suite_state_of_one(state: EnvState) -> Any:
    """The suite's own state of the first environment, in NumPy arrays."""
    import jax

    # A JAX environment served to torch keeps its state in JAX.
    inner = state.inner.state.inner if hasattr(state.inner, "to_weights") else state.inner
    return jax.tree.map(lambda x: np.asarray(x)[0], suite_state(inner))
