"""The worker: one run in a fresh process that imports one backend. It measures and reports; it decides nothing.

Started as `python -m benchback.measure.worker FD` with a job as JSON on its standard input; frames go to file
descriptor FD. The output of the frameworks goes to stdout and stderr, where it cannot garble frames.
"""

import ctypes
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchback.measure.record import Cell, Record

if TYPE_CHECKING:
    from benchback.measure.program import Program

MOST_LATE = 0.2
"""Share of the pieces of a training after which reading its results may be late."""
POLL_S = 0.01
CACHES = ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@dataclass(frozen=True)
class Job:
    """Input of a worker."""

    cell: Cell
    seed: int
    launched_s: float
    """time.monotonic() of the coordinator when it started the process: the zero of all marks."""
    coordinator: int = 0
    """Pid of the parent with which the worker must die; 0 for none."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` is its inverse. A worker of older code reads it, too, if the cell has nothing new."""
        return asdict(self) | {"cell": self.cell.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Job":
        """The job that `to_dict` wrote."""
        return cls(**{**fields, "cell": Cell.from_dict(fields["cell"])})


def main() -> None:
    """Read the job, do it, send its record."""
    from benchback.measure.wire import write_frame

    job = Job.from_dict(json.loads(sys.stdin.read()))
    die_with(job.coordinator)
    with os.fdopen(int(sys.argv[1]), "wb") as stream:
        record = perform(job)
        write_frame(stream, {"kind": "record", "record": asdict(record)})
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Frameworks take a second to free what the system frees at exit.
    os._exit(0)


def die_with(coordinator: int) -> None:
    """Ask the system to kill this process when its coordinator dies: an orphan would disturb later runs."""
    if not coordinator or sys.platform != "linux":
        return
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != coordinator:
        os.kill(os.getpid(), signal.SIGKILL)


def perform(job: Job) -> Record:
    """Build, run and measure a whole training. Everything that is not training happens before or after the clock."""
    training = Training(job)
    training.call(training.run.config.num_iterations // training.run.length)
    return training.record()


class Training:
    """A training in this process: built once, then called and measured in one piece or in several."""

    def __init__(self, job: Job, weights: "SharedWeights | None" = None) -> None:
        """Build it, up to its initial state, with the networks that it shares with others, if any."""
        from benchback import registry
        from benchback.agent import start
        from benchback.measure.program import build
        from benchback.training.run import Run, environment

        self.job, self.marks, self.samples = job, {}, {}
        self.pieces, self.late = 0, []
        self.mark("started")
        self.caches_before = cached_files()
        self.run = run = Run.from_dict({**job.cell.run, "gradients": job.cell.gradients, "seed": job.seed})
        make, self.backend = registry.load(run.algorithm, run.backend, run.gradients)
        self.mark("imported")
        self.env = environment(run, run.config.num_envs)
        self.mark("env_built")
        self.program = build(make(run.config, self.env), self.backend, run, job.cell)
        self.agent = self.program.agent
        self.mark("built")
        self.state = start(self.agent, run.seed)
        if weights is not None:
            self.state = with_shared(self.program, self.state, weights)
        self.mark("initialised")
        self.compiled_before, self.crossed = self.backend.compiles(), [crossings(self.env)]

    def mark(self, name: str) -> None:
        """Note the time since the process was started."""
        self.marks[name] = time.monotonic() - self.job.launched_s

    def call(self, calls: int, **places: int) -> list[float]:
        """Seconds of `calls` more calls of the program; `places` are kept with each of them."""
        from benchback.measure import clock

        def first_done() -> None:
            if "first_call" not in self.marks:
                self.mark("first_call")
                self.crossed.append(crossings(self.env))

        queued_s = clock.all_queueing_s()
        self.state, tape, metrics = clock.record_calls(
            self.agent, self.backend, self.state, calls, self.job.cell.timing, first_done
        )
        self.mark("finished")
        queued_s = clock.all_queueing_s() - queued_s
        try:
            clock.check_finished(self.backend, metrics[-1], tape)
        except clock.Unsynchronised as late:
            self.late.append(late)
        found = asdict(tape) | per_call([self.program.per_agent(each) for each in self.backend.fetch(metrics)])
        if self.job.cell.threads == 1:
            found["waited_s"] = clock.waited_s(tape, queued_s)
        found |= {name: [place] * calls for name, place in places.items()}
        for name, values in found.items():
            self.samples.setdefault(name, []).extend(values)
        self.pieces += 1
        return tape.total_s

    def skip(self, calls: int) -> None:
        """Call the program without measuring."""
        from benchback.training import advance

        for _ in range(calls):
            self.state, metrics = advance(self.agent, self.state)
            self.backend.block(metrics)

    def record(self) -> Record:
        """What was measured so far; raises Unsynchronised if results were late after more than every fifth piece.

        On a busy machine a read is late now and then; a backend that does not wait for its device is late every time.
        """
        from benchback.measure import clock

        if len(self.late) > MOST_LATE * self.pieces:
            raise self.late[-1]
        kept = {name: [_finite(x) for x in values] for name, values in self.samples.items() if values}
        memory = {"peak_rss_bytes": float(clock.peak_bytes())} | device_memory(self.run.framework)
        return Record(kept, dict(self.marks), self.ledger(), memory)

    def ledger(self) -> dict[str, Any]:
        """What this run did and how."""
        from benchback import envs

        run, totals = self.run, self.samples["total_s"]
        return {
            **execution(self.job),
            **({"members": self.program.members, "group": self.program.group} if self.program.members > 1 else {}),
            **learning(self.program.weights(self.state), run, self.env.observation_shape),
            "env_steps_per_call": run.config.batch_size * run.length * self.program.members,
            "iterations_per_call": run.length,
            "calls": len(totals),
            "compiles_to_initialise": self.compiled_before,
            **counts(self.samples),
            "bridged": run.framework == "torch" and envs.about(run.env).where == "jax",
            **crossing(self.crossed, crossings(self.env), totals),
            "dtype": run.config.dtype,
            "cached_files_before": self.caches_before,
            "cached_files_after": cached_files(),
            **precision(run.framework),
        }


@dataclass(frozen=True)
class SharedWeights:
    """A file with the networks from which several trainings start."""

    file: Path
    writes: bool
    """Whether this training writes the file; the others load it, and wait for it if need be."""


def with_shared(program: "Program", state: Any, weights: SharedWeights) -> Any:
    """The initial state with the shared networks; of the training that writes them, those of its first agent."""
    from safetensors.numpy import load_file

    from benchback.training.checkpoint import replacing

    if weights.writes:
        with replacing(weights.file) as draft:
            write_networks(draft, program.weights(state))
        if program.members == 1:
            return state
    while not weights.file.exists():  # its writer is starting; if it fails, this process is ended
        time.sleep(POLL_S)
    return program.load(state, load_file(weights.file))


def write_networks(file: Path, weights: Mapping[str, Any]) -> None:
    """Write online and target networks: equal in every framework at the start of a training."""
    import numpy as np
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(x) for name, x in network_arrays(weights).items()}, file)


