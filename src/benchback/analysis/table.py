"""A store as tables: one pass over it, every run reduced to what the report needs. Nothing is left out silently."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchback import stats
from benchback.analysis.comparisons import (
    Group,
    Outcome,
    Setting,
    by_setting,
    comparable,
    grouped,
    outcome_of,
    parity_of,
    reference_variant,
)
from benchback.analysis.costs import stored_env_times
from benchback.measure.metrics import FIGURES
from benchback.measure.policy import accepted_attempt
from benchback.measure.record import Attempt, Cell, Slot
from benchback.measure.store import Event, Store
from benchback.registry import BACKENDS

WINDOWS = {"0": "0: start of the process to the end of iteration 0", "1:7": "1:7 warm-up", "7:": "7: settled"}
"""The windows of benchback-rl, under its names."""
PARTS = [*WINDOWS.values(), "rollout", "update"]


@dataclass(frozen=True)
class Sampled:
    """What the report keeps of a record: whole series as arrays, and the parts that are single numbers."""

    seconds: NDArray[np.float64]
    returns: NDArray[np.float64]
    """NaN where no episode ended."""
    memory: NDArray[np.float64]
    marks: Mapping[str, float]
    ledger: Mapping[str, Any]
    peaks: Mapping[str, float]
    compiles: NDArray[np.float64]
    segment: stats.Segment


@dataclass(frozen=True)
class Ran:
    """One slot of the schedule: what it is, and what it came to."""

    slot: Slot
    cell: Cell
    outcome: Outcome
    attempt: Attempt | None
    """The last one, or the one that speaks for the slot; without its record."""
    sampled: Sampled | None


@dataclass(frozen=True)
class Source:
    """All that a report is made of."""

    store: Store
    campaign: Mapping[str, Any]
    strata: tuple[Mapping[str, Any], ...]
    cells: Mapping[str, Cell]
    runs: tuple[Ran, ...]
    attempts: tuple[Attempt, ...]
    """Every attempt at every slot of the stratum, without records, in the order of the schedule."""
    events: tuple[Event, ...]
    canaries: tuple[Mapping[str, Any], ...]
    parity: Mapping[str, str]
    groups: tuple[Group, ...]
    seed: int
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
        algorithm, env, rest = group.title.split(" ", 2)
        several = len({cell.run["algorithm"] for cell in self.cells.values()}) > 1
        return f"{algorithm + ' ' if several else ''}{env.rpartition('/')[2]} {rest}"

    @cached_property
    def envs(self) -> list[str]:
        """Environments in order of mention."""
        return list(dict.fromkeys(env_of(cell) for cell in self.cells.values()))

    @cached_property
    def models(self) -> list[str]:
        """Models in order of mention, small ones first as studies list them."""
        return list(dict.fromkeys(model_of(cell) for cell in self.cells.values()))

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
    def references(self) -> dict[str, str]:
        """Whom the cells of each group are compared with."""
        parts = [part for _, part in comparable(self.groups)]
        return {group.cells[0].group: reference_variant(part) for part in parts for group in part}

    @cached_property
    def main(self) -> frozenset[str]:
        """Variants that at least half of the groups of their setting have; a study of modes has others in few cells."""
        found: set[str] = set()
        for groups in self.settings.values():
            names = [cell.variant for group in groups for cell in group.cells]
            most = max(map(names.count, names))
            found |= {name for name in names if 2 * names.count(name.rstrip("'")) >= most}
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
        figure = "rollout" if self._rollouts else "steady iteration"
        return f"the median {figure} of the reference with the smallest model, as a stand-in for its step time"

    @cached_property
    def _rollouts(self) -> bool:
        return any(isinstance(ran.outcome.figures["rollout"], float) for ran in self.runs)

    @cached_property
    def _stand_in(self) -> dict[str, float]:
        cost: dict[str, list[float]] = {}
        for ran in self.runs:
            value = ran.outcome.figures["rollout" if self._rollouts else "steady"]
            reference = ran.cell.variant == self.references[ran.cell.group]
            if isinstance(value, float) and reference and model_of(ran.cell) == self.models[0]:
                cost.setdefault(env_of(ran.cell), []).append(value)
        return {env: float(np.median(values)) for env, values in cost.items()}

    def place(self, cell: Cell) -> float:
        """Where a cell stands on the small axis of its variant: the model first, the cost of the environment within."""
        costs = {env: np.log(value) for env, value in self.complexity.items()}
        widest = max(costs.values(), default=0.0) or 1.0
        return self.models.index(model_of(cell)) + 0.15 + 0.7 * float(costs.get(env_of(cell), 0.0) / widest)

    def generator(self, *names: str) -> np.random.Generator:
        """Random numbers that depend on the seed and on what they are for, not on the order of use."""
        return np.random.default_rng([self.seed, *"/".join(names).encode()])


def env_of(cell: Cell) -> str:
    """The environment without its suite; where it is stepped is part of the variant."""
    return str(cell.run["env"]).rpartition("/")[2]


def model_of(cell: Cell) -> str:
    """The name of the model, or its layers."""
    hidden = cell.run["hidden_sizes"]
    return "x".join(map(str, hidden)) if hidden else str(cell.run["model"])


def read(
    store: Store, seed: int = 0, stratum: int | None = None, env_times: Mapping[str, float] | None = None
) -> Source:
    """The store's last stratum unless told otherwise, in one pass."""
    strata = tuple(store.strata())
    stratum = len(strata) - 1 if stratum is None else stratum
    cells = store.cells()
    runs, attempts = [], []
    outcomes: dict[str, dict[int, Outcome]] = {id: {} for id in cells}
    for slot in store.slots():
        if slot.stratum != stratum:
            continue
        tries = list(store.attempts(slot.id))
        ran = _ran(slot, cells[slot.cell], tries)
        runs.append(ran)
        attempts += [replace(x, record=None) for x in tries]
        outcomes[slot.cell][slot.block] = ran.outcome
    present = {id: cell for id, cell in cells.items() if outcomes[id]}
    events = tuple(store.events())
    return Source(
        store=store,
        campaign=store.campaign(),
        strata=strata,
        cells=present,
        runs=tuple(runs),
        attempts=tuple(attempts),
        events=events,
        canaries=tuple(x for x in store.canaries() if x.get("stratum", 0) == stratum),
        parity=parity_of(store),
        groups=tuple(grouped(present, outcomes)),
        seed=seed,
        env_times=env_times or stored_env_times(events),
    )


