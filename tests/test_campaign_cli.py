"""Campaigns from the command line: wrong input is one line, in time, and leaves nothing behind."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from campaign_double import FIXED, MACHINE, study, work

from benchback.cli.planning import PlanFlags, chosen_study
from benchback.errors import InputError
from benchback.measure import gate, machine
from benchback.measure.coordinator import open_campaign
from benchback.measure.store import open_store
from benchback.measure.study import Study
from benchback.training.run_dir import read_config

GOOD: dict[str, Any] = {
    "name": "mine",
    "products": [{"axes": {"unit": ["phase", "iteration"]}, "fixed": {"backend": "purejax", **FIXED}}],
    "min_blocks": 2,
    "max_blocks": 2,
    "aa": False,
}


def product(axes: dict[str, Any], **fixed: Any) -> dict[str, Any]:
    return {"products": [{"axes": axes, "fixed": fixed}]}


WRONG_STUDIES = {
    "unknown field": ({"min_block": 3}, "did you mean min_blocks?"),
    "unknown field of a run": (product({"backend": ["linen"]}, num_env=4), "did you mean num_envs?"),
    "no products": ({"products": []}, "at least one product"),
    "empty product": (product({"backend": []}), "axis backend has no values"),
    "cell that cannot run": (product({"unit": ["chunk"]}, backend="pytorch"), "does not fit pytorch"),
    "mode that is not there": (product({"mode": ["cudagraphs"]}, backend="pytorch"), "needs device=gpu"),
    "too many threads": ({"threads": 4096}, "threads=4096 but this process may use"),
    "no GPU": ({"device": "gpu"}, "no NVIDIA GPU answers"),
    "negative blocks": ({"min_blocks": -1}, "min_blocks=-1 must be at least 1"),
    "climbing name": ({"name": "../../x"}, "must be 1 to 64 of the characters"),
    "script": ({"name": "</script>"}, "must be 1 to 64 of the characters"),
    "formula": ({"name": "=cmd()"}, "must be 1 to 64 of the characters"),
    "nothing": ({"name": "a\0b"}, "must be 1 to 64 of the characters"),
    "backwards": ({"name": "a\u202eb"}, "must be 1 to 64 of the characters"),
    "long name": ({"name": "x" * 10_000}, "must be 1 to 64 of the characters"),
    "hostile label": ({"products": [{"axes": {"backend": ["linen"]}, "label": "a\x1b[2J"}]}, "U+001B"),
}


def refused(process: subprocess.CompletedProcess, message: str, code: int = 2) -> None:
    """One line that says why, and no traceback."""
    assert process.returncode == code, process.stderr
    assert message in process.stderr
    assert len(process.stderr.splitlines()) == 1
    assert process.stderr[:-1].isprintable()
    assert process.stdout == ""


@pytest.mark.parametrize("name", ["unknown field", "cell that cannot run", "too many threads", "backwards"])
def test_wrong_studies_are_refused_before_anything_is_written(name: str, benchback, tmp_path: Path) -> None:
    changes, message = WRONG_STUDIES[name]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(GOOD | changes))
    refused(benchback("run", "mine.yaml"), message)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("name", WRONG_STUDIES)
def test_every_wrong_study_names_the_remedy(name: str, tmp_path: Path) -> None:
    changes, message = WRONG_STUDIES[name]
    path = tmp_path / "folder" / "mine.sqlite"
    with pytest.raises(InputError) as caught:
        open_campaign(path, Study.from_dict(GOOD | changes), fingerprint=MACHINE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


WRONG_COMMANDS = {
    ("run", "smok"): "did you mean smoke?",
    ("run", "../../x\n\u202e.yaml"): "cannot be read",
    ("run", "smoke", "--index", "231"): "has configurations 0 to 5",
    ("run", "smoke", "--blocks", "0"): "min_blocks=0 must be at least 1",
    ("run", "smoke", "--seed", "-1"): "seed=-1 must not be negative",
    ("status", "runs/smoke.sqlite"): "is not a file",
    ("show", "mine.sqlite", "=cmd()/0\x1b[2J"): "has no attempts",
    ("show", "mine.sqlite"): "show needs a store and a run",
}


@pytest.mark.parametrize("arguments", WRONG_COMMANDS, ids=ascii)
def test_wrong_commands_are_refused_before_anything_is_written(
    arguments: tuple[str, ...], benchback, tmp_path: Path
) -> None:
    open_campaign(tmp_path / "mine.sqlite", study(), fingerprint=MACHINE).close()
    before = (tmp_path / "mine.sqlite").read_bytes()
    refused(benchback(*arguments), WRONG_COMMANDS[arguments])
    # A reader of a store leaves an empty log beside it.
    assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in tmp_path.iterdir()} == {"mine.sqlite"}
    assert (tmp_path / "mine.sqlite").read_bytes() == before


def test_a_store_that_cannot_be_written_is_an_input_output_error(benchback, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(GOOD))
    refused(benchback("run", "mine.yaml", "--store", "/proc/mine.sqlite"), "/proc/mine.sqlite", 74)


def test_a_store_of_another_study_is_refused(benchback, tmp_path: Path) -> None:
    work(tmp_path / "mine.sqlite", study=study(max_blocks=2))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(GOOD))
    refused(benchback("run", "mine.yaml", "--store", "mine.sqlite"), "holds the study double")


# Files that would rather be run than read.


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pwned",)


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(50_000_000))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{chr(c)}: &{chr(c)} [{', '.join(['*' + chr(c - 1)] * 9)}]" for c in range(ord("b"), ord("k"))
)
HOSTILE = {
    "object": lambda path: path.write_text("!!python/object/apply:os.mkdir ['pwned']"),
    "module": lambda path: path.write_text("name: !!python/name:os.system ''"),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "pickle as text": lambda path: path.write_bytes(pickle.dumps(Trap(), protocol=0)),
    "zip bomb": bomb,
    "billion laughs": lambda path: path.write_text(LAUGHS),
    "deep": lambda path: path.write_text("[" * 32_000),
    "many keys": lambda path: path.write_text("\n".join(f"k{i}: 1" for i in range(3000))),
    "large": lambda path: path.write_text("a: 1\n" * 1_000_000),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "missing": lambda path: None,
    "date that is none": lambda path: path.write_text("name: 2001-99-99"),
    "list as key": lambda path: path.write_text("{[1]: 2}"),
    "tag that does not fit": lambda path: path.write_text("name: !!timestamp tomorrow"),
    "number that is none": lambda path: path.write_text(f"seed: {'9' * 6000}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_within_a_second_and_not_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchback.measure.study import load
    from benchback.training.run import Run

    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hostile.yaml"
    HOSTILE[name](file)
    for read in (load, lambda path: Run.from_dict(read_config(path))):
        started = time.process_time()
        with pytest.raises(InputError) as caught:
            read(file)
        assert time.process_time() - started < 1.0
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["pickle", "zip bomb"])
def test_hostile_checkpoints_are_refused_and_not_run(name: str, benchback, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    HOSTILE[name](tmp_path / "run" / "checkpoint.safetensors")
    refused(benchback("eval", "run"), "checkpoint.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# Looking at the machine and at environments.


def test_the_cost_of_environments_is_kept_with_a_campaign(benchback, tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    open_campaign(path, study(), fingerprint=MACHINE).close()
    options = ("--envs", "torch/CartPole-v1", "torch/MountainCar-v0", "--num-envs", "2")
    done = benchback("envs", "time", *options, "--store", str(path), "--json")
    assert done.returncode == 0, done.stderr
    with open_store(path, readonly=True) as store:
        (event,) = store.events()
    assert (event.kind, event.detail["stratum"]) == ("complexity", 0)
    assert event.detail["rows"] == json.loads(done.stdout)
    assert min(row["relative"] for row in event.detail["rows"]) == 1.0
    assert all(row["step_s"] > 0 for row in event.detail["rows"])
    refused(benchback("envs", "time", "--store", "none.sqlite"), "none.sqlite is not a file")


def test_the_doctor_says_what_to_change(benchback) -> None:
    done = benchback("doctor", "--seconds", "0.1")
    first = done.stdout.splitlines()[0]
    assert done.returncode == (0 if first.startswith("yes, this machine can measure") else 1), done.stderr
    assert first.startswith(("yes, ", "no: "))
    for word in ("version jax", "governor", "gpu", "steal", "A/A:", "to change"):
        assert word in done.stdout


def test_wrong_trackers_are_refused_before_anything_is_written(benchback, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(GOOD))
    refused(benchback("run", "mine.yaml", "--online"), "add --track wandb")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


# Being asked to stop.


def remember_parity(cache: Path) -> None:
    """Have the gate believe that parity was proven: it is not what is tested here."""
    fingerprint = machine.fingerprint()
    relevant = {name: x for name, x in fingerprint.items() if name in gate.CODE or name.startswith("version ")}
    file = cache / "parity" / f"{gate.digest([gate.LEVELS, relevant])}.json"
    file.parent.mkdir(parents=True)
    proofs = [f"ppo/purejax/jit/{unit}/mlp/float32/framework" for unit in ("phase", "iteration")]
    file.write_text(json.dumps(dict.fromkeys(proofs, "pass")))


def until(found: Any) -> Any:
    """What `found` returns, once it returns something."""
    deadline = time.monotonic() + 600
    while not (seen := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return seen


def child_with(process: subprocess.Popen[str], word: str) -> psutil.Process | None:
    """The child of `process` whose command line holds `word`; one that ends meanwhile is not it."""
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):
            if word in child.cmdline():
                return child
    return None


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes in groups of their own, and leaves none of them running whatever the test does."""
    with contextlib.ExitStack() as stack:

        def start(*command: str, **options: Any) -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, **options)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.mark.parametrize("during", ["parity", "run"])
