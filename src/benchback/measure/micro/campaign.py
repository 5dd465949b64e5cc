"""Who is asked for what, when: one process per backend, samples interleaved."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchback import registry
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.micro.operations import HOLLOW, IDIOMS, OPERATIONS, Subject
from benchback.measure.process import end_group

BATCHES = (1, 32, 1024)
HIDDEN = (64, 64)

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Plan:
    """What to time, how often and for how long."""

    subjects: tuple[Subject, ...]
    rounds: int
    duration_s: float
    """Of one sample."""
    threads: int
    seed: int = 0


@dataclass(frozen=True)
class Sample:
    """One median of one operation."""

    subject: Subject
    operation: str
    round: int
    seconds: float


@dataclass(frozen=True)
class Found:
    """Everything a comparison measured."""

    samples: list[Sample]
    compile_s: dict[Subject, dict[str, float]]
    """Seconds of each operation's first call."""
    product_s: dict[int, list[float]]
    """Batch -> seconds of the product of matrices that dominates an update, once per round."""


class WorkerFailed(InputError):
    """A worker process ended or could not do what it was asked."""


def plan_for(
    *,
    quick: bool = False,
    backends: Sequence[str] = (),
    batches: Sequence[int] = (),
    rounds: int | None,
    threads: int = 1,
) -> Plan:
    """The plan of the given choices; everything where nothing was chosen."""
    for name in backends:
        registry.choose("backend", name, registry.BACKENDS)
    for batch in batches:
        if batch < 1:
            raise InputError(f"batches={batch} must be at least 1")
    if rounds is not None and rounds < 2:
        raise InputError(f"rounds={rounds} gives no interval; choose at least 2")
    chosen = batches or ((32,) if quick else BATCHES)
    variants = [
        (name, mode)
        for name in backends or registry.BACKENDS
        for mode in registry.BACKENDS[name].modes
        if mode in IDIOMS and (not quick or mode == registry.BACKENDS[name].best)
    ]
    subjects = [Subject(*variant, batch, HIDDEN) for variant in variants for batch in chosen]
    return Plan(tuple(subjects), rounds or (5 if quick else 20), 0.01 if quick else 0.02, threads)


def hollow(subject: Subject) -> Subject:
    """The subject's twin with next to nothing to compute."""
    return replace(subject, batch=1, hidden=HOLLOW)


def run(plan: Plan, progress: Progress = lambda what, done, total: None) -> Found:
    """Compile everything, then sample round by round."""
    subjects = tuple(dict.fromkeys((*plan.subjects, *map(hollow, plan.subjects))))
    total = len(subjects) + plan.rounds
    found, order = Found([], {}, {}), random.Random(plan.seed)
    with ExitStack() as stack:
        names = dict.fromkeys(subject.backend for subject in subjects)
        workers = {name: stack.enter_context(worker(name, plan.threads)) for name in names}
        for done, subject in enumerate(subjects):
            progress(f"compiling {subject.backend} {subject.mode} {subject.batch}", done, total)
            answer = workers[subject.backend]({"do": "prepare", "subject": asdict(subject)})
            found.compile_s[subject] = answer["compile_s"]
        for turn in range(plan.rounds):
            progress(f"round {turn + 1}", len(subjects) + turn, total)
            asked = [(subject, operation) for subject in subjects for operation in OPERATIONS]
            order.shuffle(asked)
            for subject, operation in asked:
                request = {"do": "sample", "subject": asdict(subject), "operation": operation}
                answer = workers[subject.backend](request | {"duration_s": plan.duration_s})
                found.samples.append(Sample(subject, operation, turn, answer["seconds"]))
            for batch, subject in {subject.batch: subject for subject in plan.subjects}.items():
                request = {"do": "limit", "subject": asdict(subject), "duration_s": plan.duration_s}
                found.product_s.setdefault(batch, []).append(workers[subject.backend](request)["seconds"])
        progress("done", total, total)
    return found


@contextmanager
def worker(backend: str, threads: int) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """A process that answers requests about one backend."""
    answers, write_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="benchback-micro-") as caches, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchback.measure.micro.worker", str(write_end)],
            env=machine.variables(threads, caches, "cpu"),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(write_end,),
            start_new_session=True,
            text=True,
        )
        os.close(write_end)
        try:
            with os.fdopen(answers) as lines:
                yield lambda request: ask(process, lines, log, backend, request)
        finally:
            end_group(process)
            with suppress(BrokenPipeError):
                process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]


def ask(process: subprocess.Popen, lines: Any, log: Any, backend: str, request: dict[str, Any]) -> dict[str, Any]:
    """The worker's answer, or WorkerFailed with the last line it wrote."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = lines.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        process.wait(10)
        log.seek(0)
        last = next((line.strip() for line in reversed(log.read().splitlines()) if line.strip()), "no message")
        raise WorkerFailed(f"the {backend} process ended with code {process.returncode}: {last}")
    return json.loads(answer)
