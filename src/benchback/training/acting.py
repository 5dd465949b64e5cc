"""A trained agent outside of training: NumPy observations in, NumPy actions out; and its networks for use elsewhere."""

from typing import Any

import numpy as np

from benchback import registry
from benchback.agent import Role, Weights, network_of, start
from benchback.envs.interface import Box
from benchback.errors import InputError
from benchback.training.evaluate import greedy_agent
from benchback.training.run import Run, environment


class Actor:
    """Acts greedily; a network with a memory remembers what it was shown until `reset`."""

    def __init__(self, run: Run, weights: Weights):
        self.agent, self.backend, self.env = greedy_agent(run, 1)
        self.state = start(self.agent, 0, network_of(weights, replay=False))
        self.batch, self.memory = 0, None

    def reset(self) -> None:
        """Forget what was shown: a new episode begins."""
        self.batch = 0

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action for one observation, or those for a batch `[B, *O]`, within the bounds of the environment."""
        shape = self.env.observation_shape
        single = obs.shape == shape
        if not single and obs.shape[1:] != shape:
            raise InputError(f"obs has the shape {obs.shape}; {self.env.id} has {shape}, or [B, ...] of it for a batch")
        rows = obs[None] if single else obs
        if len(rows) != self.batch:  # the memory of another batch is of other episodes
            self.batch, self.memory = len(rows), self.agent.initial_memory(len(rows))
        self.memory, action = self.agent.act(self.state, self.memory, self.backend.put(rows))
        found = self._within_bounds(np.asarray(self.backend.fetch(action)))
        return np.asarray(found[0]) if single else found

    def _within_bounds(self, action: np.ndarray) -> np.ndarray:
        """The actions clipped as the environment would clip them."""
        actions = self.env.actions
        if not isinstance(actions, Box):
            return action
        return np.clip(action, np.asarray(actions.low, action.dtype), np.asarray(actions.high, action.dtype))


def parameters(run: Run, weights: Weights, framework: str) -> Any:
    """The online networks of the run as the framework's own parameters; `framework` is a backend, or its module."""
    backend_name = _backend(framework)
    flat = run.to_dict() | {"backend": backend_name, "mode": "best", "unit": "phase", "gradients": "framework"}
    suite, _, name = run.env.partition("/")
    if suite == "torch" and registry.BACKENDS[backend_name].family == "jax":
        flat["env"] = f"gymnax/{name}"  # its twin, of the same shapes
    other = Run.from_dict(flat)
    make, backend = registry.load(other.algorithm, other.backend)
    agent = make(other.config.for_evaluation(1), environment(other, 1))
    state = start(agent, 0, network_of(weights, replay=False))
    found = {name: getattr(state, name) for name, role in agent.roles.items() if role is Role.NETWORK}
    found = {name: backend.parameters(part) for name, part in found.items()}
    return found if len(found) > 1 else next(iter(found.values()))


def _backend(framework: str) -> str:
    """The backend of that name, or the only one of a module, e.g. `torch`."""
    of_module = [name for name, spec in registry.BACKENDS.items() if spec.module == framework]
    return of_module[0] if len(of_module) == 1 else registry.choose("framework", framework, registry.BACKENDS)