def _ran(slot: Slot, cell: Cell, tries: list[Attempt]) -> Ran:
    spoken = accepted_attempt(tries)
    last = spoken or (tries[-1] if tries else None)
    light = None if last is None else replace(last, record=None, log="")
    sampled = None if spoken is None or spoken.record is None else _sampled(spoken)
    return Ran(slot, cell, outcome_of(slot.block, tries), light, sampled)


def _sampled(attempt: Attempt) -> Sampled:
    record = attempt.record
    assert record is not None
    seconds = np.array(record.samples["total_s"], float)
    series = {
        name: np.array(record.samples.get(name, []), float) for name in ("episode_return", "rss_bytes", "compiles")
    }
    return Sampled(
        seconds=seconds,
        returns=series["episode_return"],
        memory=series["rss_bytes"],
        marks=record.marks,
        ledger=record.ledger,
        peaks=record.memory,
        compiles=series["compiles"],
        segment=stats.steady(seconds),
    )


def keys(cell: Cell) -> dict[str, Any]:
    """The columns by which every table can be filtered, and who the row is about."""
    shown = {
        "algorithm": str(cell.run["algorithm"]),
        "env": env_of(cell),
        "model": model_of(cell),
        "backend": str(cell.run["backend"]),
    }
    shown |= {"mode": str(cell.run["mode"]), "device": cell.device, "timing": cell.timing}
    return shown | {"variant": cell.variant, "unit": str(cell.run["unit"])}


def runs_table(source: Source) -> pl.DataFrame:
    """A row per slot, with every figure or the reason why there is none. Copies of an A/A pair are marked."""
    return frame([_run_row(source, ran) for ran in source.runs])


def _run_row(source: Source, ran: Ran) -> dict[str, Any]:
    row = keys(ran.cell) | {"run": ran.slot.id, "block": ran.slot.block, "order": ran.slot.order, "twin": ran.cell.twin}
    row["complexity"] = source.complexity.get(env_of(ran.cell))
    row["place"] = source.place(ran.cell)
    row["outcome"] = ran.attempt.outcome if ran.attempt else "not run"
    row["tags"] = " ".join(ran.attempt.tags) if ran.attempt else ""
    reasons = []
    for name in FIGURES:
        value = ran.outcome.figures[name]
        row[f"{name}_s"] = value if isinstance(value, float) else None
        if isinstance(value, str) and not value.startswith("phases are timed"):
            reasons.append(value)
    row |= _details(ran.sampled)
    row["reason"] = "; ".join(dict.fromkeys(reasons))
    return row


def _details(sampled: Sampled | None) -> dict[str, Any]:
    names = ("iteration_0_s", "warmup_s", "settled_s", "steady_start", "final_return", "peak_mb", "device_mb")
    if sampled is None:
        return dict.fromkeys(names)
    windows = stats.windows(sampled.seconds)
    known = sampled.returns[~np.isnan(sampled.returns)]
    device = sampled.peaks.get("peak_device_bytes")
    return {
        "iteration_0_s": sampled.marks["first_call"],
        "warmup_s": windows["1:7"],
        "settled_s": windows["7:"],
        "steady_start": sampled.segment.start if sampled.segment.found else None,
        "final_return": float(known[-1]) if len(known) else None,
        "peak_mb": sampled.peaks.get("peak_rss_bytes", np.nan) / 1e6,
        "device_mb": None if device is None else device / 1e6,
    }


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a table; NaN, which says nothing, is null."""
    if not rows:
        return pl.DataFrame()
    made = pl.DataFrame(rows, infer_schema_length=None)
    return made.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))


def by_cell(source: Source, twins: bool = False) -> Iterator[tuple[Cell, list[Ran]]]:
    """Every cell with its runs that have a result, in order of mention; copies of A/A pairs only if asked for."""
    found: dict[str, list[Ran]] = {}
    for ran in source.runs:
        if ran.sampled is not None:
            found.setdefault(ran.cell.id, []).append(ran)
    for id, cell in source.cells.items():
        if id in found and (twins or not cell.twin):
            yield cell, sorted(found[id], key=lambda ran: ran.slot.block)
