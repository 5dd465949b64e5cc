"""The command line as a person meets it: what it writes, and what it says when asked for nonsense."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from benchback.cli.tables import table
from benchback.training import checkpoint

SMALL = [
    "--num-envs",
    "4",
    "--num-steps",
    "8",
    "--num-minibatches",
    "2",
    "--num-epochs",
    "1",
    "--hidden-sizes",
    "8",
]
TRAIN = ["train", "ppo", "--backend", "purejax", *SMALL]


def test_help_answers_at_once_without_a_framework() -> None:
    code = (
        "import sys; sys.argv = ['benchback', '--help']\n"
        "from benchback.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "assert not {'jax', 'torch', 'tyro', 'numpy'} & set(sys.modules), 'slow imports'"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "train ALGORITHM" in output


def test_training_writes_config_metrics_and_checkpoint(benchback, tmp_path: Path) -> None:
    process = benchback(*TRAIN, "--num-iterations", "4", "--seed", "3", "--out", "run")
    assert process.returncode == 0, process.stderr
    assert "files in run" in process.stdout
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["backend"], config["mode"], config["seed"], config["gamma"]) == ("purejax", "jit", 3, 0.99)
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").read_text().splitlines()))
    assert [row["iteration"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["env_steps"] for row in rows] == ["32", "64", "96", "128"]
    assert checkpoint.read(tmp_path / "run" / "checkpoint.safetensors").iteration == 4
    again = benchback(*TRAIN, "--out", "run")
    assert (again.returncode, again.stdout) == (2, "")
    assert "run exists; choose another --out" in again.stderr


@pytest.mark.slow
def test_a_run_can_be_repeated_from_its_config_and_evaluated(benchback, tmp_path: Path) -> None:
    assert benchback(*TRAIN, "--num-iterations", "2", "--out", "a").returncode == 0
    process = benchback("train", "ppo", "--config", "a/config.yaml", "--out", "b", "--json")
    events = [json.loads(line) for line in process.stdout.splitlines()]
    assert [event["event"] for event in events] == ["iteration", "iteration", "done"]
    a, b = (checkpoint.read(tmp_path / run / "checkpoint.safetensors") for run in "ab")
    assert all((a.weights[name] == b.weights[name]).all() for name in a.weights)
    result = json.loads(benchback("eval", "a", "--episodes", "4", "--json").stdout)
    assert result["episodes"] == 4
    assert result["mean"] > 5


def test_an_interrupted_run_resumes_to_the_same_end(benchback, tmp_path: Path) -> None:
    arguments = [*TRAIN, "--num-iterations", "1000"]
    interrupted = subprocess.Popen(
        [sys.executable, "-m", "benchback.cli", *arguments, "--out", "broken", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert interrupted.stdout is not None
    for _ in range(5):
        interrupted.stdout.readline()
    interrupted.send_signal(signal.SIGINT)
    rest = interrupted.communicate(timeout=600)[0]
    assert interrupted.returncode == 130
    assert json.loads(rest.splitlines()[-1])["event"] == "interrupted"
    assert 5 <= checkpoint.read(tmp_path / "broken" / "checkpoint.safetensors").iteration < 1000
    assert benchback("train", "--resume", "broken").returncode == 0
    assert benchback(*arguments, "--out", "whole").returncode == 0
    a, b = (checkpoint.read(tmp_path / run / "checkpoint.safetensors") for run in ("broken", "whole"))
    assert all((a.weights[name] == b.weights[name]).all() for name in a.weights)
    rows = list(csv.DictReader((tmp_path / "broken" / "metrics.csv").read_text().splitlines()))
    assert [int(row["iteration"]) for row in rows] == list(range(1, 1001))


def test_a_killed_run_resumes_from_its_last_checkpoint(benchback, tmp_path: Path) -> None:
    arguments = [*TRAIN, "--num-iterations", "100000", "--checkpoint-every", "3", "--out", "run"]
    process = subprocess.Popen([sys.executable, "-m", "benchback.cli", *arguments], cwd=tmp_path)
    path = tmp_path / "run" / "checkpoint.safetensors"
    deadline = time.monotonic() + 600
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert checkpoint.read(path).iteration % 3 == 0


@pytest.mark.slow
def test_another_backend_takes_a_run_over(benchback, tmp_path: Path) -> None:
    assert benchback(*TRAIN, "--num-iterations", "4", "--out", "a").returncode == 0
    process = benchback("train", "--resume", "a", "--backend", "equinox", "--num-iterations", "6", "--out", "b")
    assert process.returncode == 0, process.stderr
    assert checkpoint.read(tmp_path / "b" / "checkpoint.safetensors").iteration == 6


def test_list_shows_the_whole_matrix(benchback) -> None:
    matrix = json.loads(benchback("list", "--json").stdout)
    assert list(matrix["algorithms"]["ppo"]["backends"]) == [
        "linen",
        "nnx",
        "equinox",
        "haiku",
        "purejax",
        "pytorch",
    ]
    assert {"gymnax/CartPole-v1", "torch/Breakout-MinAtar"} <= set(matrix["environments"])


def test_parity_prints_the_largest_deviation_of_each_level(benchback) -> None:
    process = benchback("parity", "--backends", "pytorch", "--levels", "L0", "L1", "--dtypes", "float32", "--json")
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["ok"]
    assert [(row["backend"], row["level"], row["dtype"], row["ok"]) for row in result["rows"]] == [
        ("pytorch", "L0", "float32", True),
        ("pytorch", "L1", "float32", True),
    ]
    assert all(0 < row["deviation"] < row["tolerance"] < 1e-4 for row in result["rows"])


WRONG = {
    ("trian",): "did you mean train",
    ("train", "pppo"): "did you mean ppo",
    ("train", "ppo", "--backend", "lnen"): "did you mean linen",
    ("train", "ppo", "--env", "gymnax/CartPol-v1"): "did you mean gymnax/CartPole-v1",
    ("train", "ppo", "--mode", "jitt"): "did you mean jit",
    ("train", "ppo", "--unit", "phaes"): "did you mean phase",
    ("train", "ppo", "--num-minibatches", "7"): "choose a divisor, e.g. 8",
    ("train", "ppo", "--backend", "pytorch", "--mode", "cudagraphs"): "needs a CUDA device",
    ("train", "ppo", "--backend", "pytorch", "--unit", "chunk"): "does not fit pytorch",
    ("train", "ppo", "--mode", "eager", "--unit", "chunk"): "does not fit unit=chunk",
    ("train", "ppo", "--unit", "chunk", "--chunk", "7"): "choose a divisor",
    ("train", "ppo", "--env", "torch/CartPole-v1"): "use --backend pytorch",
    ("train", "ppo", "--gamma", "1.5"): "between 0 and 1",
    ("train", "ppo", "--learning-rate", "0"): "greater than 0",
    ("train", "ppo", "--seed", "-1"): "between 0 and",
    ("train", "ppo", "--threads", "0"): "at least 1",
    ("train", "ppo", "--config", "absent.yaml"): "cannot be read",
    ("train", "--resume", "absent"): "not a run folder",
    ("eval",): "needs a run folder",
    ("eval", "absent"): "not a run folder",
    ("parity", "--backends", "lnen"): "did you mean linen",
    ("parity", "--levels", "L9"): "known: L0",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_input_is_one_line_that_names_the_remedy(arguments: tuple[str, ...], benchback, tmp_path: Path) -> None:
    process = benchback(*arguments)
    assert process.returncode == 2
    assert WRONG[arguments] in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
    assert process.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("num_env: 4", "num_env is not a field of a ppo run; did you mean num_envs?"),
        ("seed: 1\nseed: 2", "seed is given twice"),
        ("num_envs: many", "must be of type int"),
        ("!!python/object/apply:os.system ['touch pwned']", "not plain YAML"),
        ("- 1\n- 2", "must be a mapping"),
        ("num_envs: [1", "not plain YAML"),
    ],
)
def test_wrong_config_files_are_refused_by_name(benchback, tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "run.yaml").write_text(content)
    process = benchback("train", "ppo", "--config", "run.yaml")
    assert process.returncode == 2
    assert words in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_unknown_flags_are_refused(benchback) -> None:
    process = benchback("train", "ppo", "--bakend", "linen")
    assert process.returncode == 2
    assert "--backend" in process.stderr + process.stdout


def kept(environment: dict[str, str], folder: str = "None") -> dict[str, str]:
    """The variables of compile caches after `keep_programs(folder)` in a process with this environment."""
    code = (
        "import json, os; from pathlib import Path; from benchback.cli.arguments import keep_programs\n"
        f"keep_programs({folder}); print(json.dumps(dict(os.environ)))"
    )
    plain = {name: x for name, x in os.environ.items() if "CACHE" not in name}
    found = subprocess.run([sys.executable, "-c", code], env=plain | environment, capture_output=True, check=True)
    return {name: x for name, x in json.loads(found.stdout).items() if "CACHE" in name}


def test_trainings_keep_their_programs_unless_told_otherwise(tmp_path: Path) -> None:
    own = {"BENCHBACK_CACHE": str(tmp_path)}
    by_default = kept(own)
    (folder,) = (tmp_path / "programs").iterdir()
    assert by_default["JAX_COMPILATION_CACHE_DIR"] == str(folder / "xla")
    assert by_default["TORCHINDUCTOR_CACHE_DIR"] == str(folder / "inductor")
    assert by_default["JAX_COMPILATION_CACHE_MAX_SIZE"] == str(2**30)
    mine = kept(own | {"JAX_COMPILATION_CACHE_DIR": "mine"})
    assert mine["JAX_COMPILATION_CACHE_DIR"] == "mine"
    assert "JAX_COMPILATION_CACHE_MAX_SIZE" not in mine
    named = kept(own | {"JAX_COMPILATION_CACHE_DIR": "mine"}, f"Path({str(tmp_path / 'kept')!r})")
    assert named["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "kept" / "xla")
    off = kept(own | {"JAX_COMPILATION_CACHE_DIR": "mine"}, "'off'")
    assert (off["JAX_COMPILATION_CACHE_DIR"], off["TORCHINDUCTOR_FORCE_DISABLE_CACHES"]) == ("", "1")


def test_where_no_programs_can_be_kept_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "JAX_COMPILATION_CACHE_DIR" not in kept({"BENCHBACK_CACHE": str(tmp_path / "file")})


@pytest.mark.slow
def test_a_second_training_loads_the_programs_of_the_first(benchback, tmp_path: Path, monkeypatch) -> None:
    cache = {"BENCHBACK_CACHE": str(tmp_path / "cache")}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.delenv(name, raising=False)
    seen = []
    for out in ("a", "b", "c"):
        flags = ("--compile-cache", "off") if out == "c" else ()
        assert benchback(*TRAIN, "--num-iterations", "2", "--out", out, *flags, **cache).returncode == 0
        seen.append({path.name for path in (tmp_path / "cache" / "programs").glob("*/xla/*-cache")})
    assert seen[0]
    assert seen[0] == seen[1] == seen[2]
    a, b, c = (checkpoint.read(tmp_path / run / "checkpoint.safetensors").weights for run in "abc")
    assert all((a[name] == b[name]).all() and (a[name] == c[name]).all() for name in a)


@pytest.mark.parametrize("rows", [[], [("a-name-that-is-never-broken", "12,345.6", "many words that may be broken")]])
def test_tables_fit_a_narrow_terminal_whole_or_empty(rows: list[tuple[str, ...]]) -> None:
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(table("a title", ("what a row is about", "a figure", "text"), rows))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 60
    assert all(cell in shown for row in rows for cell in row[:2])
