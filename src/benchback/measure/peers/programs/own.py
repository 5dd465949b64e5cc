"""benchback's own backends, in their own virtual environment."""

import math
from types import SimpleNamespace
from typing import Any

from measuring import main, time_after_warm_up, time_twice  # pyright: ignore[reportMissingImports]

from benchback.agent import start
from benchback.measure.flops import layer_sizes, work_ledger
from benchback.measure.micro.work import matmul_flops, product
from benchback.measure.micro.worker import sample_s
from benchback.training import advance
from benchback.training.run import Run, build

PRODUCT_S = 0.3
"""Seconds to spend on the matrix products alone."""


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train with the backend, mode, unit, gradients and suite of `options` on the work."""
    run = run_of(work, options)
    agent, backend = build(run)
    if run.unit == "chunk":

        def train(seed: int) -> Any:
            _, metrics = advance(agent, start(agent, seed))
            return backend.fetch(metrics)

        times, metrics = time_twice(train, work)
        episode_return = last_finite(list(metrics["episode_return"]))
    else:
        times, episode_return = step_by_step(agent, backend, work)
    found = {"episode_return": episode_return, "config": run.to_dict() | {"env": work.env}}
    return times | found | arithmetic(agent, run, times)


def arithmetic(agent: Any, run: Run, times: dict[str, Any]) -> dict[str, float]:
    """Operations per second in the matrix products of all updates, and those of the same products by themselves."""
    sizes = layer_sizes(agent.export(start(agent, 0)))
    rows = run.config.gradient_rows // run.config.updates_per_iteration
    per_iteration = work_ledger(run.config.network_rows, sizes, skips=True)["gradient_flops"]
    product_s = sample_s(product(rows, run.config.hidden[-1]), PRODUCT_S)
    return {
        "flops_per_s": per_iteration * times["env_steps"] / run.config.batch_size / times["steady_s"],
        "limit_flops_per_s": matmul_flops(rows, run.config.hidden[-1]) / product_s,
    }


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
    fields = {name: x for name, x in vars(work).items() if name != "env"}
    execution = {name: x for name, x in options.items() if name != "suite"}
    env = f"{options['suite']}/{work.env}"
    return Run.from_dict(fields | execution | {"env": env, "chunk": work.num_iterations})


def last_finite(values: list[float]) -> float:
    """The last finite value; iterations in which no episode ends are NaN."""
    return next((float(x) for x in reversed(values) if math.isfinite(x)), math.nan)


if __name__ == "__main__":
    main(measure)
