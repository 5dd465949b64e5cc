"""Playing without learning: one environment, greedy actions, for as long as somebody asks for the next step."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchback import registry
from benchback.agent import Weights, network_of
from benchback.evaluate import NOISE_STEPS
from benchback.run import Run, environment


class Played(NamedTuple):
    """A step in an environment that lives in the program."""

    inner: Any
    """The suite's own state before the step, of this one environment."""
    episode_return: float
    ended: bool


def played(run: Run, weights: Weights, seed: int) -> Iterator[Played]:
    """Steps of a device environment; its first episode is that of `train.evaluate` with one episode and this seed."""
    import jax

    make, backend = registry.load(run.algorithm, run.backend)
    env = environment(run, 1)
    agent = make(run.config.for_evaluation(1), env)

    def play(state: Any, scene: Any) -> Any:
        env_state, noise = scene
        return env.step(env_state, agent.act(state, env_state.obs), noise)

    player = backend.modes[run.compile_mode](replace(agent, act=play))
    state = player.init(seed, network_of(weights, replay=False))
    env_state, t = env.reset(env.random(seed)), 0
    while True:
        if t % NOISE_STEPS == 0:
            noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
        # Served to torch, a JAX environment keeps its state to itself.
        inner = env_state.inner if run.framework == "jax" else env_state.inner.state.inner
        alone = jax.tree.map(lambda x: np.asarray(x)[0], inner)
        env_state, step = player.act(state, (env_state, noise[t % NOISE_STEPS]))
        found = backend.fetch({"done": step.terminated | step.truncated, "episode_return": step.episode_return})
        yield Played(alone, float(found["episode_return"][0]), bool(found["done"][0]))
        t += 1


def chooser(run: Run, weights: Weights, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """From one observation to the greedy action, for an environment that is stepped from Python."""
    make, backend = registry.load(run.algorithm, run.backend)
    agent = backend.modes[run.compile_mode](make(run.config.for_evaluation(1), environment(run, 1)))
    state = agent.init(seed, network_of(weights, replay=False))
    if run.framework == "jax":
        import jax.numpy as jnp

        place = jnp.asarray
    else:
        import torch

        place = torch.as_tensor
    return lambda obs: np.asarray(backend.fetch({"action": agent.act(state, place(obs[None]))})["action"][0])
