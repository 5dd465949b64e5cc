"""A campaign that was never run: a whole store with plausible samples, known effects, failures and hostile names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchback.algorithms.fields import Rows
from benchback.measure import plan
from benchback.measure.flops import work_ledger
from benchback.measure.record import Attempt, Cell, Record
from benchback.measure.store import Lease, Store, create
from benchback.measure.study import Product, Study, every_mode, variants
from benchback.registry import BACKENDS

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>&amp;\"'`${1}"
"""Text that must come out as itself wherever it is shown."""

SLOWER = {"linen": 1.0, "nnx": 1.03, "equinox": 1.0, "haiku": 1.05, "purejax": 0.94, "pytorch": 3.0}
"""Steady time of a small model as a multiple of Linen's: what a report must find."""
COLD = {"linen": 6.0, "nnx": 8.0, "equinox": 6.5, "haiku": 6.2, "purejax": 5.0, "pytorch": 2.5}
MODEL = {"small": 1.0, "medium": 3.0, "large": 12.0}
ENV = {"CartPole-v1": 1.0, "Acrobot-v1": 1.3, "MountainCar-v0": 1.1, "Breakout-MinAtar": 2.4, "Asterix-MinAtar": 3.5}
ADDED_BYTES = 4096.0 * 30
"""Memory of every agent beyond the first."""
BEST = {"jit", "split", "flatten", "compile"}


@dataclass(frozen=True)
class Shape:
    """How large a synthetic campaign is."""

    envs: Sequence[str] = ("CartPole-v1", "Acrobot-v1", "Breakout-MinAtar", "Asterix-MinAtar")
    models: Sequence[str] = ("small", "medium", "large")
    backends: Sequence[str] = tuple(SLOWER)
    iterations: int = 60
    blocks: int = 5
    modes: bool = False
    """Every mode of every backend on the first environment, too."""
    sync: bool = True
    seed: int = 0
    speed: float = 1.0
    """Factor on every duration of PyTorch: another version of it, say."""
    agents: Sequence[int] = ()
    """Numbers of agents in one program that are measured, too, on the first environment."""


def study_of(shape: Shape) -> Study:
    """The study such a campaign would have run."""
    axes = {
        "env": [f"gymnax/{env}" for env in shape.envs],
        "model": shape.models,
        "variant": variants(shape.backends),
    }
    length = {"num_iterations": shape.iterations}
    parts = [Product(label="async", axes=axes, fixed=length)]
    if shape.sync:
        few = axes | {"model": shape.models[:1]}
        parts.append(Product(label="sync", axes=few, fixed=length | {"timing": "sync"}))
    if shape.agents:
        able = [name for name in shape.backends if BACKENDS[name].populations]
        here = {"env": f"gymnax/{shape.envs[0]}", "model": shape.models[0]}
        choice = {"members": shape.agents, "variant": variants(able)}
        parts.append(Product(label="agents", axes=choice, fixed=length | here))
    if shape.modes:
        fixed = length | {"env": f"gymnax/{shape.envs[0]}", "model": "small", "num_steps": 32}
        choice = {"variant": every_mode(without=("cudagraphs", "eager"))}
        parts.append(Product(label="modes", axes=choice, fixed=fixed))
    return Study("synthetic", tuple(parts), description=HOSTILE[:60], min_blocks=shape.blocks, max_blocks=shape.blocks)


def build(path: Path, shape: Shape, most: int | None = None) -> Store:
    """Write the store and fill every slot of it, or so many; the same shape gives the same samples."""
    study = study_of(shape)
    cells, slots = plan.schedule(study, shape.seed)
    fingerprint = {"code": "0123456789abcdef", "cpu": HOSTILE, "cpus": 2, "system": "Linux 6.1", "python": "3.11.7"}
    fingerprint |= {"git_commit": "f" * 40, "version jax": "0.10.2", "version torch": "2.13.0"}
    campaign = {"study": study.to_dict(), "study_id": study.id, "seed": shape.seed, "note": HOSTILE}
    campaign |= {"fingerprint": fingerprint, "benchback": "0.1.0", "comparable": True}
    store = create(path, campaign, cells, slots)
    found = {cell.proof: "pass" for cell in cells}
    store.add_event("parity", {"code": "0123456789abcdef", "levels": ["L0", "L1", "L2", "L3"], "verdicts": found})
    fill(store, shape, most)
    return store


def fill(store: Store, shape: Shape, most: int | None = None) -> None:
    """Give every open slot a result; or make so many runs, of which some are repeats of failed ones."""
    by_id = store.cells()
    generator = np.random.default_rng(shape.seed)
    made = 0
    while made != most and (lease := store.lease("synthetic", 1e6)):
        made += 1
        cell = by_id[lease.slot.cell]
        store.finish(lease, attempt_for(lease, cell, shape, generator))
        if lease.slot.order % len(shape.backends) == 0:
            when = {"group": cell.group, "block": lease.slot.block, "stratum": lease.slot.stratum, "when": "before"}
            times = 0.004 * np.exp(generator.normal(0, 0.02, 2))
            store.add_canary(when | {"matmul_s": float(times[0]), "memcpy_s": float(times[1])})


