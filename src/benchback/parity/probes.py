"""Probes: environments whose values and best actions are known, so that an agent must learn them.

They are run with the `PROBE` of an algorithm: a configuration that learns them in seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from benchback import envs, registry
from benchback.agent import start
from benchback.parity.deviation import Deviation
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
    env = envs.make(f"probe/{probe}", config.num_envs, registry.BACKENDS[backend_name].family)
    agent = registry.execute(make(config, env), backend, mode, "phase")
    state = start(agent, 0)
    for _ in range(config.num_iterations):
        state, _ = advance(agent, state)
    state, batch = agent.rollout(state)
    _, action = agent.act(state, agent.initial_memory(config.num_envs), batch.obs[0])
    return Learnt(backend.fetch(batch), backend.fetch({"action": action})["action"])


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
    for probe in chosen:
        if envs.kind(f"probe/{probe}") not in registry.ALGORITHMS[subject.algorithm].actions:
            continue
        found = learnt(subject.algorithm, subject.backend, probe, config, subject.mode)
        obs = found.batch.obs.astype(float)
        if hasattr(found.batch, "value"):
            expected = known_value(probe, obs[..., 0], config.gamma)
            yield f"probe_value/{probe}", float(np.abs(found.batch.value - expected).max())
        if (best := known_action(probe, obs[0])) is not None:
            yield f"probe_action/{probe}", float(np.abs(found.greedy.astype(float) - best).max())
