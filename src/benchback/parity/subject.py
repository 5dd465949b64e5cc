"""A backend under test, used only through the Agent interface."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import numpy as np

from benchback import registry
from benchback.agent import Agent, Backend, Gradients
from benchback.backends import xla
from benchback.parity import environment

CHUNK = 2
"""Iterations of a chunk: more than one, and more than one chunk in the iterations that are compared."""


@contextmanager
def computing(dtype: str, *, optimised: bool) -> Iterator[None]:
    """Context in which JAX computes in `dtype`, and compiles with or without LLVM's optimiser.

    The optimiser takes most of the compile time and does not change what is computed.
    """
    with xla.optimising(optimised), jax.enable_x64(dtype == "float64"):
        yield


@dataclass(frozen=True)
class Subject:
    """One algorithm in one backend at one precision, executed in one mode and unit."""

    algorithm: str
    backend: str
    dtype: str
    agents: dict[tuple[Any, ...], Agent]
    """Cache of agents by backend, execution, configuration and kind of actions: levels share compiled programs."""
    mode: str = "none"
    unit: str = "phase"
    gradients: Gradients = "framework"
    thorough: bool = True
    """All cases; otherwise those that one configuration covers, so that each program is compiled once."""
    network: str = "mlp"
    """Kind of network, where the algorithm offers a choice."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields in which the cases differ from their configurations, e.g. another surrogate."""

    @property
    def spec(self) -> registry.Spec:
        """The registry entry of the backend."""
        return registry.BACKENDS[self.backend]

    def plain(self, config: Any, kind: Literal["discrete", "box"] = "discrete") -> Agent:
        """An agent in the parity environment, as its implementation makes it."""
        known = self.backend, self.gradients, config, kind
        if known not in self.agents:
            make, _ = registry.load(self.algorithm, self.backend, self.gradients)
            env = environment.make(config.num_envs, self.spec.family, kind, self.network)
            self.agents[known] = make(self.configured(config), env)
        return self.agents[known]

    def chosen(self, config: Any) -> Any:
        """The configuration of a case with the options under test."""
        return replace(config, **self.options)

    def configured(self, config: Any) -> Any:
        """The configuration at the precision and with the network under test."""
        chosen = {"dtype": self.dtype, "network": self.network}
        return replace(config, **{name: x for name, x in chosen.items() if hasattr(config, name)})

    def agent(self, config: Any, kind: Literal["discrete", "box"] = "discrete") -> Agent:
        """The agent in the mode and unit under test."""
        known = self.backend, self.gradients, config, kind, self.mode, self.unit
        if known not in self.agents:
            self.agents[known] = self.execute(self.plain(config, kind), self.mode, self.unit, CHUNK)
        return self.agents[known]

    @property
    def framework(self) -> Backend:
        """The backend itself."""
        return registry.load(self.algorithm, self.backend)[1]

    def execute(self, agent: Agent, mode: str, unit: str, length: int) -> Agent:
        """The agent in another mode and unit."""
        return registry.execute(agent, self.framework, mode, unit, length)

    def greedy(self, agent: Agent, state: Any, obs: np.ndarray) -> np.ndarray:
        """Greedy actions on first observations of episodes."""
        _, action = agent.act(state, agent.initial_memory(len(obs)), self.place(obs))
        return self.fetch({"action": action})["action"]

    def place(self, x: np.ndarray) -> Any:
        """The array on the device: floats in the precision under test, actions in the framework's type of integers."""
        if np.issubdtype(x.dtype, np.floating):
            x = x.astype(self.dtype)
        if self.spec.family == "jax":
            return jax.numpy.asarray(x)
        import torch

        torch.set_num_threads(1)
        return torch.tensor(x.astype(np.int64) if x.dtype == np.int32 else x)

    def place_all(self, record: Any) -> Any:
        """A record of arrays on the device, field by field."""
        return type(record)(*map(self.place, record))

    def fetch(self, tree: Any) -> Any:
        """A record or a mapping of arrays on the device as NumPy arrays."""
        return self.framework.fetch(dict(tree) if isinstance(tree, Mapping) else tree)