def test_interrupting_a_real_campaign_leaves_nothing_running(
    during: str, tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    endless = GOOD | product({"unit": ["phase", "iteration"]}, backend="purejax", **FIXED | {"num_iterations": 10**8})
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(endless))
    if during == "run":
        remember_parity(tmp_path / "cache")
    process = started(
        *(sys.executable, "-m", "benchback.cli", "run", "mine.yaml"),
        cwd=tmp_path,
        env=os.environ | {"BENCHBACK_CACHE": str(tmp_path / "cache")},
    )
    word = {"parity": "benchback.measure.parity_worker", "run": "benchback.measure.relay_worker"}[during]
    child = until(lambda: child_with(process, word))
    begun = time.monotonic()
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    _, said = process.communicate(timeout=300)
    assert time.monotonic() - begun < 120
    assert process.returncode == 130
    words = "benchback: stopped; 0 of 4 runs are done and kept: run the same command again to go on"
    assert said.splitlines()[-1] == words
    assert "Traceback" not in said
    assert not child.is_running()
    with open_store(tmp_path / "runs" / "mine.sqlite") as store:
        assert list(store.attempts()) == []
        assert store.progress().running == 0
        assert {event.kind for event in store.events()} == ({"parity"} if during == "run" else set())


def chosen(*arguments: str) -> Study:
    return chosen_study(["smoke", *arguments], "plan", PlanFlags)[0]


