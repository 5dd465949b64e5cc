"""The program that a worker calls: one agent, or a population of agents that start with the same networks.

The agents of a population differ by their seeds, those of a search also in floats, which are data of the same program.

Importing this imports no framework; building a program does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchback import registry
from benchback.agent import Agent, Backend, State, Weights
from benchback.measure.record import Cell
from benchback.training.run import Run


@dataclass(frozen=True)
class Program:
    """An agent as it is called, and how the state of one agent is read and written."""

    agent: Agent
    members: int = 1
    group: int = 1
    """Members that run side by side."""
    single: Agent | None = None
    """The functions of one member; None where there is only one."""

    def load(self, state: State, networks: Weights) -> State:
        """An initial state with the given networks in every member; members then differ by their keys."""
        if self.single is None:
            return self.agent.load(state, networks)
        from benchback.population.members import member, with_networks

        # One by one, a thousand members would take longer to load than to compile.
        return with_networks(self.agent, state, self.single.load(member(self.agent, state, 0), networks))

    def weights(self, state: State) -> Weights:
        """The weights of one agent, of several those of the first."""
        if self.single is None:
            return self.agent.export(state)
        from benchback.population.members import member

        return self.single.export(member(self.agent, state, 0))

    def per_agent(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of a call as those of one agent: of several their means."""
        if self.single is None:
            return dict(metrics)
        return {name: mean_of_members(name, np.asarray(x, float)) for name, x in metrics.items()}


def build(agent: Agent, backend: Backend, run: Run, cell: Cell) -> Program:
    """The agent, or so many members of it in groups that fit the processor's cache, as the run executes it."""
    members = cell.members
    if members == 1:
        return Program(registry.execute(agent, backend, run.compile_mode, run.unit, run.length))
    from benchback.population.groups import likely_group
    from benchback.population.members import execute, view
    from benchback.population.memory import check_memory

    group = likely_group(agent, backend, members).group
    check_memory(agent, backend, unit=run.unit, size=members, group=group)
    many = execute(agent, backend, run.compile_mode, run.unit, run.length, size=members, group=group)
    single = view(agent, backend)
    return Program(varied(many, single, run, cell) if cell.vary else many, members, group, single)


def varied(many: Agent, single: Agent, run: Run, cell: Cell) -> Agent:
    """The population started as a search is: every point of the cell's grid with the same seeds."""
    from benchback.population.spec import grid_of
    from benchback.population.training import hyper_of, keys_of

    def key(seed: int) -> Any:
        return keys_of(single, grid_of(cell.vary, cell.members, replace(run, seed=seed)))

    return replace(many, key=key, hyper=hyper_of(single, grid_of(cell.vary, cell.members, run)))


def mean_of_members(metric: str, values: np.ndarray) -> np.ndarray:
    """The mean over the first axis. A member in which no episode ended has no return, and is left out of it."""
    known = ~np.isnan(values) if metric.startswith("episode_") else np.ones(values.shape, bool)
    count = known.sum(0)
    return np.where(count > 0, np.where(known, values, 0.0).sum(0) / np.maximum(count, 1), np.nan)
