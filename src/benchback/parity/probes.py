"""Probes: environments whose values and best actions are known, so that an agent must learn them.

They are run with the `PROBE` of an algorithm: a configuration that learns them in seconds. Convolutional networks are
shown the one number of an observation as an image.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

import numpy as np

from benchback import envs, registry
from benchback.agent import start
from benchback.parity.deviation import Deviation
from benchback.parity.environment import IMAGES
from benchback.parity.small import deepened
from benchback.parity.subject import Subject
from benchback.training import advance

TELLING = ("TwoStep", "ActionReward", "ObsTarget")
"""Later rewards, the choice of an action, and real-valued actions that depend on the observation."""


@dataclass(frozen=True)
class Learnt:
    """What a trained agent does and expects."""

    batch: Any
    greedy: np.ndarray


def learnt(algorithm: str, backend_name: str, probe: str, config: Any, mode: str) -> Learnt:
    """A last rollout, and greedy actions at its first observations, of an agent trained on a probe."""
    make, backend = registry.load(algorithm, backend_name)
    env = _environment(probe, config, registry.BACKENDS[backend_name].family)
    agent = registry.execute(make(config, env), backend, mode, "phase")
    state = start(agent, 0)
    for _ in range(config.num_iterations):
        state, _ = advance(agent, state)
    state, batch = agent.rollout(state)
    _, action = agent.act(state, agent.initial_memory(config.num_envs), batch.obs[0])
    return Learnt(backend.fetch(batch), backend.fetch({"action": action})["action"])


def _environment(probe: str, config: Any, framework: Literal["jax", "torch"]) -> envs.Env:
    image = IMAGES.get(getattr(config, "network", "mlp"))
    if image is None:
        return envs.make(f"probe/{probe}", config.num_envs, framework)
    env = _as_images(envs.make(f"probe/{probe}", config.num_envs, "jax"), image)
    return env if framework == "jax" else import_module("benchback.envs.bridge").to_torch(env)


def _as_images(env: envs.Env, shape: tuple[int, ...]) -> envs.Env:
    """The environment with images of one colour, the number that it shows."""
    import jax.numpy as jnp

    def image(obs: Any) -> Any:
        return jnp.broadcast_to(obs.reshape(-1, 1, 1, 1), (len(obs), *shape))

    def reset(key: Any) -> Any:
        state = env.reset(key)
        return state._replace(obs=image(state.obs))

    def step(state: Any, action: Any, noise: Any) -> Any:
        state, outcome = env.step(state._replace(obs=state.obs[:, 0, 0, :1]), action, noise)
        seen = {"obs": image(outcome.obs), "final_obs": image(outcome.final_obs)}
        return state._replace(obs=seen["obs"]), outcome._replace(**seen)

    return replace(env, observation_shape=shape, reset=reset, step=step)


def known_value(probe: str, obs: np.ndarray, gamma: float) -> np.ndarray:
    """The value of each observation under the best policy."""
    return {
        "OneStep": np.ones_like(obs),
        "TwoStep": np.where(obs == 0, gamma, 1.0),
        "ActionReward": np.ones_like(obs),
        "ObsReward": obs,
        "Truncated": np.full_like(obs, 1 / (1 - gamma)),
        "Target": np.zeros_like(obs),
        "ObsTarget": np.zeros_like(obs),
    }[probe]


def known_action(probe: str, obs: np.ndarray) -> np.ndarray | None:
    """The best action at each observation; None where any is as good."""
    return {"ActionReward": np.ones(len(obs)), "Target": np.full_like(obs, 0.5), "ObsTarget": 0.5 * obs}.get(probe)


def probe_config(algorithm: str) -> Any | None:
    """The configuration with which the algorithm learns probes; None if it has none."""
    if algorithm in registry.BUILT_IN_ALGORITHMS:
        return getattr(import_module(f"benchback.parity.{algorithm}.cases"), "PROBE", None)
    return getattr(registry.module_of(algorithm, "config"), "PROBE", None)


def probes(subject: Subject, chosen: Sequence[str] = TELLING) -> Iterator[Deviation]:
    """Largest deviation of values and greedy actions from the known ones, of the probes that fit the algorithm."""
    config = probe_config(subject.algorithm)
    if config is None:
        return
    config = deepened(config, subject.network)
    if subject.network in IMAGES:
        # An image of one colour moves all inputs of a layer together: fewer relus die with small steps and more units.
        slow = {"learning_rate": config.learning_rate / 20, "num_iterations": 8 * config.num_iterations}
        config = replace(config, hidden_sizes=(32,), **slow)
    for probe in chosen:
        if envs.kind(f"probe/{probe}") not in registry.ALGORITHMS[subject.algorithm].actions:
            continue
        if hasattr(config, "replay_capacity") and known_action(probe, np.zeros(1)) is None:
            continue  # rollouts for a replay have no values, so there would be nothing to compare
        found = learnt(subject.algorithm, subject.backend, probe, config, subject.mode)
        obs = found.batch.obs.astype(float)
        obs = obs[..., 0, 0, :1] if subject.network in IMAGES else obs
        if hasattr(found.batch, "value"):
            expected = known_value(probe, obs[..., 0], config.gamma)
            yield f"probe_value/{probe}", float(np.abs(found.batch.value - expected).max())
        if (best := known_action(probe, obs[0])) is not None:
            yield f"probe_action/{probe}", float(np.abs(found.greedy.astype(float) - best).max())
