"""Trackers: what they write is what was measured, and nothing they do can harm a run or tell a secret."""

import csv
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from campaign_double import HOOKS, MACHINE, study

from benchback.errors import InputError
from benchback.measure import coordinator
from benchback.measure.record import Attempt, Cell, Record, Slot
from benchback.measure.store import open_store
from benchback.tools.track import feed, feeder, wandb
from benchback.tools.track.feeder import Feeder, folder_of
from benchback.tools.track.live import tracking
from benchback.tools.track.run import Tracked, rows_of, tracked
from benchback.training.run import Run
from benchback.training.run_dir import RunDir

SECRET = "0123456789abcdef0123456789abcdef01234567"


def record(length: int = 1) -> Record:
    """Four iterations in calls of `length`."""
    calls = 4 // length
    samples: dict[str, list[float | None]] = {
        "total_s": [0.5 * length] * calls,
        "compiles": [float(call == 0) for call in range(calls)],
        "episode_return": [None, 10.0, 20.0, 30.0],
    }
    ledger = {"iterations_per_call": length, "env_steps_per_call": 32 * length}
    return Record(samples, {"first_call": 1.5, "finished": 3.0}, ledger, {"peak_rss_bytes": 2.0**28})


def one(variant: str = "linen", block: int = 0) -> tuple[Slot, Cell, Attempt]:
    cell = study(backends=(variant,), gammas=(0.9,)).cells[0]
    slot = Slot(cell.id, block, 5, 0)
    return slot, cell, Attempt(slot.id, 0, "ok", "2026-01-01T00:00:00", 3.0, record=record())


def told() -> Tracked:
    return tracked("double", *one())


@pytest.mark.parametrize("length", [1, 2, 4])
def test_rows_hold_every_iteration_whatever_a_call_covers(length: int) -> None:
    rows = rows_of(record(length))
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert [row["env_steps"] for row in rows] == [32, 64, 96, 128]
    assert [row["seconds"] for row in rows] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert [row.get("episode_return") for row in rows] == [None, 10.0, 20.0, 30.0]
    assert [row["total_s"] for row in rows if "total_s" in row] == [0.5 * length] * (4 // length)
    assert all("total_s" in row for row in rows[length - 1 :: length])


def test_names_fit_a_folder_and_tell_runs_apart() -> None:
    slot, cell, attempt = one()
    odd = replace(cell, run={**cell.run, "mode": "../../x</script>\0=cmd()"}, twin=True)
    names = {
        tracked("double", *given).name
        for given in (
            (slot, cell, attempt),
            (replace(slot, block=1), cell, attempt),
            (replace(slot, stratum=1), cell, attempt),
            (slot, cell, replace(attempt, number=1)),
            (replace(slot, cell=odd.id), odd, attempt),
        )
    }
    assert len(names) == 5
    assert all(name.replace("-", "").replace("_", "").isalnum() for name in names)


def test_csv_holds_what_was_measured(tmp_path: Path) -> None:
    with (feed.write("csv", told(), tmp_path) / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["episode_return"] for row in rows] == ["", "10.0", "20.0", "30.0"]
    assert [float(row["seconds"]) for row in rows] == [0.5, 1.0, 1.5, 2.0]


def test_tensorboard_reads_what_was_measured(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(feed.write("tensorboard", told(), tmp_path)))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("episode_return")]
    assert found == [(2, 10.0), (3, 20.0), (4, 30.0)]
    assert [event.value for event in events.Scalars("total_s")] == [0.5] * 4
    assert events.Scalars("mark/first_call_s")[0].value == 1.5
    (config,) = events.Tensors("config")
    assert '"backend": "linen"' in config.tensor_proto.string_val[0].decode()


