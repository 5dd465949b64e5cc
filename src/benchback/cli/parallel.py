"""`benchback train` and `tune` on several devices, in processes that train together, and on the nodes of a cluster."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchback import registry
from benchback.cli.arguments import on_interrupt
from benchback.errors import InputError
from benchback.population.spec import Population, members_of

if TYPE_CHECKING:
    from benchback.cli.populations import Origin
    from benchback.cli.training import TrainFlags
    from benchback.cli.tuning import TuneFlags

Trainer = Callable[..., Iterator[Any]]


@dataclass(frozen=True)
class Joined:
    """This process among those that train together."""

    leads: bool
    devices: int
    """Of all of them."""


def join(flags: "TrainFlags") -> Joined | None:
    """Join the processes that the flags name; None if they name none."""
    if flags.coordinator is None:
        if flags.num_processes is not None or flags.process_id is not None:
            given = "--num-processes" if flags.num_processes is not None else "--process-id"
            raise InputError(f"{given} needs --coordinator HOST:PORT, the address of process 0, too")
        return None
    if registry.BACKENDS[flags.run.backend].family != "jax":
        raise InputError(
            f"--coordinator joins processes of JAX; backend={flags.run.backend} trains in one, leave it out"
        )
    import jax

    from benchback.population import processes

    asked = processes.Processes(flags.coordinator, flags.num_processes, flags.process_id)
    keep_stdout()
    leads, devices = processes.join(asked), jax.device_count()
    print(
        f"process {jax.process_index()} of {jax.process_count()}, {devices} {jax.default_backend().upper()} devices"
        + ("" if leads else "; process 0 reports and writes the files"),
        file=sys.stderr,
    )
    if flags.devices not in (None, devices):
        raise InputError(f"--devices {flags.devices}: the processes have {devices} together; leave it out")
    return Joined(leads, devices)


def keep_stdout() -> None:
    """Let what libraries print to the standard output go to stderr: Gloo does when processes connect."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)


def agent_trainer(flags: "TrainFlags", joined: Joined | None) -> Trainer:
    """What trains a single agent, on as many devices as it is divided over."""
    from benchback.training import train

    devices = joined.devices if joined else flags.devices
    if devices is None:
        return train
    if flags.devices is not None and flags.devices < 1:
        raise InputError(f"--devices {flags.devices} must be at least 1")
    if flags.run.framework != "jax":
        raise InputError(f"--devices divides programs of JAX, which {flags.run.backend} has not; leave it out")
    from benchback.population import data_parallel

    return partial(data_parallel.train, devices=devices)


@contextmanager
def announcing(trainer: Trainer, joined: Joined | None) -> Iterator[Trainer]:
    """The trainer; where processes train together, one that announces to the others what it does."""
    if joined is None:
        yield trainer
        return
    from benchback.population.processes import led

    with ending_alone(), led(trainer) as announced:
        yield announced


@contextmanager
def members_trainer(
    flags: "TrainFlags", joined: Joined | None, stop: Callable[[], bool], warn: Callable[[str], None]
) -> Iterator[tuple[Trainer, int]]:
    """What trains members, and over how many devices of other machines it divides them."""
    if flags.on is not None:
        with over_nodes(flags, stop, warn) as found:
            yield found
        return
    from benchback.population.training import train_members

    with announcing(train_members, joined) as trainer:
        yield trainer, 1


@contextmanager
def over_nodes(
    flags: "TrainFlags | TuneFlags", stop: Callable[[], bool], warn: Callable[[str], None]
) -> Iterator[tuple[Trainer, int]]:
    """What trains members on the nodes of the cluster that the flags name, and how many devices these have."""
    from benchback.measure.nodes import place_of
    from benchback.measure.training_nodes import Setting, training_nodes
    from benchback.population.parts import train_parts

    run, place = flags.run, place_of(flags.on or "")
    setting = Setting(run.backend, run.env, flags.threads, run.config.dtype == "float64", run.imports)
    with training_nodes(place, setting, stop, ship=flags.ship) as nodes:
        widths = nodes.widths()
        told = ", ".join(f"{name} ({count} devices)" if count > 1 else name for name, count in widths.items())
        print(f"{len(widths)} nodes: {told}", file=sys.stderr)
        for reason in nodes.refused.values():
            warn(f"a node is not used, {reason}")
        yield partial(train_parts, nodes=nodes, log=warn), sum(widths.values())


@contextmanager
def ending_alone() -> Iterator[None]:
    """Exits with one line if another process is lost, at once: JAX would wait for it for minutes and then abort."""
    from benchback.population.processes import Lost

    try:
        yield
    except Lost as lost:
        print(f"benchback: error: {lost}", file=sys.stderr, flush=True)
        os._exit(1)


def follow(flags: "TrainFlags", asked: Population | None, origin: "Origin | None", joined: Joined) -> int:
    """Train what process 0 trains, as it announces. It decides what a request to stop means; a second one ends us."""
    from benchback.population import processes

    on_interrupt()
    checkpoint = origin.checkpoint if origin else None
    if asked is None:
        train = partial(agent_trainer(flags, joined), flags.run, checkpoint)
    else:
        from benchback.population.training import train_members

        members = origin.stored.members if origin and origin.stored else members_of(asked, flags.run)
        options = {"group": asked.group, "devices": asked.devices, "checkpoint": checkpoint}
        train = partial(train_members, flags.run, members, **options)
    with ending_alone():
        processes.follow(train)
    return 0


def on_all(asked: Population, joined: Joined) -> Population:
    """The population divided over the devices of all processes."""
    return replace(asked, devices=joined.devices)
