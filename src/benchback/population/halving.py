"""Successive halving of a population (Jamieson and Talwalkar 2016): points that lose at a rung are trained no further.

All members begin together. At each rung the best part of the points, by the mean return of their members, go on from
where they are, so the more promising a point the longer it is trained. States stay on the device: survivors are moved
to the front, and the program runs as many groups as there are survivors. That number is data, so one program serves
all rungs, and another one moves the members.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from benchback import training
from benchback.agent import Agent, Backend, State, Weights
from benchback.errors import InputError
from benchback.population.devices import ALL, mesh_of, place, spread
from benchback.population.folder import SEARCH, last_tenth
from benchback.population.members import Step, combine, compile_mode, for_group, member, partition, population, view
from benchback.population.memory import check_memory
from benchback.population.spec import Members
from benchback.population.summary import RANKED_BY, summarise
from benchback.population.training import Progress, hyper_of, keys_of, likely, plain, rows_first
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run

EARLIEST = 3
"""The first iteration that a rung may judge: in the very first one, all points act as they were initialised."""


@dataclass(frozen=True)
class Rung:
    """After so many iterations, so many points go on."""

    iteration: int
    points: int


def ladder(points: int, num_iterations: int, eta: int, length: int = 1) -> tuple[Rung, ...]:
    """Rungs at which one in `eta` points goes on, each `eta` times as late as the one before; the last has one left.

    Iterations are multiples of `length`, the iterations of a program call. Rungs that would coincide or come before
    anything can have been learnt are left out.
    """
    if eta < 2:
        raise InputError(f"--eta {eta} must be at least 2: one in so many points goes on")
    if points < 2:
        raise InputError(f"halving chooses between points, and there are {points}; choose --points 9 or more")
    count = math.ceil(math.log(points, eta) - 1e-9)
    rungs = [
        Rung(max(1, round(num_iterations / eta ** (count - k) / length)) * length, math.ceil(points / eta ** (k + 1)))
        for k in range(count)
    ]
    # Where two coincide, the later one decides.
    apart = [rung for rung, later in pairwise([*rungs, Rung(num_iterations, 1)]) if rung.iteration < later.iteration]
    found = tuple(rung for rung in apart if rung.iteration >= EARLIEST)
    if not found:
        raise InputError(f"{num_iterations} iterations are too few to halve {points} points; choose 9 or more")
    return found


@dataclass(frozen=True)
class _Plan:
    """What does not change while members are dropped."""

    run: Run
    rungs: Sequence[Rung]
    seeds: int
    group: int
    devices: int

    def slots(self, size: int) -> int:
        """Places on the devices: whole groups on each."""
        return -(-size // (self.group * self.devices)) * self.group * self.devices

    def groups(self, active: int) -> np.int32:
        """Groups of each device that are trained when so many members are."""
        return np.int32(-(-active // (self.group * self.devices)))

    def judged_by(self, iteration: int) -> Rung | None:
        """The rung that the returns of this iteration count for."""
        return next((r for r in self.rungs if r.iteration - last_tenth(r.iteration) < iteration <= r.iteration), None)


@dataclass
class _Standing:
    """Which members are still trained, where they are, and what they have returned in the window of the next rung."""

    order: np.ndarray
    """Slot on the device -> member; those from the number of members on are copies that fill the last group."""
    active: np.ndarray
    """Of each member: whether it is still trained."""
    total: np.ndarray
    count: np.ndarray
    """Of each member: sum and number of the returns that the next rung will judge."""

    @property
    def slot(self) -> np.ndarray:
        """Member -> slot."""
        return np.argsort(self.order)

    def by_member(self, metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Metrics by slot as metrics by member; NaN for those that are not trained."""
        slot = self.slot[: len(self.active)]
        return {name: np.where(self.active, x[:, slot].astype(float), np.nan) for name, x in metrics.items()}


def train_halving(
    run: Run,
    members: Members,
    *,
    rungs: Sequence[Rung],
    seeds: int,
    group: int | None = None,
    devices: int = 1,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Progress]:
    """Train as `train_members` does, and after each rung only the points that go on; metrics of others are NaN.

    Members p * seeds to (p + 1) * seeds - 1 are point p. In unit phase rollout and update are one program.
    """
    run = replace(run, unit="iteration") if run.unit == "phase" else run
    done = checkpoint.iteration if checkpoint else 0
    training.check_rest(run, done)
    plan = _Plan(run, rungs, seeds, group or likely(run, len(members), devices).group, devices)
    size, slots = len(members), plan.slots(len(members))
    agent, many, backend = _built(plan, slots)
    filled = np.minimum(np.arange(slots), size - 1)
    state = many.init(keys_of(agent, members)[filled], _filled(hyper_of(agent, members), filled))
    standing = _Standing(np.arange(slots), np.ones(size, bool), np.zeros(size), np.zeros(size))
    if checkpoint:
        weights = {name: x[filled] for name, x in training.transplantable(run, checkpoint).items()}
        state = many.load(state, weights)
        kept = (np.array(checkpoint.weights[SEARCH + name]) for name in ("active", "total", "count"))
        standing.active, standing.total, standing.count = kept
    return _loop(plan, agent, many, backend, state, standing, done)


def _filled(hyper: Any, filled: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[filled] if np.ndim(x) else x, hyper)


