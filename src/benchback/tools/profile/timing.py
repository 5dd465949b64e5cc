"""Synchronised times of whole iterations and of their two phases."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchback import registry
from benchback.agent import Agent, Backend, start
from benchback.tools.profile.plan import ProfilePlan
from benchback.training import advance
from benchback.training.run import environment

CALLS_TO_SETTLE = 2


@dataclass(frozen=True)
class Times:
    """Seconds of an iteration, medians."""

    whole_s: float
    """Rollout, update and reading the metrics, as the run is executed."""
    rollout_s: float
    update_s: float
    returned_s: float
    """Until the calls of one iteration have returned, whether the device is done or not."""
    transfer_s: float
    """Reading the metrics, once they are computed."""


@dataclass(frozen=True)
class Steady:
    """A warmed-up agent, and the times of its iterations."""

    plain: Agent
    """The agent as implemented, nothing compiled."""
    phases: Agent
    """Compiled by the run's mode, rollout and update apart."""
    whole: Agent
    """Compiled by the run's mode, in its unit."""
    backend: Backend
    times: Times


def steady(plan: ProfilePlan) -> Steady:
    """The run's agent after warm-up, with the times of its iterations."""
    run = plan.run
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    plain = make(run.config, environment(run, run.config.num_envs))
    whole = registry.execute(plain, backend, run.compile_mode, run.unit, run.length)
    phases = whole if run.unit == "phase" else registry.execute(plain, backend, run.compile_mode, "phase")
    wholes, returns, transfers = _wholes(plan, whole, backend)
    rollouts, updates = _phases(plan, phases, backend)
    scale = 1 / run.length
    times = Times(*(statistics.median(x) for x in (wholes, rollouts, updates, returns, transfers)))
    times = Times(
        times.whole_s * scale, times.rollout_s, times.update_s, times.returned_s * scale, times.transfer_s * scale
    )
    return Steady(plain, phases, whole, backend, times)


def _wholes(plan: ProfilePlan, agent: Agent, backend: Backend) -> tuple[list[float], list[float], list[float]]:
    state = start(agent, plan.run.seed)
    wholes, returns, transfers = [], [], []
    for _ in range(plan.warmup + plan.iterations):
        started = time.perf_counter()
        state, metrics = advance(agent, state)
        returned = time.perf_counter()
        backend.block(metrics)
        computed = time.perf_counter()
        backend.fetch(metrics)
        ended = time.perf_counter()
        wholes.append(ended - started)
        returns.append(returned - started)
        transfers.append(ended - computed)
    return wholes[plan.warmup :], returns[plan.warmup :], transfers[plan.warmup :]


def _phases(plan: ProfilePlan, agent: Agent, backend: Backend) -> tuple[list[float], list[float]]:
    state = start(agent, plan.run.seed)
    rollouts, updates = [], []
    for _ in range(plan.warmup + plan.iterations):
        started = time.perf_counter()
        state, batch = agent.rollout(state)
        backend.block(batch)
        collected = time.perf_counter()
        state, metrics = agent.update(state, batch)
        backend.block(metrics)
        rollouts.append(collected - started)
        updates.append(time.perf_counter() - collected)
    return rollouts[plan.warmup :], updates[plan.warmup :]


def seconds(call: Callable[[], Any], backend: Backend, times: int) -> float:
    """Median seconds of a synchronised call, after warm-up."""
    found = []
    for _ in range(CALLS_TO_SETTLE + times):
        started = time.perf_counter()
        backend.block(call())
        found.append(time.perf_counter() - started)
    return statistics.median(found[CALLS_TO_SETTLE:])
