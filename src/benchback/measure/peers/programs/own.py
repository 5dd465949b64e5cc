"""benchback's own backends, in their own virtual environment."""

import math
from types import SimpleNamespace
from typing import Any

from measuring import main, time_after_warm_up, time_twice  # pyright: ignore[reportMissingImports]

from benchback import envs
from benchback.agent import start
from benchback.measure.complexity import step_seconds
from benchback.training import advance
from benchback.training.run import Run, build

ELSEWHERE = ("brax", "gymnasium")
"""Suites of environments that a side's own suite does not have."""


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train with the backend, mode, unit, gradients and suite of `options` on the work."""
    run, agents = run_of(work, options), getattr(work, "agents", 1)
    agent, backend = build(run) if agents == 1 else build_many(run, agents)
    if run.unit == "chunk":

        def train(seed: int) -> Any:
            _, metrics = advance(agent, start(agent, seed))
            return backend.fetch(metrics)

        times, metrics = time_twice(train, work)
        returns = metrics["episode_return"].reshape(agents, -1)
        episode_return = math.fsum(last_finite(list(x)) for x in returns) / agents
    else:
        times, episode_return = step_by_step(agent, backend, work)
    many = {"agents": agents} if agents > 1 else {}
    found = {"episode_return": episode_return, "config": run.to_dict() | {"env": work.env} | many}
    # Of a native environment the limit is its twin's as one compiled loop, which torch has not.
    env = env_id(work.env, "gymnax" if options["suite"] == "torch" else options["suite"])
    return times | found | {"env_alone": lambda: step_seconds(env, agents * work.num_envs)}


def build_many(run: Run, agents: int) -> tuple[Any, Any]:
    """All agents as one program, in groups that the second-level cache holds, as `train --seeds` has them."""
    from benchback import registry
    from benchback.population.groups import likely_group
    from benchback.population.members import execute
    from benchback.training.run import environment

    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    agent = make(run.config, environment(run, run.config.num_envs))
    group = likely_group(agent, backend, agents).group
    return execute(agent, backend, run.compile_mode, run.unit, run.length, size=agents, group=group), backend


def step_by_step(agent: Any, backend: Any, work: SimpleNamespace) -> tuple[dict[str, Any], float]:
    """Times of a training whose iterations Python drives, and its last return."""
    state, returns = start(agent, work.seed), []

    def go_on(iterations: int) -> None:
        nonlocal state
        for _ in range(iterations):
            state, metrics = advance(agent, state)
            returns.append(metrics["episode_return"])
        backend.block(returns[-1])

    times = time_after_warm_up(go_on, work)
    return times, last_finite([float(x) for x in returns])


def run_of(work: SimpleNamespace, options: dict[str, str]) -> Run:
    """The work as a Run of benchback."""
    fields = {name: x for name, x in vars(work).items() if name not in ("env", "agents")}
    execution = {name: x for name, x in options.items() if name != "suite"}
    env = env_id(work.env, options["suite"])
    return Run.from_dict(fields | execution | {"env": env, "chunk": work.num_iterations})


def env_id(name: str, suite: str) -> str:
    """The environment of the suite, or of the only one that has it."""
    known = set(envs.ids())
    return next(f"{x}/{name}" for x in (suite, *ELSEWHERE) if f"{x}/{name}" in known)


def last_finite(values: list[float]) -> float:
    """The last finite value; iterations in which no episode ends are NaN."""
    return next((float(x) for x in reversed(values) if math.isfinite(x)), math.nan)


if __name__ == "__main__":
    main(measure)