def answers(trackers: list[str], folder: Path, **variables: str) -> dict[str, str]:
    """What the process that feeds says, having fed the one run."""
    done = subprocess.run(
        feeder.COMMAND,
        input=feed.request(trackers, told(), folder, False),
        env=wandb.variables(os.environ | variables, Path("none"), False),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_wandb_leaves_an_offline_run_without_the_key(tmp_path: Path) -> None:
    assert answers(["wandb", "tensorboard"], tmp_path, WANDB_API_KEY=SECRET) == {"wandb": "", "tensorboard": ""}
    (place,) = (tmp_path / "wandb").iterdir()
    (run,) = place.iterdir()
    assert run.name.startswith("offline-run-")
    (data,) = run.glob("run-*.wandb")
    kept = data.read_bytes()
    assert b"episode_return" in kept
    assert b"linen" in kept
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in written)


def test_a_tracker_that_fails_leaves_nothing_half_made(tmp_path: Path) -> None:
    (tmp_path / "wandb").write_text("in the way")
    found = answers(["wandb", "csv"], tmp_path)
    assert found["csv"] == ""
    assert "NotADirectoryError" in found["wandb"]
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == [told().name]


@pytest.mark.parametrize("tracker", feed.EXTRAS)
def test_a_tracker_that_is_not_installed_names_its_extra(tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "modules", {n: m for n, m in sys.modules.items() if n.partition(".")[0] != tracker})
    with pytest.raises(InputError, match=rf"pip install '\.\[{tracker}\]'"):
        feeder.check([tracker], False)


DOTENV = f"""\
# an account
export WANDB_API_KEY='{SECRET}'
WANDB_ENTITY = "us"
PATH=/nowhere
WANDB_PROJECT=
"""


