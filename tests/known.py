"""A campaign whose durations are given: what every figure of a report must be follows by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchback.measure import plan
from benchback.measure.record import Attempt, Cell, Record
from benchback.measure.store import Store, create
from benchback.measure.study import Product, Study, variants

ENVS, MODELS = ("CartPole-v1", "Acrobot-v1"), ("small", "large")
ITERATIONS = 20
BLOCKS = 3


@dataclass(frozen=True)
class Known:
    """What was put in. Functions take the backend, the environment and the model."""

    backends: Sequence[str]
    steady_s: Callable[[str, str, str], float | None]
    """Seconds of an iteration; None where a run does not settle."""
    cold_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds until the first call is done; 5 unless told otherwise. The first call takes 3 of them."""
    envs: Sequence[str] = ENVS
    models: Sequence[str] = MODELS
    noise: float = 0.0
    """Standard deviation of a run's log duration."""
    blocks: int = BLOCKS
    losses: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Value loss of the first iterations by backend; with it runs say that they began with equal weights."""
    ledger: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """More of the ledger by backend."""


def build(path: Path, known: Known) -> Store:
    """The store of such a campaign, every slot filled."""
    axes = {"env": [f"gymnax/{env}" for env in known.envs], "model": known.models}
    product = Product(axes={**axes, "variant": variants(known.backends)}, fixed={"num_iterations": ITERATIONS})
    study = Study("known", (product,), min_blocks=known.blocks, max_blocks=known.blocks)
    cells, slots = plan.schedule(study, 0)
    campaign = {"study": study.to_dict(), "study_id": study.id, "seed": 0, "fingerprint": {"code": "0"}}
    store = create(path, campaign, cells, slots)
    proofs = {getattr(cell, "proof", f"ppo/{cell.run['backend']}"): "pass" for cell in cells}
    store.add_event("parity", {"code": "0", "levels": ["L0", "L1", "L2"], "verdicts": proofs})
    generator, by_id = np.random.default_rng(0), store.cells()
    while lease := store.lease("known", 1e6):
        record = record_of(by_id[lease.slot.cell], lease.slot.seed, known, float(generator.normal(0, known.noise)))
        ended = {"outcome": "ok", "duration_s": record.marks["finished"], "record": record}
        store.finish(lease, Attempt(lease.slot.id, lease.number, started_at="2026-01-01T00:00:00.000+00:00", **ended))
    return store


def record_of(cell: Cell, seed: int, known: Known, noise: float) -> Record:
    """A run without any warm-up; one that does not settle doubles its time at the end."""
    backend, env, model = cell.run["backend"], cell.run["env"].rpartition("/")[2], cell.run["model"]
    steady_s = known.steady_s(backend, env, model)
    each = np.full(ITERATIONS, steady_s or 1.0) * np.exp(noise)
    if steady_s is None:
        each[-4:] *= 2
    each[0] = 3.0
    cold = known.cold_s.get(backend, 5.0)
    marks = {"imported": 0.5, "built": 1.0, "initialised": 2.0, "first_call": cold}
    marks["finished"] = cold + float(each[1:].sum())
    samples: dict[str, list[float | None]] = {
        "total_s": each.tolist(),
        "episode_return": [None, *[20.0] * (ITERATIONS - 1)],
        "compiles": [1.0, *[0.0] * (ITERATIONS - 1)],
        "rss_bytes": [1e8] * ITERATIONS,
    }
    ledger = {"seed": seed, "iterations_per_call": 1, "parameters": 1, "backend": backend, "dtype": "float32"}
    if known.losses:
        first = known.losses[backend]
        samples["value_loss"] = [*first, *[0.5] * (ITERATIONS - len(first))]
        ledger["weights"] = f"of seed {seed}"
    return Record(samples, marks, ledger | dict(known.ledger.get(backend, {})), {"peak_rss_bytes": 1e8})
