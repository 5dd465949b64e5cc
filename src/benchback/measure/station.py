"""A station: holds one machine of a cluster, and runs one block at a time as it would be run locally.

The same worker, gate, canary and noise counters; nothing here knows how it is reached.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from benchback import envs
from benchback.errors import InputError
from benchback.measure import canary, gate, machine
from benchback.measure.block import BlockJob, Measured, measure
from benchback.measure.launch import launcher
from benchback.measure.process import Interrupted, Tick
from benchback.measure.relay import COMMAND, relay_launch
from benchback.measure.study import Study

Prove = Callable[[Sequence[str], Mapping[str, Any], Tick], dict[str, str]]


@dataclass(frozen=True)
class Tools:
    """What a station measures with; tests replace some of it."""

    command: Sequence[str] = COMMAND
    """Starts a process of a relay."""
    prove: Prove = gate.verdicts
    sample: Callable[[], dict[str, float]] = machine.sample
    canary: Callable[[], dict[str, float]] | None = canary.run


@dataclass(frozen=True)
class Needs:
    """What a study needs on every machine."""

    threads: int
    envs: tuple[str, ...]
    gpu: bool = False


def needs_of(study: Study) -> Needs:
    """The most threads of a cell, the environments, and whether some cell runs on a GPU."""
    names = dict.fromkeys(str(cell.run["env"]) for cell in study.cells if cell.kind == "training")
    gpu = any(cell.device == "gpu" for cell in study.cells)
    return Needs(max(cell.threads for cell in study.cells), tuple(names), gpu)


class Station:
    """One machine, or some of its processors."""

    def __init__(self, keep_caches: bool = False, processors: Sequence[int] = (), tools: Tools | None = None) -> None:
        self.processors, self.tools = tuple(processors), tools or Tools()
        self.stopped, self.kept = threading.Event(), ExitStack()
        self.launch = self.kept.enter_context(launcher())
        self.relay = self.kept.enter_context(relay_launch(keep_caches, self.tools.command))

    def fingerprint(self, needs: "Needs | None" = None) -> dict[str, Any]:
        """Facts about the machine, as this station may use it; InputError if a study needs more."""
        self.stay()
        found = machine.fingerprint()
        if needs is not None:
            machine.processors(needs.threads)
            for env in needs.envs:
                envs.check_installed(env)
            if needs.gpu and "gpu" not in found:
                raise InputError("the study has device=gpu, and no NVIDIA GPU answers on this machine")
        return found

    def stay(self) -> None:
        """Keep this thread, and what it starts, on the station's processors."""
        if self.processors and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.processors)

    def prove(self, proofs: Sequence[str]) -> dict[str, str]:
        """The parity verdicts of programs on this machine."""
        self.stay()
        return self.tools.prove(proofs, machine.fingerprint(), self.goes_on)

    def run(self, job: BlockJob) -> Measured:
        """The block with a canary before and after it; Interrupted if it was stopped."""
        self.stay()
        began_s, before = time.monotonic(), self.canary("before")
        measured = measure(job, self.launch, self.relay, self.goes_on, sample=self.tools.sample)
        canaries = *before, *self.canary("after")
        return replace(measured, canaries=canaries, busy_s=time.monotonic() - began_s)

    def canary(self, when: str) -> tuple[Mapping[str, float | str], ...]:
        """Its times, if it is run and does not fail."""
        if self.stopped.is_set():
            raise Interrupted
        if self.tools.canary is None:
            return ()
        try:
            return ({"when": when} | self.tools.canary(),)
        except subprocess.CalledProcessError:
            return ()

    def goes_on(self) -> bool:
        """Whether nobody has stopped it."""
        return not self.stopped.is_set()

    def stop(self) -> None:
        """End what is running, soon; nothing is run afterwards."""
        self.stopped.set()

    def close(self) -> None:
        """Remove its caches."""
        self.kept.close()