def network_arrays(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of online and target networks."""
    from benchback.agent import networks

    targets = {name: x for name, x in weights.items() if name.startswith("target/")}
    return networks(dict(weights)) | targets


def execution(job: Job) -> dict[str, Any]:
    """Ledger of the execution: backend, mode, unit, threads, processors, seed."""
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        **{name: job.cell.run[name] for name in ("backend", "mode", "unit")},
        "gradients": job.cell.gradients,
        "timing": job.cell.timing,
        "threads": job.cell.threads,
        "processors": len(processors),
        "seed": job.seed,
    }


def learning(weights: dict[str, Any], run: Any, shape: Sequence[int]) -> dict[str, Any]:
    """Ledger of the learning of one agent: parameters, optimiser steps, and the networks' work in an iteration."""
    from benchback.agent import networks
    from benchback.measure.flops import layer_sizes, work_ledger

    # In JAX a lax.cond computes the values of final observations only if an episode was truncated.
    sizes = layer_sizes(weights, run.network, shape)
    work = work_ledger(run.config.network_rows, sizes, skips=run.framework == "jax")
    return work | {
        "parameters": sum(x.size for x in networks(weights).values()),
        "optimiser_steps": sum(int(x) for name, x in weights.items() if name.endswith("adam/count")),
    }


def counts(samples: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Ledger of the run's compiles, host syncs and transfers."""
    syncs = samples["host_syncs"]
    return {
        "compiles": sum(samples["compiles"]),
        "host_syncs_per_call": max(syncs[1:] or syncs),
        "transfers_per_call": max(samples["transfers"]),
    }


def crossings(env: Any) -> Any:
    """Transfer counts of a Python environment so far; None for one inside the program."""
    return env.external and replace(env.external.transfer_stats)


def crossing(earlier: Sequence[Any], now: Any, total_s: Sequence[float]) -> dict[str, Any]:
    """Cost per call of the transfers to a Python environment and back, once everything is compiled.

    `earlier` has the counts before and after the first call.
    """
    if now is None:
        return {"host_env": False}
    since, spent_s = (earlier[1], total_s[1:]) if len(total_s) > 1 else (earlier[0], total_s)
    return {
        "host_env": True,
        "env_transfers_per_call": round((now.transfers - since.transfers) / len(spent_s)),
        "env_bytes_per_call": round((now.bytes - since.bytes) / len(spent_s)),
        "env_share": round((now.seconds - since.seconds) / sum(spent_s), 3),
    }


def precision(framework: str) -> dict[str, Any]:
    """The device and its matmul precision, asked of the loaded framework only."""
    if framework == "torch":
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        return {"device": device, "matmul_precision": torch.get_float32_matmul_precision()}
    import jax

    precision = jax.config.jax_default_matmul_precision or "default"  # pyright: ignore[reportAttributeAccessIssue]
    # On a CPU the default is full precision; on recent GPUs it is not, and the ledger must say so.
    on_cpu = jax.default_backend() == "cpu"
    return {
        "device": jax.devices()[0].device_kind,
        "matmul_precision": "highest" if on_cpu and precision == "default" else precision,
    }


def device_memory(framework: str) -> dict[str, float]:
    """Peak bytes on an accelerator, where there is one that reports it."""
    if framework == "torch":
        import torch

        return {"peak_device_bytes": float(torch.cuda.max_memory_allocated())} if torch.cuda.is_available() else {}
    import jax

    found = jax.devices()[0].memory_stats() or {}
    return {"peak_device_bytes": float(found["peak_bytes_in_use"])} if "peak_bytes_in_use" in found else {}


def per_call(metrics: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Metrics by name, one value per iteration, in order."""
    import numpy as np

    return {name: [float(x) for row in metrics for x in np.atleast_1d(row[name])] for name in sorted(metrics[0])}


def cached_files(variables: Mapping[str, str] = os.environ) -> int:
    """Files in the compile caches of a process with these environment variables: none before a fresh run."""
    folders = [Path(variables[name]) for name in CACHES if name in variables]
    return sum(1 for folder in folders if folder.is_dir() for file in folder.rglob("*") if file.is_file())


def _finite(value: int | float) -> float | None:
    return float(value) if math.isfinite(value) else None


if __name__ == "__main__":
    main()
