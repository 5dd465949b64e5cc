"""Profilers run over steady iterations: cProfile for Python, the framework's own for the rest."""

import cProfile
import pstats
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchback.agent import start
from benchback.tools.profile.plan import ProfilePlan
from benchback.tools.profile.timing import Steady
from benchback.training import advance

MOST_TRACED = 3
"""Iterations in the framework's trace: each may be a hundred thousand events."""
MOST_FUNCTIONS = 40

Functions = list[dict[str, Any]]


def trace(plan: ProfilePlan, steady: Steady, out: Path) -> tuple[Functions, dict[str, Path]]:
    """The Python functions that took longest, and the files of both profilers."""
    state = start(steady.whole, plan.run.seed)
    state = _iterate(steady, state, plan.warmup)
    profiler = cProfile.Profile()
    profiler.enable()
    state = _iterate(steady, state, plan.iterations)
    profiler.disable()
    files = {"cprofile": out / "profile.pstats", "trace": out / "trace.json.gz"}
    profiler.dump_stats(files["cprofile"])
    tracing = _torch if plan.run.framework == "torch" else _jax
    with tracing(files["trace"]):
        _iterate(steady, state, min(plan.iterations, MOST_TRACED))
    return functions(profiler, plan.iterations), files


def _iterate(steady: Steady, state: Any, calls: int) -> Any:
    """One step of the training loop: a call, and its metrics on the host."""
    for _ in range(calls):
        state, metrics = advance(steady.whole, state)
        steady.backend.block(metrics)  # a separate call, so that waiting is a row of its own in the profile
        steady.backend.fetch(metrics)
    return state


@contextmanager
def _jax(path: Path) -> Iterator[None]:
    """Run JAX's profiler; keep the trace that Perfetto opens."""
    import jax

    with tempfile.TemporaryDirectory(prefix="benchback-trace-") as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            yield
        (written,) = Path(folder).rglob("perfetto_trace.json.gz")
        shutil.move(written, path)


@contextmanager
def _torch(path: Path) -> Iterator[None]:
    """Run torch's profiler, on the CPU and on a GPU where there is one."""
    from torch.profiler import profile, supported_activities

    with profile(activities=supported_activities()) as profiler:
        yield
    profiler.export_chrome_trace(str(path))


def functions(profiler: cProfile.Profile, calls: int) -> Functions:
    """The functions with the most time of their own, per call of the program."""
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # pyright: ignore[reportAttributeAccessIssue]
    found = [
        {"function": _name(*place), "calls": count / calls, "own_s": own / calls, "total_s": total / calls}
        for place, (_, count, own, total, _) in stats.items()
    ]
    return sorted(found, key=lambda row: -row["own_s"])[:MOST_FUNCTIONS]


def _name(file: str, line: int, function: str) -> str:
    """`math/jax/returns.py:12 gae`; of a file outside of this package, its last two parts."""
    if file == "~":
        return function
    package = str(Path(__file__).parents[2])
    short = file.removeprefix(f"{package}/") if file.startswith(package) else "/".join(Path(file).parts[-2:])
    return f"{short}:{line} {function}"
