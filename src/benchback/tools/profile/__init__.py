"""Profile of a steady iteration: its parts, Python functions, the framework's own trace.

`plan.py` defines what is profiled, `timing.py` takes the times, `parts.py` measures each part by itself (`jax_parts.py`
and `torch_parts.py` build them), `traces.py` runs the profilers, `updates.py` compares the updates of two backends,
`page.py` shows it all. The run is executed as `benchback train` would. Importing this imports no
framework.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.tools.profile.plan import ProfilePlan, default_out, lasting

__all__ = ["ProfilePlan", "default_out", "profile"]

Progress = Callable[[str, int, int], None]


def profile(plan: ProfilePlan, out: Path, progress: Progress = lambda what, done, total: None) -> dict[str, Any]:
    """Everything that was measured, JSON-able; its files are in the new folder `out`."""
    from benchback.tools.profile import page, parts, timing, traces, updates

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
