"""A coordinator whose runs take milliseconds: the times come from a model, everything else is the real thing.

`python campaign_double.py STORE [FAULT]`: works on the campaign of STUDY until it is complete or it is asked to stop;
with a FAULT, its workers are processes that do that instead of nothing.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from worker_double import record

from benchback.cli.arguments import on_stop
from benchback.measure import coordinator
from benchback.measure.coordinator import Hooks
from benchback.measure.process import Ended, run_cell
from benchback.measure.record import Cell
from benchback.measure.study import Product, Study

MACHINE = {"cpu": "a model", "code": "1"}
BACKENDS = ("linen", "nnx", "equinox")
FIXED = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "num_epochs": 1, "hidden_sizes": [8], "num_iterations": 6}


def study(backends: Iterable[str] = BACKENDS, gammas: Iterable[float] = (0.99, 0.9), **changes: Any) -> Study:
    """A group for every gamma, with every backend in it."""
    product = Product(axes={"backend": list(backends), "gamma": list(gammas)}, fixed=FIXED)
    options: dict[str, Any] = {"min_blocks": 2, "max_blocks": 8, "precision": 0.03, "rerun_noisy": False}
    options |= {"protocol": "runs"}
    return Study(name="double", products=(product,), **options | changes)


STUDY = study()


def modelled(
    cell: Cell,
    seed: int,
    timeout_s: float = 0.0,
    tick: Callable[[], bool] = lambda: True,
    *,
    cv: float = 0.02,
    effects: Mapping[str, float] | None = None,
    takes_s: float = 0.0,
) -> Ended:
    """A run whose times depend on nothing but cell and seed: a block's drift, a run's own deviation, an effect."""
    drift = np.random.default_rng([seed, int(cell.group, 16)]).normal(0, 0.05)
    own = np.random.default_rng([seed, int(cell.id, 16)]).normal(0, cv)
    slower = 1 + (effects or {}).get(cell.run["backend"], 0.0)
    time.sleep(takes_s)
    found = record(0.01 * slower * float(np.exp(drift + own)), seed=seed)
    return Ended("ok", duration_s=takes_s, messages=[{"kind": "record", "record": asdict(found)}])


def proven(proofs: Iterable[str], fingerprint: Mapping[str, Any], tick: Callable[[], bool]) -> dict[str, str]:
    return dict.fromkeys(proofs, "pass")


def quiet() -> dict[str, float]:
    return {"time_s": time.monotonic(), "own_s": 0.0, "busy_s": 0.0}


HOOKS = Hooks(launch=modelled, prove=proven, sample=quiet, canary=lambda: {"matmul_s": 0.001, "memcpy_s": 0.001})


def work(path: Path, hooks: Hooks = HOOKS, study: Study = STUDY, **options: Any) -> bool:
    """Whether the campaign at `path` is complete after this coordinator."""
    with coordinator.open_campaign(path, study, fingerprint=MACHINE, **options) as store:
        return coordinator.work(store, study, hooks)


def slowly(path: Path) -> None:
    """For a coordinator that is to be disturbed."""
    work(path, replace(HOOKS, launch=partial(modelled, takes_s=0.002)))


def main() -> None:
    path, *fault = sys.argv[1:]
    launch = modelled
    if fault:
        command = (sys.executable, str(Path(__file__).parent / "worker_double.py"), *fault)
        launch = partial(run_cell, command=command)
    hooks = replace(HOOKS, asked_to_stop=on_stop(), launch=launch)
    sys.exit(0 if work(Path(path), hooks, study(gammas=(0.9,), max_blocks=2)) else 130)


if __name__ == "__main__":
    main()
