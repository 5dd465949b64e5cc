"""Where an iteration's time goes, once everything is compiled: parts, Python functions, the framework's own trace.

`timing.py` takes the times, `parts.py` measures each part by itself (`jax_parts.py` and `torch_parts.py` build them),
`traces.py` runs the profilers, `updates.py` compares the updates of two backends, `page.py` shows it all. What is
profiled is the run as `benchback train` would train it. Importing this imports no framework.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.folder import default_path
from benchback.train import Run

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Plan:
    """What to profile and for how long."""

    run: Run
    warmup: int = 3
    """Iterations before anything is measured."""
    iterations: int = 10
    """Steady iterations of every measurement."""
    compare: str | None = None
    """Backend whose updates to time beside the run's own."""

    def __post_init__(self) -> None:
        for name in ("warmup", "iterations"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        if self.compare == self.run.backend:
            raise InputError(f"compare={self.compare} is the backend of the run itself; choose another")
        if self.compare is not None:
            self.rival()

    def rival(self) -> Run:
        """The run in the backend it is compared with, in that one's best mode."""
        assert self.compare is not None
        return replace(self.run, backend=self.compare, mode="best", unit="phase")


def profile(plan: Plan, out: Path, progress: Progress = lambda what, done, total: None) -> dict[str, Any]:
    """Everything that was measured, JSON-able; its files are in the new folder `out`."""
    from benchback.profile import page, parts, timing, traces, updates

    if out.exists():
        raise InputError(f"{out} exists; choose another --out or remove it")
    plan = replace(plan, run=lasting(plan))
    total = 5 if plan.compare else 4
    progress("warming up and timing whole iterations", 0, total)
    steady = timing.steady(plan)
    out.mkdir(parents=True)
    progress("profiling Python and tracing the framework", 1, total)
    functions, files = traces.trace(plan, steady, out)
    progress("timing the parts", 2, total)
    found: dict[str, Any] = {"run": plan.run.to_dict(), "warmup": plan.warmup, "iterations": plan.iterations}
    found |= {"whole": asdict(steady.times), "parts": parts.table(plan, steady), "functions": functions}
    if plan.compare:
        progress("comparing updates", 3, total)
        found["updates"] = updates.compare(plan)
    progress("writing", total - 1, total)
    files |= page.write(found, out)
    progress("done", total, total)
    return found | {"files": {name: str(path) for name, path in files.items()}}


def lasting(plan: Plan) -> Run:
    """The run, long enough that nothing measured comes after its end: rates that are annealed would turn negative."""
    run, calls = plan.run, plan.warmup + 4 * plan.iterations
    if "num_iterations" not in {f.name for f in fields(run.config)}:
        return run
    wanted = max(run.config.num_iterations, calls * run.length)
    wanted += -wanted % run.length
    return replace(run, config=replace(run.config, num_iterations=wanted))


def default_out(run: Run) -> Path:
    """runs/profile-<algorithm>-<backend>-<env>-<mode>-<unit>."""
    path = default_path(run)
    return path.with_name(f"profile-{path.name}".removesuffix(f"-seed{run.seed}"))
