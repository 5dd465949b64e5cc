"""Several processes that train together: `jax.distributed` joins them, and each sees the devices of all.

Every process runs the same programs in the same order. Process 0 leads: it alone writes files and decides when to go
on, to export and to end; the others follow what it announces.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any

import jax
import numpy as np

from benchback.errors import InputError
from benchback.training import Progress

AUTO = "auto"
PATIENCE_S = 300
"""Seconds within which all processes must have joined."""
SHUTDOWN_S = 120
"""Seconds that a process which ends, or fails, waits for the others; then JAX ends them all."""


@dataclass(frozen=True)
class Processes:
    """Which of several processes this one is."""

    coordinator: str
    """HOST:PORT of process 0, or `auto`: as SLURM, Open MPI or Kubernetes tell."""
    count: int | None = None
    number: int | None = None
    """0 for the one that leads."""

    def __post_init__(self) -> None:
        rest = {"--num-processes": self.count, "--process-id": self.number}
        if self.coordinator == AUTO:
            if given := [flag for flag, x in rest.items() if x is not None]:
                raise InputError(f"{given[0]} is found by --coordinator auto; leave it out, or give HOST:PORT")
            return
        if not re.fullmatch(r"[^\s/]+:[0-9]{1,5}", self.coordinator):
            raise InputError(f"--coordinator {self.coordinator[:80]} must be HOST:PORT of process 0, or auto")
        if missing := [flag for flag, x in rest.items() if x is None]:
            raise InputError(f"--coordinator {self.coordinator} needs {missing[0]} too")
        if self.count is None or self.number is None or self.count < 1 or not 0 <= self.number < self.count:
            raise InputError(
                f"--process-id {self.number} of --num-processes {self.count}: count from 0 to one less than there are"
            )


def join(asked: Processes) -> bool:
    """Join the others, before JAX has been used; returns whether this process leads."""
    try:
        jax.distributed.initialize(
            coordinator_address=None if asked.coordinator == AUTO else asked.coordinator,
            num_processes=asked.count,
            process_id=asked.number,
            initialization_timeout=PATIENCE_S,
            shutdown_timeout_seconds=SHUTDOWN_S,
        )
    except ValueError as error:
        raise InputError(
            f"--coordinator {asked.coordinator}: {error}; give HOST:PORT, --num-processes and --process-id"
        ) from None
    return jax.process_index() == 0


def gathered(tree: Any) -> Any:
    """The tree with its arrays whole in every process; all of them must call this."""
    from jax.experimental import multihost_utils

    def whole(x: Any) -> Any:
        if x.is_fully_addressable:
            return x
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(whole(jax.random.key_data(x)))
        return multihost_utils.process_allgather(x, tiled=True)

    return jax.tree.map(whole, tree)


def on_host(tree: Any) -> Any:
    """The tree as NumPy arrays, which every process may give to a program of all: they must be the same in each."""
    return jax.tree.map(np.asarray, tree)


def put(tree: Any, shardings: Any) -> Any:
    """The arrays on devices as the shardings say; where these are of several processes, all have the whole arrays."""

    def place(x: Any, sharding: Any) -> Any:
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(x), sharding))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.device_put(tree, shardings) if jax.process_count() == 1 else jax.tree.map(place, tree, shardings)


class Lost(Exception):
    """Another process has ended, or failed, in the middle of training; the message is one line and names the remedy."""


@contextmanager
def losing() -> Iterator[None]:
    """Turns the failure of a program of all processes into Lost."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        told = str(error).strip().splitlines()[:1]
        raise Lost(
            f"training with another process failed ({''.join(told)[:300]}); if one has ended, start all of them again "
            "with --resume and the run folder"
        ) from error


class Order(IntEnum):
    """What process 0 announces."""

    BEGIN = 0
    GO_ON = 1
    """Make the next program call."""
    EXPORT = 2
    """Take part in collecting the state."""
    END = 3


def agreed(number: int) -> int:
    """The number of process 0, in all of them."""
    if jax.process_count() == 1:
        return number
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def _announce(order: Order) -> Order:
    """The order of process 0, whatever the others give."""
    return Order(agreed(order))


Trainer = Callable[..., Iterator[Any]]


@contextmanager
def led(trainer: Trainer) -> Iterator[Trainer]:
    """The trainer as process 0 uses it: what it does is announced to the others, and that it ends."""

    def train(*given: Any, **options: Any) -> Iterator[Any]:
        _announce(Order.BEGIN)
        return announced(trainer(*given, **options))

    def announced(calls: Iterator[Progress]) -> Iterator[Progress]:
        for progress in calls:
            yield replace(progress, export=partial(export, progress.export))
            _announce(Order.GO_ON)

    def export(own: Callable[[], Any]) -> Any:
        _announce(Order.EXPORT)
        return own()

    with losing():
        try:
            yield train
        except jax.errors.JaxRuntimeError:
            raise  # nobody may be left to be told
        except Exception:
            _announce(Order.END)
            raise
        _announce(Order.END)


def follow(trainer: Callable[[], Iterator[Progress]]) -> None:
    """Train as process 0 announces, until it ends."""
    with losing():
        _follow(trainer)


def _follow(trainer: Callable[[], Iterator[Progress]]) -> None:
    if _announce(Order.END) is Order.END:
        return
    try:
        calls = trainer()
    except InputError:
        _announce(Order.END)  # process 0 has refused it as well
        raise
    for progress in calls:
        while (order := _announce(Order.END)) is Order.EXPORT:
            progress.export()
        if order is Order.END:
            return
    _announce(Order.END)
