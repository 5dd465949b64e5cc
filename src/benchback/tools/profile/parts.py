"""The parts of an iteration, each timed by itself: as a program of its own with nothing else in it.

Parts measured apart need not add up: together they share loops, memory and what a compiler fuses. Their difference
from a whole iteration is a row of the table. To tell computing from dispatch every part is also timed
hollow, in one environment with layers of width one: as many calls and operations, and almost no compute. That time
is dispatch, and is subtracted from the part.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, NamedTuple

from benchback import registry
from benchback.agent import Agent, Backend, Weights, start
from benchback.envs.interface import Env
from benchback.errors import InputError
from benchback.plugins.towers import TOWERS
from benchback.tools.profile.plan import ProfilePlan
from benchback.tools.profile.timing import Steady, seconds
from benchback.training.run import Run, environment

MEASURED = {
    "environment": "all steps of a rollout with fixed random actions",
    "forward": "the policy on the observations of a rollout, step by step",
    "loss and gradient": "all gradient steps of an update on one minibatch, less the optimiser",
    "optimiser": "as many steps of clipped Adam on arrays of the same shapes",
}
"""Part -> what is timed."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """How often one iteration runs each part."""

    run: Run
    plain: Agent
    phases: Agent
    backend: Backend
    env: Env
    steps: int
    """Vectorised steps of the environment."""
    learnings: int
    """Calls of `learn`."""
    optimisers: dict[str, tuple[int, Weights]]
    """Name of its count -> its steps per iteration, and arrays of the shapes that it updates."""


def table(plan: ProfilePlan, steady: Steady) -> list[Row]:
    """A row for each part, then dispatch, transfer, what is left over, and the whole."""
    whole_s = steady.times.whole_s
    work = workload(plan.run, steady.plain, steady.phases, steady.backend, plan.warmup)
    full, empty = timed(work, plan.iterations), _hollow(work, plan.iterations)
    # With noise the hollow part may take longer than the real one; dispatch is at most the part's time.
    spent = {name: min(empty.get(name, 0.0), x) for name, x in full.items() if x is not None}
    rows = [
        {"part": name, "seconds": _less(full[name], spent.get(name)), "how": what} for name, what in MEASURED.items()
    ]
    how = "what the parts above take hollow: one environment, layers of width one"
    rows.append({"part": "dispatch", "seconds": sum(spent.values()) if empty else None, "how": how})
    rows.append({"part": "transfer", "seconds": steady.times.transfer_s, "how": "reading the metrics of an iteration"})
    left = whole_s - sum(row["seconds"] or 0.0 for row in rows)
    how = "the whole less the parts: what they do not cover, and what measuring apart costs or hides"
    rows.append({"part": "remainder", "seconds": left, "how": how})
    rows.append({"part": "whole iteration", "seconds": whole_s, "how": "rollout, update and reading the metrics"})
    return [row | {"share": None if row["seconds"] is None else row["seconds"] / whole_s} for row in rows]


def _less(part: float | None, dispatch: float | None) -> float | None:
    return None if part is None or dispatch is None else part - dispatch


def workload(run: Run, plain: Agent, phases: Agent, backend: Backend, warmup: int) -> Workload:
    """The workload of an iteration, counted in one after `warmup` others."""
    state = start(phases, run.seed)
    for _ in range(warmup):
        state, _ = phases.update(*phases.rollout(state))
    before = phases.export(state)
    state, _ = phases.update(*phases.rollout(state))
    after = phases.export(state)
    counts = {name: int(x - before[name]) for name, x in after.items() if name.endswith("adam/count")}
    if not any(counts.values()):
        raise InputError(f"warmup={warmup}: no gradient step is taken so early; choose --warmup until learning begins")
    optimisers = {name: (count, shapes(after, name)) for name, count in counts.items() if count}
    env, steps = environment(run, run.config.num_envs), run.config.batch_size // run.config.num_envs
    return Workload(run, plain, phases, backend, env, steps, max(counts.values()), optimisers)


def shapes(weights: Weights, counted: str) -> Weights:
    """Arrays of the shapes that the optimiser with that count updates."""
    prefix = f"{counted.removesuffix('count')}mean/"
    return {name.removeprefix(prefix): x for name, x in weights.items() if name.startswith(prefix)}


def timed(work: Workload, times: int) -> dict[str, float | None]:
    """Seconds of each part in an iteration; None where the algorithm does not offer it."""
    family = import_module(f"benchback.tools.profile.{registry.BACKENDS[work.run.backend].family}_parts")

    def take(call: Callable[[], Any] | None) -> float | None:
        return None if call is None else seconds(call, work.backend, times)

    play, obs = family.environment(work)
    optimiser_s = sum(take(family.optimiser(work, *x)) or 0.0 for x in work.optimisers.values())
    learning_s = take(family.learning(work))
    return {
        "environment": take(play),
        "forward": take(family.forward(work, obs)),
        "loss and gradient": None if learning_s is None else max(0.0, learning_s - optimiser_s),
        "optimiser": optimiser_s,
    }


def _hollow(work: Workload, times: int) -> dict[str, float]:
    """Seconds of the hollow parts; none where the algorithm has none."""
    config = work.run.config
    # Convolutions have no width to take away: with them nothing would be hollow.
    if not {"num_envs", "hidden_sizes"} <= {f.name for f in fields(config)} or work.run.network in TOWERS:
        return {}
    try:
        run = replace(work.run, config=replace(config, num_envs=1, hidden_sizes=(1,) * len(config.hidden)))
        make, backend = registry.load(run.algorithm, run.backend, run.gradients)
        plain = make(run.config, environment(run, 1))
    except InputError:
        return {}
    phases = registry.execute(plain, backend, run.compile_mode, "phase")
    weights = phases.export(start(phases, run.seed))
    optimisers = {name: (count, shapes(weights, name)) for name, (count, _) in work.optimisers.items()}
    twin = replace(work, run=run, plain=plain, phases=phases, env=environment(run, 1), optimisers=optimisers)
    return {name: x for name, x in timed(twin, times).items() if x is not None}


def minibatch(work: Workload, batch: Any) -> Any:
    """A minibatch for `learn` made of the rows of a rollout."""
    module = "recurrent.sequences" if work.run.network in registry.RECURRENT else "loss"
    return registry.module_of(work.run.algorithm, module).example_minibatch(batch, work.run.config)


class Hyper(NamedTuple):
    """Hyper-parameters of the timed optimiser: arbitrary, since they do not affect its cost."""

    learning_rate: Any = 1e-4
    adam_beta1: Any = 0.9
    adam_beta2: Any = 0.999
    adam_epsilon: Any = 1e-5
    max_grad_norm: Any = 0.5