def attempt_for(lease: Lease, cell: Cell, shape: Shape, generator: np.random.Generator) -> Attempt:
    """A result; now and then a noisy one, and in one cell nothing but crashes."""
    record = record_for(cell, lease.slot.seed, shape, generator)
    noise = {"other_load": float(generator.gamma(1, 0.02)), "pressure": 0.01, "steal": 0.001, "throttled": 0.0}
    minute, second = divmod(lease.slot.order, 60)
    common: dict[str, Any] = {"slot": lease.slot.id, "number": lease.number, "noise": noise}
    common["started_at"] = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:{second:02}.000+00:00"
    if fails(cell, shape):
        return Attempt(outcome="signal", duration_s=1.0, detail=f"signal 9 {HOSTILE}", log=HOSTILE, **common)
    tags = ("noise",) if lease.number == 0 and generator.random() < 0.02 else ()
    duration = record.marks["finished"] + 0.2
    return Attempt(outcome="ok", duration_s=duration, tags=tags, record=record, **common)


def fails(cell: Cell, shape: Shape) -> bool:
    """Haiku crashes on the last environment with the largest model."""
    last = cell.run["env"].endswith(shape.envs[-1]) and cell.run["model"] == shape.models[-1]
    return last and cell.run["backend"] == "haiku" and len(shape.envs) > 1 and cell.timing == "async"


def drifts(cell: Cell, shape: Shape) -> bool:
    """Equinox never settles on the second environment with the largest model."""
    here = cell.run["env"].endswith(shape.envs[min(1, len(shape.envs) - 1)]) and cell.run["model"] == shape.models[-1]
    return here and cell.run["backend"] == "equinox" and len(shape.envs) > 1 and cell.timing == "async"


def steady_seconds(cell: Cell, shape: Shape) -> float:
    """What an iteration costs: the environment and the model, and a framework whose overhead shrinks beside them."""
    model, env = MODEL[cell.run["model"]], ENV[cell.run["env"].rpartition("/")[2]]
    overhead = (SLOWER[cell.run["backend"]] - 1) / model ** (0.8 if cell.run["backend"] == "pytorch" else 0.0)
    slow = 1.0 if cell.run["mode"] in BEST else 8.0
    speed = shape.speed if cell.run["backend"] == "pytorch" else 1.0
    seconds = 0.02 * (model + env) * (1 + overhead) * slow * speed * (1.05 if cell.timing == "sync" else 1.0)
    return seconds * together(cell.members)


def together(agents: int) -> float:
    """How many times as long as one agent so many take in one program: each costs half in the limit."""
    return 0.5 * agents + 0.5


def record_for(cell: Cell, seed: int, shape: Shape, generator: np.random.Generator) -> Record:
    """Compile spike, warm-up, steady iterations with noise that a run and a block share, and a curve that rises."""
    per_call = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
    calls = shape.iterations // per_call
    run_noise = generator.normal(0, 0.004) + 0.02 * math.sin(seed)
    seconds = per_call * steady_seconds(cell, shape) * np.exp(run_noise + generator.normal(0, 0.02, calls))
    seconds[1 : 1 + calls // 15] *= 1.3
    seconds[1 + calls // 15 : 1 + calls // 6] *= 1.1
    if drifts(cell, shape):
        seconds *= np.linspace(1, 1.3, calls)
    cold = (
        COLD[cell.run["backend"]]
        * (1 + (cell.members > 1))
        * (1 if cell.run["mode"] in BEST else 0.6)
        * math.exp(generator.normal(0, 0.02))
    )
    seconds[0] = 0.6 * cold
    place = np.linspace(0, 1, calls)
    returns = 20 + 400 * place**1.5 * np.exp(generator.normal(0, 0.1)) + generator.normal(0, 8, calls)
    memory = (
        6e8
        + ADDED_BYTES * (cell.members - 1)
        + 1e8 * SLOWER[cell.run["backend"]]
        + np.linspace(0, 2e7 if cell.run["backend"] == "nnx" else 0, calls)
    )
    samples: dict[str, list[float | None]] = {
        "total_s": seconds.tolist(),
        "episode_return": [None, *returns[1:].tolist()],
        "rss_bytes": (memory // 4096 * 4096).tolist(),
        "compiles": [2.0, *[0.0] * (calls - 1)],
        "host_syncs": [1.0] * calls,
        "loss": np.exp(-place).tolist(),
    }
    if cell.timing == "sync":
        share = 0.2 + 0.1 * ENV[cell.run["env"].rpartition("/")[2]]
        samples |= {"rollout_s": (share * seconds).tolist(), "update_s": ((1 - share) * seconds).tolist()}
    marks = {"imported": 0.15 * cold, "built": 0.2 * cold, "initialised": 0.4 * cold, "first_call": cold}
    marks["finished"] = cold + float(seconds[1:].sum())
    steps = cell.run["num_envs"] * cell.run["num_steps"] * cell.members
    ledger = {"seed": seed, "iterations_per_call": per_call, "env_steps_per_call": steps * per_call, "parameters": 4610}
    ledger |= {"backend": cell.run["backend"], "mode": cell.run["mode"], "unit": cell.run["unit"], "dtype": "float32"}
    ledger |= {"compiles": 2, "host_syncs_per_call": 1, "transfers_per_call": 0, "matmul_precision": "highest"}
    rows = {"critic": Rows(forward=steps, gradient=10 * steps, final=steps)}
    ledger |= work_ledger(rows, {"critic": (4, 64, 64, 1)}, skips=cell.run["backend"] != "pytorch")
    ledger |= {"members": cell.members, "group": 1} if cell.members > 1 else {}
    return Record(samples, marks, ledger, {"peak_rss_bytes": float(memory.max())})
