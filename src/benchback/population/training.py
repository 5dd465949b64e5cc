"""Training a population: a generator like `training.train`, and training into a run folder.

Importing this module imports jax.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from benchback import envs, registry, training
from benchback.agent import Agent, Backend, Weights
from benchback.errors import InputError
from benchback.population import folder as folders
from benchback.population.devices import check_even, divided, mesh_of
from benchback.population.folder import CurveWriter, PopulationDir, Stored
from benchback.population.groups import Choice, likely_group
from benchback.population.members import compile_mode, member, view
from benchback.population.memory import Need, check_memory, memory_need
from benchback.population.processes import agreed, gathered
from benchback.population.spec import Members, Population, kept, members_of
from benchback.population.summary import SummaryWriter, rows_of, statistics, summarise
from benchback.population.thinning import likely_thin
from benchback.training import run_dir
from benchback.training.checkpoint import Checkpoint
from benchback.training.monitor import Monitor
from benchback.training.run import Run, environment

ON_DEVICE = 256
"""Members from which on means and quantiles over them are computed on the device."""


@dataclass(frozen=True)
class Progress(training.Progress):
    """Progress of a population after one program call; its `rows` are summaries over the members."""

    metrics: dict[str, np.ndarray]
    """Metrics of each member, of shape [iterations of this call, members]."""
    export_member: Callable[[int], Weights]
    """Returns a copy of one member's state; valid only until the next iteration starts."""


@dataclass(frozen=True)
class Begun:
    """What is trained where."""

    folder: PopulationDir
    asked: Population
    members: Members
    iteration: int
    """Completed iterations."""
    elapsed_s: float
    """Seconds they took."""
    group: str
    """How members are run, and why: in one program with so many side by side, or one after another."""


@dataclass(frozen=True)
class Trained:
    """Result of training a population into a folder."""

    folder: PopulationDir
    members: Members
    iteration: int
    """Completed iterations."""
    interrupted: bool
    scores: np.ndarray
    """Mean return of each member over the last tenth of these iterations; NaN where no episode ended."""
    diverged: Mapping[int, int]
    """Member -> the first iteration in which a metric of its learning was not finite."""
    reached: float | None = None
    """The mean return of all members that ended training early, at least the one that was asked for."""

    @property
    def best(self) -> int:
        """The member with the highest score; 0 if none has one."""
        return int(np.where(np.isnan(self.scores), -np.inf, self.scores).argmax())


Built = tuple[Agent, Agent, Backend]
Trainer = Callable[..., Iterator[Progress]]
"""A function with the arguments of `train_members` up to `checkpoint`."""


def train_members(
    run: Run,
    members: Members,
    *,
    group: int | None = None,
    devices: int = 1,
    checkpoint: Checkpoint | None = None,
    build: Callable[[Run, int, int, int], Built] | None = None,
) -> Iterator[Progress]:
    """Train all members from the start, or from their stacked `checkpoint`, to the last iteration.

    What cannot be trained is rejected by this call; training happens as the iterator is consumed. `build` may return
    programs that it has compiled before. Members of torch run side by side where `in_turn.py` says so.
    """
    iteration = checkpoint.iteration if checkpoint else 0
    training.check_rest(run, iteration)
    group = group or group_of(run, len(members), devices)
    if in_turn(run):
        return import_module("benchback.population.in_turn").train_in_turn(run, members, group, checkpoint)
    # Processes that train together need one program, whatever the caches of each would hold.
    group = agreed(group)
    single, many, backend = (build or built)(run, len(members), group, devices)
    state = many.init(keys_of(single, members), hyper_of(single, members))
    if checkpoint:
        state = many.load(state, training.transplantable(run, checkpoint))
    return _loop(run, len(members), single, many, backend, state, iteration)


def keys_of(single: Agent, members: Members) -> Any:
    """The random key of each member."""
    return jax.vmap(cast(Any, single.key))(np.asarray(members.seed, np.uint32))


def hyper_of(single: Agent, members: Members) -> Any:
    """The floats of the members: one number for all, or one for each where they differ."""
    return single.hyper._replace(**{name: np.asarray(x) for name, x in members.values.items()})