def test_the_account_comes_from_the_environment_or_dotenv(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(DOTENV)
    assert wandb.settings({}, file) == {"WANDB_API_KEY": SECRET, "WANDB_ENTITY": "us"}
    assert wandb.settings({"WANDB_API_KEY": "mine"}, file)["WANDB_API_KEY"] == "mine"
    assert wandb.settings({}, tmp_path / "none") == {}


def test_only_who_uploads_is_given_the_key(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(DOTENV)
    shell = {"PATH": "/bin", "WANDB_API_KEY": "mine", "WANDB_MODE": "online"}
    offline = wandb.variables(shell, tmp_path / ".env", online=False)
    assert offline["PATH"] == "/bin"
    assert not {"mine", SECRET} & set(offline.values())
    assert "WANDB_MODE" not in offline
    assert wandb.variables(shell, tmp_path / ".env", online=True)["WANDB_API_KEY"] == "mine"


def test_going_online_needs_a_key_and_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(InputError, match="add --track wandb"):
        feeder.check(["csv"], True)
    with pytest.raises(InputError, match="needs WANDB_API_KEY in the environment"):
        feeder.check(["csv", "wandb"], True)
    (tmp_path / ".env").write_text(DOTENV)
    feeder.check(["csv", "wandb"], True)


# Together with a campaign.


def work(path: Path, trackers: tuple[str, ...], said: Callable[[str], None], **options: Any) -> bool:
    chosen = study(backends=("linen", "nnx"), gammas=(0.9,), max_blocks=2, aa=False)
    with coordinator.open_campaign(path, chosen, fingerprint=MACHINE) as store:
        feeding = Feeder(store, trackers, log=said, **options)
        feeding.catch_up()
        return coordinator.work(store, chosen, replace(HOOKS, finished=feeding.finished))


def test_every_run_is_fed_once_and_what_is_missing_is_made_up_for(tmp_path: Path) -> None:
    path, said = tmp_path / "double.sqlite", []
    assert work(path, ("csv",), said.append)
    made = folder_of(path) / "csv"
    assert len(list(made.iterdir())) == 4
    first = next(made.iterdir())
    (first / "metrics.csv").unlink()
    first.rmdir()
    others = {file: file.stat().st_mtime_ns for file in made.rglob("metrics.csv")}
    assert work(path, ("csv",), said.append)
    assert (first / "metrics.csv").exists()
    assert {file: file.stat().st_mtime_ns for file in others} == others
    assert said == []


def test_a_failing_tracker_costs_one_warning_and_no_run(tmp_path: Path) -> None:
    path, said = tmp_path / "double.sqlite", []
    folder_of(path).write_text("in the way")
    assert work(path, ("csv",), said.append)
    assert len(said) == 1
    assert said[0].startswith("warning: csv did not take")
    with open_store(path, readonly=True) as store:
        assert store.progress().ok == 4
        assert [event.kind for event in store.events() if event.kind != "parity"] == ["tracker"] * 4


def test_a_key_is_in_no_warning_and_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    said: list[str] = []
    chosen = study(backends=("linen",), gammas=(0.9,), aa=False)
    with coordinator.open_campaign(tmp_path / "double.sqlite", chosen, fingerprint=MACHINE) as store:
        Feeder(store, ("wandb",), log=said.append).failed("wandb", one()[0], f"401: {SECRET} is not valid")
        events = json.dumps([event.detail for event in store.events()])
    assert "401: [key] is not valid" in said[0]
    assert SECRET not in events + said[0]


def test_asking_to_stop_ends_a_tracker_at_once(tmp_path: Path) -> None:
    chosen = study(backends=("linen",), gammas=(0.9,), aa=False)
    with coordinator.open_campaign(tmp_path / "double.sqlite", chosen, fingerprint=MACHINE) as store:
        Feeder(store, ("wandb",), asked_to_stop=lambda: True, log=pytest.fail).finished(*one())
        assert store.events() == []
    assert not (folder_of(store.path) / "wandb").exists()


# While an agent trains


def follow(trackers: tuple[str, ...], place: RunDir, warned: list[str]) -> None:
    """Three iterations and an evaluation, as a training tells them."""
    run = Run.from_dict({"num_iterations": 3})
    with tracking(run, trackers, False, warned.append) as track:
        track.begin(place)
        for i in range(1, 4):
            row = {"iteration": i, "env_steps": 8 * i, "seconds": 0.5 * i, "loss": 1.0 / i}
            track.log([row | {"episode_return": math.nan if i == 1 else 10.0 * i}])
        track.evaluated({"iteration": 3, "env_steps": 24, "return_mean": 25.0})


def test_a_training_is_followed_and_a_tracker_that_fails_only_warns(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "run" / "track").mkdir(parents=True)
    (tmp_path / "run" / "track" / "wandb").write_text("in the way")
    warned: list[str] = []
    follow(("tensorboard", "wandb"), RunDir(tmp_path / "run"), warned)
    assert [line.split(" ")[0] for line in warned] == ["wandb"]
    assert "FileExistsError" in warned[0]
    events = EventAccumulator(str(tmp_path / "run" / "track" / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("episode_return")] == [(2, 20.0), (3, 30.0)]
    assert [(event.step, event.value) for event in events.Scalars("evaluation/return_mean")] == [(3, 25.0)]


@pytest.mark.slow  # importing MLflow takes six seconds; it is never imported here, where it would leave its traces
@pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed: pip install 'benchback[mlflow]'")
def test_mlflow_keeps_all_trainings_beside_their_folders(tmp_path: Path) -> None:
    warned: list[str] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        follow(("mlflow",), RunDir(tmp_path / name), warned)
    assert warned == []
    found = {}
    for meta in (tmp_path / "mlruns").glob("*/*/meta.yaml"):
        name = (meta.parent / "tags" / "mlflow.runName").read_text()
        lines = (meta.parent / "metrics" / "loss").read_text().split("\n")
        found[name] = [(int(step), float(value)) for _, value, step, *_ in (line.split() for line in lines if line)]
        assert (meta.parent / "params" / "algorithm").read_text() == "ppo"
    assert found == {name: [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))] for name in ("a", "b")}


def test_trackers_that_cannot_work_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "find_spec", lambda name: None)
    with (
        pytest.raises(InputError, match=r"--track mlflow needs a package .*\.\[mlflow\]"),
        tracking(Run.from_dict({}), ("mlflow",), False, pytest.fail),
    ):
        pass
