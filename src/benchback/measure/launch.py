"""Launchers: run a cell by its kind in isolated processes, or in this one for debugging."""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict

from benchback.errors import InputError
from benchback.measure.micro.launch import residents_launch
from benchback.measure.peers.launch import peer_launch
from benchback.measure.policy import MAX_FAILED
from benchback.measure.process import Ended, Launch, Tick, run_cell
from benchback.measure.record import Cell, Kind
from benchback.measure.worker import Job, perform

LAUNCHERS: dict[Kind, Callable[[], AbstractContextManager[Launch]]] = {
    "training": lambda: nullcontext(run_cell),
    "peer": lambda: nullcontext(peer_launch()),
    "operations": residents_launch,
}
"""Kind -> context whose value runs its cells; processes shared between cells end with the context."""


@contextmanager
def launcher() -> Iterator[Launch]:
    """A function that runs a cell of any kind; processes it keeps between cells end with the context."""
    with ExitStack() as stack:
        opened: dict[Kind, Launch] = {}

        def launch(cell: Cell, seed: int, timeout_s: float, tick: Tick) -> Ended:
            if cell.kind not in opened:
                chosen = stack.enter_context(LAUNCHERS[cell.kind]())
                opened[cell.kind] = chosen if cell.kind == "training" else giving_up(chosen)
            return opened[cell.kind](cell, seed, timeout_s, tick)

        yield launch


def giving_up(launch: Launch) -> Launch:
    """The launcher, but a cell that failed too often is not run again: a hang would cost its limit in every block."""
    failures: dict[str, list[Ended]] = {}

    def launch_or_not(cell: Cell, seed: int, timeout_s: float, tick: Tick) -> Ended:
        failed = failures.setdefault(cell.id, [])
        if len(failed) >= MAX_FAILED:
            return Ended(failed[-1].outcome, f"not run again after: {failed[-1].detail}")
        ended = launch(cell, seed, timeout_s, tick)
        if ended.outcome != "ok":
            failed.append(ended)
        return ended

    return launch_or_not


def in_process(cell: Cell, seed: int, timeout_s: float, tick: Tick) -> Ended:
    """A training in this process, for debugging: same result, no isolation, memory of earlier runs included."""
    started = time.monotonic()
    try:
        record = perform(Job(cell, seed, started))
    except InputError:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        return Ended("error", detail, duration_s=time.monotonic() - started, tags=("in-process",))
    finally:
        forget_programs()
    message = {"kind": "record", "record": asdict(record)}
    return Ended("ok", duration_s=time.monotonic() - started, messages=[message], tags=("in-process",))


def forget_programs() -> None:
    """Free the compiled programs that frameworks cache between runs, and the arrays only those refer to."""
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
    gc.collect()