def test_the_protocol_is_an_option() -> None:
    relay, runs = chosen(), chosen("--protocol", "runs")
    assert (relay.relays, runs.relays) == (True, False)
    assert relay.id != runs.id
    assert chosen("--protocol", "relay").id == relay.id


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90.0), ("5m", 300.0), ("1h", 3600.0), ("1.5h", 5400.0)])
def test_a_budget_bounds_the_campaign(given: str, seconds: float) -> None:
    study = chosen("--budget", given)
    assert (study.budget_s, study.max_blocks) == (seconds, 30)
    assert study.min_blocks == min(3, chosen().min_blocks)
    assert study.id == chosen().id, "a campaign may go on with another budget"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "5"], "--budget 5 must be a time greater than 0 with its unit, e.g. 90s, 5m or 1h"),
        (["--budget", "0s"], "must be a time greater than 0"),
        (["--budget", "5 m"], "e.g. 90s, 5m or 1h"),
        (["--budget", "5d"], "e.g. 90s, 5m or 1h"),
        (["--budget=-5m"], "e.g. 90s, 5m or 1h"),
        (["--budget", "5m", "--blocks", "4"], "leave out --blocks, or --budget"),
        (["--protocol", "relay", "--order", "original"], "add --order protocol"),
    ],
)
def test_a_wrong_budget_or_protocol_names_the_remedy(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen(*arguments)


def test_a_plan_tells_its_protocol(benchback) -> None:
    for name in ("relay", "runs"):
        told = json.loads(benchback("plan", "smoke", "--protocol", name, "--budget", "2m", "--json").stdout)
        assert (told["protocol"], told["budget_s"]) == (name, 120.0)
