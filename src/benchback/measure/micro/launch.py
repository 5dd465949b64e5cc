"""A round of samples: one resident process per backend, asked in turn, only one of them running at a time."""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchback.measure.micro.operations import OPERATIONS, Program, hollow, sample_name
from benchback.measure.process import Died, Ended, Launch, Listener, Tick, ask, isolated, worker_variables
from benchback.measure.record import Cell, Record

COMMAND = (sys.executable, "-m", "benchback.measure.micro.worker")


@contextmanager
def residents_launch() -> Iterator[Launch]:
    """Runs rounds; processes and compiled programs are kept between rounds and end with the context."""
    residents = Residents()
    try:
        yield residents.run_round
    finally:
        residents.close()


@dataclass
class Residents:
    """One process per backend, started on its first request; if one fails, all are restarted."""

    stack: ExitStack = field(default_factory=ExitStack)
    listeners: dict[str, Listener] = field(default_factory=dict)
    first_s: dict[Program, dict[str, float]] = field(default_factory=dict)
    """Seconds of the first call of each operation, of each compiled program; part of every record."""

    def close(self) -> None:
        """End all processes."""
        self.listeners.clear()
        self.first_s.clear()
        self.stack.close()

    def run_round(self, cell: Cell, seed: int, timeout_s: float, tick: Tick) -> Ended:
        """Every operation of every program once, in an order drawn from the seed; compiles missing programs first."""
        started = time.monotonic()
        turn = Round(self, cell, started + timeout_s, tick)
        try:
            samples = turn.measure(seed)
        except Died as died:
            return replace(died.ended, duration_s=time.monotonic() - started)
        record = Record(samples, {}, {"seed": seed, "threads": cell.threads}, {})
        message = {"kind": "record", "record": asdict(record)}
        return Ended("ok", duration_s=time.monotonic() - started, messages=[message])


@dataclass(frozen=True)
class Round:
    """One pass through all operations."""

    residents: Residents
    cell: Cell
    deadline: float
    tick: Tick

    def measure(self, seed: int) -> dict[str, list[float | None]]:
        """Seconds by name: of every operation, of its first call, and of the matrix products alone."""
        asked_for = programs_of(self.cell)
        programs = tuple(dict.fromkeys((*asked_for, *map(hollow, asked_for))))
        found: dict[str, list[float | None]] = {}
        for program in programs:
            if program not in self.residents.first_s:
                self.residents.first_s[program] = self.ask(program, do="prepare")["compile_s"]
            first_s = self.residents.first_s[program]
            found |= {sample_name(program, name, first=True): [x] for name, x in first_s.items()}
        order = [(program, operation) for program in programs for operation in OPERATIONS]
        random.Random(seed).shuffle(order)
        duration_s = self.cell.run["duration_s"]
        for program, operation in order:
            answer = self.ask(program, do="sample", operation=operation, duration_s=duration_s)
            found[sample_name(program, operation)] = [answer["seconds"]]
        for batch, program in {program.batch: program for program in asked_for}.items():
            found[limit_name(batch)] = [self.ask(program, do="limit", duration_s=duration_s)["seconds"]]
        return found

    def ask(self, program: Program, **request: Any) -> dict[str, Any]:
        """The answer of the program's backend; without one all processes are ended and Died is raised."""
        listener = self.listener(program.backend)
        limit_s = max(0.0, self.deadline - time.monotonic())
        try:
            return ask(listener, request | {"program": asdict(program)}, limit_s, self.tick)
        except Died as died:
            self.residents.close()
            raise Died(replace(died.ended, detail=f"{program.backend}: {died.ended.detail}")) from None

    def listener(self, backend: str) -> Listener:
        """The backend's process."""
        residents = self.residents
        if backend not in residents.listeners:
            variables = residents.stack.enter_context(worker_variables(self.cell))
            residents.listeners[backend] = residents.stack.enter_context(isolated(COMMAND, variables))
        return residents.listeners[backend]


def programs_of(cell: Cell) -> tuple[Program, ...]:
    """The programs that a cell compares."""
    return tuple(Program(**{**fields, "hidden": tuple(fields["hidden"])}) for fields in cell.run["programs"])


def limit_name(batch: int) -> str:
    """Name of the sample of the product of matrices that dominates an update."""
    return f"product {batch}"
