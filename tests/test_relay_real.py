"""A small relay of real trainings: the runners do the same work, rest in between, and never train past their end."""

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY

from benchback.measure.metrics import run_metrics, run_turns
from benchback.measure.record import Cell, Record
from benchback.measure.relay import COMMAND, Pace, Relay, run_relay, warm_iterations
from benchback.measure.relay_worker import Runner
from benchback.measure.worker import Job, SharedWeights
from benchback.stats import relay_ratio
from benchback.training.run import Run

SEED = 7
WARM, ROUNDS = 3, 3
MEASURED = {"total_s", "cpu_s", "waited_s", "compiles", "host_syncs", "transfers", "rss_bytes"}
MEASURED |= {"round", "position", "iteration"}
"""Samples that are not metrics of training."""


def cell(backend: str, **changes: Any) -> Cell:
    fields = Run(TINY, backend=backend).to_dict() | changes
    return Cell({name: x for name, x in fields.items() if name != "seed"})


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    """Of a relay of two backends, in as few rounds as there can be."""
    cells = [cell("purejax"), cell("linen")]
    # Runners inherit few variables: the flags of conftest, with which programs compile fast, are given by `env`.
    flags = [f"{name}={os.environ[name]}" for name in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")]
    pace, command = Pace(turn_s=1e-4, relay_s=1e-4), ("env", *flags, *COMMAND)
    found = run_relay(Relay(cells, SEED, 600.0, pace, lambda: True, command=command))
    assert {ended.outcome for ended in found.values()} == {"ok"}, found
    return {x.run["backend"]: Record.from_dict(found[x.id].messages[0]["record"]) for x in cells}


def test_all_start_from_the_same_weights_and_learn_the_same(records: dict[str, Record]) -> None:
    one, two = records.values()
    assert one.ledger["weights"] == two.ledger["weights"]
    metrics = one.samples.keys() - MEASURED
    assert metrics == two.samples.keys() - MEASURED
    assert {"policy_loss", "value_loss"} <= metrics
    for name in sorted(metrics):
        first = [np.array(record.samples[name][:WARM], float) for record in (one, two)]
        np.testing.assert_allclose(*first, rtol=1e-4, atol=1e-4, err_msg=name)
    assert np.std(np.array(one.samples["policy_loss"][:WARM], float)) > 0, "nothing was learned: the test shows nothing"


def test_resting_runners_use_no_processor_and_nothing_is_compiled_in_a_turn(records: dict[str, Record]) -> None:
    for record in records.values():
        assert record.ledger["resting_cpu_share"] < 0.05
        assert record.ledger["waiting_share"] >= 0
        assert record.ledger["compiles_in_turns"] == 0
        assert record.ledger["compiles"] > 0
        assert record.ledger["protocol"] == "relay"


def test_turns_are_recorded_and_compared(records: dict[str, Record]) -> None:
    for record in records.values():
        assert set(run_turns(record)["steady"]) == set(range(1, ROUNDS + 1))
        assert record.samples["round"][: WARM + 1] == [0, 0, 0, 1]
        assert len(record.samples["waited_s"]) == len(record.samples["cpu_s"]) == len(record.samples["total_s"])
        busy_s, total_s = (sum(x or 0.0 for x in record.samples[name][1:]) for name in ("cpu_s", "total_s"))
        assert 0 < busy_s < 1.5 * total_s
        found = run_metrics(record)
        assert isinstance(found["total"], float)
        assert found["total"] > found["cold_start"] > 0  # pyright: ignore[reportOperatorIssue]
    a, b = (run_turns(record)["steady"] for record in records.values())
    assert isinstance(relay_ratio(a, b), float)


def test_a_training_begins_again_before_its_learning_rate_ends(records: dict[str, Record]) -> None:
    for record in records.values():
        done = [int(x or 0) for x in record.samples["iteration"]]
        assert done[:WARM] == [1, 2, 3]
        assert max(done) <= TINY.num_iterations
        assert {(b if b > a else b - WARM) - (a if b > a else 0) for a, b in pairwise(done)} == {1}
        assert any(b < a for a, b in pairwise(done)), "it never began again: the test shows nothing"


def test_optimiser_steps_never_exceed_those_of_the_training(tmp_path: Path) -> None:
    """Of a cell that has only 3 iterations, all of them warm-up, the runner is given more."""
    job = Job(cell("purejax", num_iterations=3), SEED, time.monotonic())
    warm, most = warm_iterations([job.cell])
    runner = Runner(job, SharedWeights(tmp_path / "weights.safetensors", writes=True), warm, most)
    assert runner.ledger["calls"] == 3, "of the cell: a whole training is predicted from it"
    for number in range(1, 5):
        runner.turn(2, number, 0)
        steps = {int(x) for name, x in runner.training.agent.export(runner.training.state).items() if "count" in name}
        assert max(steps) == most * TINY.updates_per_iteration
    losses = runner.record().samples["policy_loss"]
    assert len(losses) == WARM + 8
    assert all(x is not None for x in losses)
    # With two iterations left, every turn begins where the warm-up ended: the same again.
    assert losses[3:5] == losses[5:7] == losses[7:9]
