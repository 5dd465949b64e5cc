"""One stratum of a store in memory, and what follows from it about what is compared and shown in which order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchback import stats
from benchback.analysis.groups import (
    Group,
    Outcome,
    Setting,
    by_setting,
    comparable,
    env_of,
    model_of,
    original,
    reference_variant,
    work_title,
)
from benchback.measure.record import Attempt, Cell, Slot
from benchback.measure.store import Event, Store
from benchback.registry import BACKENDS

WINDOWS = {"0": "0: start of the process to the end of iteration 0", "1:7": "1:7 warm-up", "7:": "7: settled"}
"""The windows of benchback-rl, under its names."""
PARTS = [*WINDOWS.values(), "rollout", "update"]


@dataclass(frozen=True)
class Sampled:
    """What is kept of a record in memory: whole series as arrays, and the parts that are single numbers."""

    seconds: NDArray[np.float64]
    returns: NDArray[np.float64]
    """NaN where no episode ended."""
    memory: NDArray[np.float64]
    marks: Mapping[str, float]
    ledger: Mapping[str, Any]
    peaks: Mapping[str, float]
    compiles: NDArray[np.float64]
    segment: stats.Segment

    @property
    def start_s(self) -> float:
        """Seconds from starting the process to the end of its first call; NaN if it loaded compiled programs."""
        return np.nan if self.ledger.get("cached_files_before") else self.marks["first_call"]


@dataclass(frozen=True)
class SlotRun:
    """One slot of the schedule with its outcome."""

    slot: Slot
    cell: Cell
    outcome: Outcome
    attempt: Attempt | None
    """The accepted one, else the last one; without its record."""
    sampled: Sampled | None


@dataclass(frozen=True)
class Source:
    """One stratum of a store, read: what terminal, page and tables are made of."""

    store: Store
    campaign: Mapping[str, Any]
    strata: tuple[Mapping[str, Any], ...]
    cells: Mapping[str, Cell]
    runs: tuple[SlotRun, ...]
    attempts: tuple[Attempt, ...]
    """Every attempt at every slot of the stratum, without records, in the order of the schedule."""
    events: tuple[Event, ...]
    canaries: tuple[Mapping[str, Any], ...]
    parity: Mapping[str, str]
    groups: tuple[Group, ...]
    seed: int
    """Of the bootstrap intervals."""
    env_times: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a step of each environment without its suite, where they were timed."""

    @cached_property
    def settings(self) -> dict[Setting, list[Group]]:
        """Groups by what is never pooled, in order of mention."""
        return by_setting(self.groups)

    @cached_property
    def titles(self) -> dict[str, str]:
        """The work of each cell, for people, by its id."""
        return {cell.id: self.title(group) for group in self.groups for cell in group.cells}

    def title(self, group: Group) -> str:
        """The title of a group without the suite, which is part of the variant, and without the only algorithm."""
        several = len({cell.run["algorithm"] for cell in self.cells.values()}) > 1
        title = work_title(group.cells[0], algorithm=several, suite=False)
        return f"{title}, {group.amount}" if group.amount else title

    @cached_property
    def envs(self) -> list[str]:
        """Environments in order of mention."""
        return list(dict.fromkeys(env_of(cell) for cell in self.cells.values()))

    @cached_property
    def models(self) -> list[str]:
        """Models in order of mention, small ones first as studies list them."""
        return list(dict.fromkeys(model_of(cell) for cell in self.cells.values()))

    @cached_property
    def references(self) -> dict[str, str]:
        """The variant with which the cells of each group are compared."""
        parts = [part for _, part in comparable(self.groups)]
        return {group.cells[0].group: reference_variant(part) for part in parts for group in part}

    @cached_property
    def variants(self) -> list[str]:
        """Variants in order of mention."""
        return list(dict.fromkeys(cell.variant for cell in self.cells.values()))

    @cached_property
    def orders(self) -> dict[str, list[str]]:
        """Fields of charts whose values have an order: of mention, or from small and cheap to large and costly."""

        def size(group: Group) -> tuple[int, float]:
            cell = group.cells[0]
            return self.models.index(model_of(cell)), self.complexity.get(env_of(cell), 0.0)

        titles = [self.title(group) for group in sorted(self.groups, key=size)]
        return {"variant": self.variants, "backend": list(BACKENDS), "panel": titles, "part": PARTS}

    @cached_property
    def main(self) -> frozenset[str]:
        """Variants that at least half of the groups of their setting have; a study of modes has others in few cells."""
        found: set[str] = set()
        for groups in self.settings.values():
            cells = [cell for group in groups for cell in group.cells]
            names = [cell.variant for cell in cells]
            most = max(map(names.count, names))
            found |= {cell.variant for cell in cells if 2 * names.count(original(cell).variant) >= most}
        return frozenset(found)

    @cached_property
    def examples(self) -> frozenset[str]:
        """Groups whose lines are drawn before anything is chosen: smallest and largest model, cheapest and costliest
        environment of the first setting."""
        by_cost = sorted(self.envs, key=lambda env: self.complexity.get(env, 0.0))
        wanted = {(env, model) for env in by_cost[:1] + by_cost[-1:] for model in self.models[:1] + self.models[-1:]}
        found: dict[tuple[str, str], Group] = {}
        for group in next(iter(self.settings.values())):
            place = env_of(group.cells[0]), model_of(group.cells[0])
            if place in wanted and sum(cell.variant in self.main for cell in group.cells) > 1:
                found.setdefault(place, group)
        return frozenset(group.cells[0].group for group in found.values() or self.groups[:1])

    def place(self, cell: Cell) -> float:
        """Where a cell stands on the small axis of its variant: the model first, the cost of the environment within."""
        costs = {env: np.log(value) for env, value in self.complexity.items()}
        widest = max(costs.values(), default=0.0) or 1.0
        return self.models.index(model_of(cell)) + 0.15 + 0.7 * float(costs.get(env_of(cell), 0.0) / widest)

    @cached_property
    def complexity(self) -> dict[str, float]:
        """How costly an environment is, relative to the cheapest; see `complexity_from`."""
        found = {env: self.env_times[env] for env in self.envs if env in self.env_times} or self._stand_in
        cheapest = min(found.values(), default=1.0)
        return {env: found[env] / cheapest for env in self.envs if env in found}

    @property
    def complexity_from(self) -> str:
        """What the cost of an environment is taken from, for people."""
        if any(env in self.env_times for env in self.envs):
            return "seconds of a vectorised step (benchback envs time)"
        metric = "rollout" if self._rollouts else "steady iteration"
        return f"the median {metric} of the reference with the smallest model, as a stand-in for its step time"

    @cached_property
    def _rollouts(self) -> bool:
        return any(isinstance(run.outcome.metrics["rollout"], float) for run in self.runs)

    @cached_property
    def _stand_in(self) -> dict[str, float]:
        cost: dict[str, list[float]] = {}
        for run in self.runs:
            value = run.outcome.metrics["rollout" if self._rollouts else "steady"]
            reference = run.cell.variant == self.references[run.cell.group]
            if isinstance(value, float) and reference and model_of(run.cell) == self.models[0]:
                cost.setdefault(env_of(run.cell), []).append(value)
        return {env: float(np.median(values)) for env, values in cost.items()}

    def generator(self, *names: str) -> np.random.Generator:
        """Random numbers that depend on the seed and on what they are for, not on the order of use."""
        return np.random.default_rng([self.seed, *"/".join(names).encode()])