def _built(plan: _Plan, slots: int) -> tuple[Agent, Agent, Backend]:
    """The agent, and its population whose `iterate` takes the number of groups that are trained on each device."""
    run, (agent, backend) = plan.run, plain(plan.run)
    mode = compile_mode(backend, run.compile_mode)
    check_memory(agent, backend, unit=run.unit, size=slots, group=plan.group)
    single = view(backend.units[run.unit](agent, run.length), backend)
    assert single.iterate is not None
    step = leading(single, single.iterate, slots // plan.devices, plan.group)
    many = population(single, slots, plan.group)
    if plan.devices > 1:
        mesh = mesh_of(plan.devices)
        step, init, load = spread(single, step, mesh, ALL), many.init, many.load
        many = replace(
            many,
            init=lambda keys, hyper: place(single, init(keys, hyper), mesh),
            load=lambda state, weights: place(single, load(state, weights), mesh),
        )
    return single, mode(replace(many, iterate=step)), backend


def leading(agent: Agent, function: Step, size: int, group: int) -> Step:
    """`function` for the first groups of `size` members, as many as its argument says; others are left alone."""
    one_group = for_group(agent, function)

    def run(state: State, groups: Int[Array, ""]) -> tuple[State, Any]:
        before, members = partition(agent, state)
        shapes = jax.eval_shape(one_group, before, jax.tree.map(lambda x: x[:group], members), ())[2]
        results = jax.tree.map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), shapes)

        def next_group(place: Int[Array, ""], carry: Any) -> Any:
            chosen = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, place * group, group), carry[1])
            after, *new = one_group(before, chosen, ())
            put = partial(jax.tree.map, lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, place * group, 0))
            return after, *map(put, carry[1:], new)

        after, members, results = jax.lax.fori_loop(0, groups, next_group, (before, members, results))
        return combine(after, members), results

    return run


def _loop(
    plan: _Plan, agent: Agent, many: Agent, backend: Backend, state: Any, standing: _Standing, done: int
) -> Iterator[Progress]:
    advance, move = cast(Any, many.iterate), _mover(agent, plan.devices)
    while done < plan.run.config.num_iterations:
        compiles = backend.compiles()
        wanted = _front(standing.active, len(standing.order), plan.devices)
        if not np.array_equal(wanted, standing.order):
            state, standing.order = move(state, standing.slot[wanted]), wanted
        state, metrics = advance(state, plan.groups(int(standing.active.sum())))
        done += plan.run.length
        found = standing.by_member(rows_first(backend.fetch(metrics), len(standing.order)))
        _judge(plan, standing, found[RANKED_BY], done)
        yield Progress(
            iteration=done,
            rows=summarise(found),
            compiles=backend.compiles() - compiles,
            export=lambda state=state: _exported(many, state, standing),
            metrics=found,
            export_member=lambda index, state=state: agent.export(member(many, state, int(standing.slot[index]))),
        )


def _front(active: np.ndarray, slots: int, devices: int) -> np.ndarray:
    """Slot -> member, with those that are trained in front, dealt out to the devices in turn."""
    ranked = np.concatenate([np.flatnonzero(active), np.flatnonzero(~active), np.arange(len(active), slots)])
    return ranked.reshape(-1, devices).T.ravel()


def _mover(agent: Agent, devices: int) -> Callable[[State, np.ndarray], State]:
    """(state, slot to take each slot from) -> state, on the device."""

    def move(state: State, source: Int[Array, "S"]) -> State:
        counters, members = partition(agent, state)
        return combine(counters, jax.tree.map(lambda x: x[source], members))

    program = jax.jit(move, donate_argnums=0)
    if devices == 1:
        return program
    mesh = mesh_of(devices)
    return lambda state, source: place(agent, program(state, source), mesh)


def _judge(plan: _Plan, standing: _Standing, returns: np.ndarray, done: int) -> None:
    """Count the returns of a call for its rung; after the last iteration of a rung, the best points stay active."""
    for iteration, row in enumerate(returns, done - len(returns) + 1):
        if plan.judged_by(iteration):
            finite = np.isfinite(row)
            standing.total += np.where(finite, row, 0.0)
            standing.count += finite
    rung = next((rung for rung in plan.rungs if rung.iteration == done), None)
    if rung is not None:
        scores = np.where(standing.count, standing.total, np.nan) / np.maximum(standing.count, 1)
        standing.active = survivors(scores, standing.active, rung.points, plan.seeds)
        standing.total, standing.count = np.zeros_like(standing.total), np.zeros_like(standing.count)


def survivors(scores: np.ndarray, active: np.ndarray, points: int, seeds: int) -> np.ndarray:
    """Of each member whether its point is one of the best `points` by the mean over seeds; no return is the worst."""
    known = np.where(np.isfinite(scores) & active, scores, 0.0).reshape(-1, seeds).sum(axis=1)
    count = (np.isfinite(scores) & active).reshape(-1, seeds).sum(axis=1)
    mean = np.where(count, known / np.maximum(count, 1), -np.inf)
    # Points that were dropped before come after those without a return.
    order = np.lexsort((np.arange(len(mean)), -mean, ~active.reshape(-1, seeds).any(axis=1)))
    chosen = np.zeros(len(mean), bool)
    chosen[order[:points]] = True
    return chosen.repeat(seeds)


def _exported(many: Agent, state: State, standing: _Standing) -> Weights:
    """The states in the order of the members, and how they stand."""
    size = len(standing.active)
    weights = {name: x[standing.slot[:size]] for name, x in many.export(state).items()}
    kept = {"active": standing.active, "total": standing.total, "count": standing.count}
    return weights | {SEARCH + name: x.copy() for name, x in kept.items()}