def built(run: Run, size: int, group: int, devices: int = 1) -> Built:
    """The run's agent as functions of arrays, its population with unit and compile mode applied, and the backend."""
    agent, backend = plain(run)
    mode = compile_mode(backend, run.compile_mode)
    many = mode(divided(view(backend.units[run.unit](agent, run.length), backend), size, group, devices))
    check_memory(agent, backend, unit=run.unit, size=-(-size // jax.process_count()), group=group)
    return view(agent, backend), many, backend


def in_turn(run: Run) -> bool:
    """Whether groups of members are trained one after another: no program of its backend has several agents."""
    return not registry.BACKENDS[run.backend].populations


def group_of(run: Run, size: int, devices: int = 1) -> int:
    """How many of `size` members run side by side if nobody says so."""
    if in_turn(run):
        return import_module("benchback.population.in_turn").likely_group(run, size)[0]
    return likely(run, size, devices).group


def likely(run: Run, size: int, devices: int = 1) -> Choice:
    """How many of `size` members should run side by side, on each device."""
    mesh_of(devices)
    check_even(size, devices)
    return likely_group(*plain(run), size // devices)


def need(run: Run, group: int) -> Need:
    """The memory that members of the run take."""
    return memory_need(*plain(run), unit=run.unit, group=group)


def plain(run: Run) -> tuple[Agent, Backend]:
    """The run's agent without unit and mode; InputError if it cannot have a population."""
    if run.framework != "jax":
        raise InputError(
            f"backend={run.backend} has no program of several agents; use another backend, "
            f"e.g. --backend {registry.DEFAULT_BACKEND}"
        )
    if envs.about(run.env).where == "python":
        known = registry.ALGORITHMS[run.algorithm].env
        raise InputError(f"env={run.env} runs in Python, and a population in one program; use another, e.g. {known}")
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    return make(run.config, environment(run, run.config.num_envs)), backend


def _loop(
    run: Run, size: int, single: Agent, many: Agent, backend: Backend, state: Any, iteration: int
) -> Iterator[Progress]:
    while iteration < run.config.num_iterations:
        compiles = backend.compiles()
        state, metrics = training.advance(many, state)
        iteration += run.length
        compiles = backend.compiles() - compiles
        rows, fetched = summarised(backend, gathered(metrics), size)
        # Bind the current state: the next call may donate it.
        yield Progress(
            iteration=iteration,
            rows=rows,
            compiles=compiles,
            export=lambda state=state: many.export(state),
            metrics=fetched,
            export_member=lambda index, state=state: single.export(member(many, gathered(state), index)),
        )


def summarised(
    backend: Backend, metrics: Mapping[str, Any], size: int
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """Rows of what a program returns for so many members, and those metrics of shape [iterations, members]."""
    if size < ON_DEVICE:
        fetched = rows_first(backend.fetch(metrics), size)
        return summarise(fetched), fetched
    columns, fetched = backend.fetch((_statistics_on_device(metrics, size), metrics))
    return rows_of(columns, metrics), rows_first(fetched, size)


@partial(jax.jit, static_argnums=1)
def _statistics_on_device(metrics: Mapping[str, Any], size: int) -> dict[str, Any]:
    return statistics(jax.numpy, rows_first(metrics, size))


def rows_first(metrics: Mapping[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """Metrics of shape [iterations, members], of those that a program returns for so many members."""
    return {name: x.reshape(size, -1).T for name, x in metrics.items()}


def train_population(
    run: Run,
    asked: Population | None = None,
    *,
    members: Members | None = None,
    trainer: Trainer = train_members,
    width: int = 1,
    out: Path | None = None,
    origin: Stored | None = None,
    checkpoint_every: int | None = None,
    monitor: Monitor | None = None,
    on_begin: Callable[[Begun], None] = lambda begun: None,
    on_rows: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train a population into a folder: a new one, or that of `origin` if its run is the same.

    The members are those of `origin`, those given, or those that `asked` describes; `trainer` trains them, and may
    divide them over `width` devices by itself. Summaries are appended after every program call and passed to `on_rows`,
    checkpoints written as by `train_run`; at the end the members to keep get folders. It ends early where the mean over
    members and the last ten iterations is what `monitor` stops at. A member that diverges goes on.
    """
    run_dir.check_cadence(checkpoint_every)
    _check_monitor(monitor)
    begun, training = _begin(run, asked, members, trainer, width, out, origin)
    on_begin(begun)
    place, done = begun.folder, begun.iteration
    saved, saved_s, started = done, time.perf_counter(), time.perf_counter() - begun.elapsed_s
    curves = CurveWriter(place, begun.asked.iterations_per_row, done)
    summaries, watch = SummaryWriter(place), run_dir.watch_over(run, place, monitor)
    for progress in training:
        rows = run_dir.numbered(progress, run, time.perf_counter() - started)
        summaries.add(rows)
        curves.add(progress.iteration, progress.metrics)
        on_rows(rows)
        watch.after(rows, progress.export)
        done = progress.iteration
        ending = asked_to_stop() or watch.reached is not None or done >= run.config.num_iterations
        if ending or run_dir.is_due(checkpoint_every, done - saved, time.perf_counter() - saved_s):
            summaries.flush()
            curves.save()  # before the checkpoint: no part may span one
            run_dir.save(place, progress, run)
            curves.forget()
            saved, saved_s = done, time.perf_counter()
        if ending:
            break
    curves.end()
    return _finish(run, begun, done, watch.reached)


def _begin(
    run: Run,
    asked: Population | None,
    given: Members | None,
    trainer: Trainer,
    width: int,
    out: Path | None,
    origin: Stored | None,
) -> tuple[Begun, Iterator[Progress]]:
    """What is trained where, and the training."""
    if origin is not None:
        _check_unchanged(run, Run.from_dict(origin.checkpoint.run), origin.members)
    wanted = asked or (origin.asked if origin else Population())
    members = origin.members if origin else given or members_of(wanted, run)
    fresh = out or run_dir.free_path(default_path(run, len(members)))
    same = origin is not None and run.to_dict() == origin.checkpoint.run
    if not same:
        run_dir.check_free(fresh)
    told, together = f"one program, groups of {wanted.group}", -(-len(members) // width)
    if in_turn(run):
        wanted, told = _in_turn(run, wanted, together)
    elif wanted.group is None:
        choice = likely(run, together, wanted.devices)
        # Stored: another processor might choose another group, and continue with other roundings.
        wanted, told = replace(wanted, group=choice.group), f"one program, {choice}"
    if wanted.thin is None:
        thin = origin.asked.thin if origin is not None and same else likely_thin(run.config.num_iterations)
        wanted = replace(wanted, thin=thin)
    if origin is not None and same and wanted.thin != origin.asked.thin:
        had = origin.asked.iterations_per_row
        raise InputError(f"--thin {wanted.thin}: the curves have a row for each {had} iterations already; leave it out")
    if wanted.iterations_per_row > 1:
        told += f"; a row of the curves stands for {wanted.thin} iterations"
    if wanted.devices > 1:
        told += f"; divided over {wanted.devices} {jax.default_backend().upper()} devices"
    at = origin.checkpoint if origin else None
    training = trainer(run, members, group=wanted.group, devices=wanted.devices, checkpoint=at)
    iteration = at.iteration if at else 0
    if origin is not None and same:
        elapsed_s = run_dir.rewound(origin.folder, iteration)
        return Begun(origin.folder, wanted, members, iteration, elapsed_s, told), training
    folder = folders.create(fresh, run, wanted, members)
    return Begun(folder, wanted, members, iteration, 0.0, told), training


def _finish(run: Run, begun: Begun, done: int, reached: float | None) -> Trained:
    """The result; where training has come to its end, with run folders of the members to keep."""
    interrupted = done < run.config.num_iterations and reached is None
    scores, diverged = folders.scores(begun.folder, len(begun.members), done), folders.diverged(begun.folder, run)
    trained = Trained(begun.folder, begun.members, done, interrupted, scores, diverged, reached)
    if not interrupted and begun.folder.checkpoint.exists():
        chosen = kept(begun.asked.keep, len(begun.members), trained.best)
        folders.keep(begun.folder, begun.members, chosen)
    return trained


def _in_turn(run: Run, asked: Population, size: int) -> tuple[Population, str]:
    """How members of torch are run, and that in words; InputError if they share an environment that has one state."""
    if asked.devices > 1:
        raise InputError(f"--devices is about one program of several agents, which {run.backend} has not; leave it out")
    if envs.about(run.env).where == "python":
        raise InputError(f"env={run.env} has one state, outside the agents; train seeds one by one with --seed")
    if asked.group is not None:
        group = min(asked.group, size)
        return asked, f"{group} side by side" if group > 1 else "one after another"
    group, told = import_module("benchback.population.in_turn").likely_group(run, size)
    return replace(asked, group=group), told


def _check_monitor(monitor: Monitor | None) -> None:
    if monitor is not None and monitor.evaluate_every is not None:
        raise InputError(
            f"evaluate_every={monitor.evaluate_every} is about a single agent; leave it out, and evaluate members "
            "afterwards: benchback eval RUN#0"
        )


def _check_unchanged(run: Run, before: Run, members: Members) -> None:
    """Raise an InputError if the run changes what each member has of its own."""
    for name in ("seed", *members.values):
        old, new = (getattr(r, name, None) if name == "seed" else getattr(r.config, name) for r in (before, run))
        if old != new:
            raise InputError(f"{name}={new}: every member has its own; leave it out, or start a new population")


def default_path(run: Run, size: int) -> Path:
    """As for a single run, with the number of members."""
    path = run_dir.default_path(run)
    return path.with_name(f"{path.name}-{size}members")
