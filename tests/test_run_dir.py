"""The folder of a run: rows, cadence of checkpoints, and what a resumed run continues; the training is a double."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchback.training import Progress, checkpoint, run_dir
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run

LENGTH, ITERATIONS = 2, 12


@pytest.fixture
def run() -> Run:
    return Run.from_dict({"num_envs": 4, "num_steps": 8, "num_iterations": ITERATIONS, "num_minibatches": 2})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes by one second with every call of the program."""
    passed = SimpleNamespace(s=100.0)
    monkeypatch.setattr(run_dir.time, "perf_counter", lambda: passed.s)
    return passed


@pytest.fixture(autouse=True)
def saved(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> list[int]:
    """Iterations at which a checkpoint was written; training is two iterations a call, both compiled by the first."""
    written: list[int] = []

    def train(run: Run, at: Checkpoint | None = None) -> Iterator[Progress]:
        for done in range(at.iteration if at else 0, run.config.num_iterations, LENGTH):
            clock.s += 1.0
            rows = [{"episode_return": float(i)} for i in range(done + 1, done + LENGTH + 1)]
            weights = {"network/w": np.full(2, done + LENGTH, np.float32)}
            yield Progress(done + LENGTH, rows, 2 if done == 0 else 0, lambda weights=weights: weights)

    write = checkpoint.write

    def counted(path: Path, state: Checkpoint) -> None:
        written.append(state.iteration)
        write(path, state)

    monkeypatch.setattr(run_dir, "train", train)
    monkeypatch.setattr(checkpoint, "write", counted)
    return written


def stopping_after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls - 1, -1, -1))
    return lambda: next(left) == 0


def test_rows_count_iterations_env_steps_and_compilations_once(run: Run, tmp_path: Path) -> None:
    rows = run_dir.train_run(run, out=tmp_path / "run").run_dir.rows()
    assert [int(row["iteration"]) for row in rows] == list(range(1, ITERATIONS + 1))
    assert [int(row["env_steps"]) for row in rows] == [32 * i for i in range(1, ITERATIONS + 1)]
    assert [float(row["episode_return"]) for row in rows] == list(range(1, ITERATIONS + 1))
    assert [int(row["compiles"]) for row in rows] == [2] + [0] * (ITERATIONS - 1)
    assert [float(row["seconds"]) for row in rows] == [1 + i // LENGTH for i in range(ITERATIONS)]


@pytest.mark.parametrize(
    ("every", "expected"),
    [(1, [2, 4, 6, 8, 10, 12]), (2, [2, 4, 6, 8, 10, 12]), (4, [4, 8, 12]), (5, [6, 12]), (100, [12]), (None, [12])],
)
def test_checkpoints_are_as_far_apart_as_was_asked(
    every: int | None, expected: list[int], run: Run, tmp_path: Path, saved: list[int]
) -> None:
    run_dir.train_run(run, out=tmp_path / "run", checkpoint_every=every)
    assert saved == expected


def test_without_a_wish_checkpoints_are_half_a_minute_apart(
    run: Run, tmp_path: Path, saved: list[int], clock: SimpleNamespace
) -> None:
    def passes(rows: list[dict[str, Any]]) -> None:
        clock.s += 14.0

    run_dir.train_run(run, out=tmp_path / "run", on_rows=passes)
    assert saved == [4, 8, 12]


def test_a_resumed_run_goes_on_where_its_checkpoint_was(run: Run, tmp_path: Path, saved: list[int]) -> None:
    path = tmp_path / "run"
    whole = run_dir.train_run(run, out=tmp_path / "whole").run_dir.rows()
    saved.clear()
    stopped = run_dir.train_run(run, out=path, asked_to_stop=stopping_after(3))
    assert (stopped.iteration, stopped.interrupted, saved) == (6, True, [6])
    # Rows after the checkpoint, as a process leaves them that was killed later on.
    stopped.run_dir.append([row | {"iteration": i} for i, row in zip((7, 8), whole[6:8], strict=True)])
    folder, at = run_dir.open_run(path)
    assert len(folder.rows()) == 8
    finished = run_dir.train_run(run, origin=(path, at))
    assert (finished.iteration, finished.interrupted, saved) == (12, False, [6, 12])
    rows = finished.run_dir.rows()
    assert [row["iteration"] for row in rows] == [row["iteration"] for row in whole]
    assert [float(row["seconds"]) for row in rows] == [float(row["seconds"]) for row in whole]


def test_another_run_from_a_checkpoint_has_a_folder_and_a_clock_of_its_own(run: Run, tmp_path: Path) -> None:
    run_dir.train_run(run, out=tmp_path / "first", asked_to_stop=stopping_after(1))
    _, at = run_dir.open_run(tmp_path / "first")
    other = Run.from_dict(run.to_dict() | {"gamma": 0.5})
    rows = run_dir.train_run(other, out=tmp_path / "second", origin=(tmp_path / "first", at)).run_dir.rows()
    assert [int(row["iteration"]) for row in rows] == list(range(3, ITERATIONS + 1))
    assert float(rows[0]["seconds"]) == 1.0
    assert len(run_dir.RunDir(tmp_path / "first").rows()) == 2
