"""What a new user gets wrong: every odd command ends in one line with the value and the remedy, and leaves no file."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from synthetic import Shape, build

from benchback import cli, registry, training
from benchback.algorithms.fields import LARGEST
from benchback.analysis.wording import variant_name
from benchback.cli import machines, matrix, outcomes, workloads
from benchback.cli.help import EXAMPLES, USAGE
from benchback.cli.studies import fields_text, meanings, yaml_text
from benchback.cli.tables import PlainTable, fitted
from benchback.errors import InputError, hint, near
from benchback.measure import study as studies
from benchback.measure.store import open_store
from benchback.measure.study import Product, Study
from benchback.parity import Row
from benchback.tools.play import video
from benchback.training import run_dir
from benchback.training.checkpoint import write_atomically
from benchback.training.outputs import LIST, check_writable, replacing_folder
from benchback.training.run import Run

FILES = {
    "dqn.yaml": "algorithm: dqn\nlearning_rate: 3e-4\nnum_iterations: 1e3\n",
    "list.yaml": "- a\n- b\n",
    "empty.yaml": "",
    "infinite.yaml": "learning_rate: .inf\n",
    "nan.yaml": "gamma: .nan\n",
    "huge.yaml": f"num_envs: 1{'0' * 400}\n",
    "huge-float.yaml": f"gamma: 1{'0' * 400}\n",
    "half.yaml": "num_envs: 1.5\n",
    "null.yaml": "env: null\n",
    "yes.yaml": "num_envs: yes\n",
    "algorithm.yaml": "algorithm: [ppo]\n",
    "widths.yaml": "hidden_sizes: [a, 3]\n",
    "width.yaml": "hidden_sizes: 64\n",
    "umlaut.yaml": "größe: 3\n",
    "lr.yaml": "lr: 3e-4\n",
    "study-scalar.yaml": "name: x\nproducts:\n- axes: {backend: linen}\n",
    "study-list.yaml": "name: x\nproducts:\n- axes: [a, b]\n",
    "study-no-axes.yaml": "name: x\nproducts:\n- label: a\n",
    "study-infinite.yaml": "name: x\nproducts:\n- axes: {learning_rate: [.inf, 1e-3]}\n",
    "study-nan.yaml": "name: x\nprecision: .nan\nproducts:\n- axes: {backend: [linen]}\n",
    "study-budget.yaml": "name: x\nbudget_s: 0\nproducts:\n- axes: {backend: [linen]}\n",
    "study-only.yaml": "name: x\nonly: [a]\nproducts:\n- axes: {backend: [linen]}\n",
    "study-blocks.yaml": "name: x\nmin_block: 3\nproducts:\n- axes: {backend: [linen]}\n",
    "space-infinite.yaml": "grid: {learning_rate: [1e-4, inf]}\n",
    "space-list.yaml": "grid: [1]\n",
    "afile": "x",
    "full/mine.txt": "x",
    "broken/checkpoint.safetensors": "",
    "zero.sqlite": "",
    "text.sqlite": "hello",
}
TRAIN = "train ppo"
WRONG = {
    "''": "verb= is unknown; known: train",
    "trian": "did you mean train?",
    "sweep": "did you mean tune?",
    "größe": "verb=größe is unknown; known: train",
    "train ''": "algorithm= is unknown; known: ppo",
    "train sac": "algorithm=sac is unknown; known: ppo, vpg, dqn, td3",
    "train PPO": "did you mean ppo?",
    f"{TRAIN} --config dqn.yaml": "is of algorithm dqn and the command line says ppo",
    "profile ppo --config dqn.yaml": "is of algorithm dqn and the command line says ppo",
    "tune ppo --config dqn.yaml --grid gamma=0.9": "is of algorithm dqn and the command line says ppo",
    "advise --algorithm ppo --config dqn.yaml": "is of algorithm dqn and the command line says ppo",
    "train --config list.yaml": "must be a mapping of field names to values",
    "train --config empty.yaml": "must be a mapping of field names to values",
    "train --config full": "cannot be read (not a file)",
    "train --config infinite.yaml": "learning_rate=inf must be a finite number, e.g. 0.00025",
    "train --config nan.yaml": "gamma=nan must be a finite number",
    "train --config huge.yaml": "is too large; choose at most",
    "train --config huge-float.yaml": "must be less than 1e38",
    "train --config half.yaml": "num_envs=1.5 must be of type int, e.g. 32",
    "train --config null.yaml": "env=None must be of type str",
    "train --config yes.yaml": "num_envs=True must be of type int",
    "train --config algorithm.yaml": "algorithm=['ppo'] is unknown",
    "train --config widths.yaml": "hidden_sizes: 'a' must be of type int",
    "train --config width.yaml": "must be of type list, e.g. [64, 64]",
    "train --config umlaut.yaml": "größe is not a field of a ppo run; known: env",
    "train --config lr.yaml": "did you mean learning_rate?",
    "train --config": "missing value for argument '--config'",
    "train dqn --exploration knots --epsilons 1 abc": "1 abc: give numbers only, or one file that contains them",
    f"{TRAIN} --learning-rate inf": "learning_rate=inf must be a finite number",
    f"{TRAIN} --learning-rate nan": "learning_rate=nan must be a finite number",
    f"{TRAIN} --learning-rate 1e300": "must be a finite number",
    f"{TRAIN} --learning-rate -1": "must be greater than 0, e.g. 0.00025",
    f"{TRAIN} --adam-epsilon 1e-60": "is 0 in float32",
    f"{TRAIN} --gamma 2": "gamma=2.0 must lie between 0 and 1",
    f"{TRAIN} --clip 0": "clip=0.0 must be greater than 0",
    f"{TRAIN} --entropy-coefficient -1": "must not be negative",
    f"{TRAIN} --initial-log-std 1000": "initial_log_std=1000.0 is a logarithm",
    f"{TRAIN} --num-envs 0": "num_envs=0 must be at least 1",
    f"{TRAIN} --num-envs 1e12": "num_envs=1000000000000 is too large",
    f"{TRAIN} --num-envs 2000003 --num-steps 1000 --num-minibatches 7": "choose a divisor, e.g. 8",
    f"{TRAIN} --num-envs many": "--num-envs: 'many' is not a whole number",
    f"{TRAIN} --num-envs 1.5": "--num-envs: 1.5 is not a whole number",
    f"{TRAIN} --num-envs 4 --num-envs 8": "--num-envs is given 2 times; keep one of them",
    f"{TRAIN} --hidden-sizes": "--hidden-sizes needs at least one value",
    f"{TRAIN} --hidden-sizes 0": "must be positive, e.g. 64 64",
    f"{TRAIN} --hidden-sizes 1000000000": "at most 64 layers of at most 65536 units",
    "train dqn --first-epsilon 1.5": "first_epsilon=1.5 must lie between 0 and 1",
    "train dqn --lr 3": "did you mean --learning-rate?",
    "train td3 --lr 3": "did you mean --actor-learning-rate?",
    f"{TRAIN} --wibble 3": "--wibble is not an option of train ppo; benchback train ppo --help shows them",
    f"{TRAIN} --truncation foo": "Expected one of ('bootstrap', 'terminal')",
    f"{TRAIN} extra": "'extra' is not understood",
    f"{TRAIN} --env CartPole": "did you mean gymnax/CartPole-v1?",
    f"{TRAIN} --env ''": "an id is suite/name, e.g. gymnax/CartPole-v1",
    f"{TRAIN} --env wibble/x": "env=wibble/x is unknown; `benchback list` shows all",
    f"{TRAIN} --env gymnasium/CartPol-v1": "did you mean gymnasium/CartPole-v1?",
    f"{TRAIN} --backend torch": "did you mean pytorch?",
    f"{TRAIN} --backend tensorflow": "backend=tensorflow is unknown; known: linen",
    f"{TRAIN} --mode wibble": "known: eager, none, jit",
    f"{TRAIN} --unit whole": "known: phase, iteration, chunk",
    f"{TRAIN} --seed -1": "must lie between 0 and 4294967295",
    f"{TRAIN} --seeds 0": "--seeds 0 must be at least 1",
    f"{TRAIN} --seeds 1e9": "are too many; choose fewer --seeds",
    f"{TRAIN} --vary num_envs=1,2": "it is part of the program, the same for all members",
    f"{TRAIN} --vary lr=1,2": "did you mean learning_rate?",
    f"{TRAIN} --vary learning_rate=inf,1": "must be finite",
    f"{TRAIN} --vary learning_rate=-1,2": "must be greater than 0",
    f"{TRAIN} --vary gamma=0.5,2": "gamma=2.0 must lie between 0 and 1",
    f"{TRAIN} --threads 1000000": "threads=1000000 are too many",
    f"{TRAIN} --out full": "full exists; choose another --out",
    f"{TRAIN} --out afile/x": "is not a folder; choose another --out",
    f"{TRAIN} --out /proc/x": "/proc cannot be written",
    "train --resume broken": "truncated or not a safetensors file",
    "train --resume full#999": "full is not the folder of a population",
    "eval": "eval needs a run folder first, e.g. benchback eval",
    "eval afile": "afile is not a run folder",
    "eval full --seed -1": "must lie between 0 and 4294967295",
    "play full --fps inf": "at most 1000",
    "eject ppo --out mine.txt": "out=mine.txt must be a Python file, e.g. mine.py",
    "eject ppo --out nowhere/mine.py": "nowhere is not a folder; create it or choose another --out",
    "eject ppo --out /proc/mine.py": "/proc cannot be written",
    "show store.sqlite": "show needs a store and a run first",
    "show store.sqlite zzz": "run=zzz has no attempts",
    "show store.sqlite ''": "run= has no attempts",
    "status full": "full is not a file; give a store",
    "status zero.sqlite": "not an SQLite file",
    "status cut.sqlite": "is damaged (it ends inside a page)",
    "export text.sqlite": "not an SQLite file",
    "export store.sqlite --out full": "full holds mine.txt, which benchback export did not write",
    "export store.sqlite --out afile": "afile is not a folder",
    "export store.sqlite --format xml": "Expected one of ('csv', 'json', 'parquet')",
    "report store.sqlite --out full": "full holds mine.txt, which benchback report did not write",
    "report store.sqlite --seed -1": "must lie between 0 and 4294967295",
    "compare store.sqlite": "compare needs two stores, or machines with the same software",
    "compare store.sqlite store.sqlite --margin nan": "margin=nan must be between 0 and 1",
    "plan": "plan needs a study",
    "plan smok": "did you mean smoke?",
    "plan wibble": "study='wibble' is unknown; known: algorithms",
    "plan study-scalar.yaml": "must be a list of values, e.g. [linen, nnx]",
    "plan study-list.yaml": "axes=['a', 'b'] must be of type mapping",
    "plan study-no-axes.yaml": "a product needs the field axes",
    "plan study-infinite.yaml": "learning_rate=inf must be a finite number",
    "plan study-nan.yaml": "precision=nan must be greater than 0",
    "plan study-budget.yaml": "budget_s=0.0 must be greater than 0",
    "plan study-only.yaml": "only: 'a' must be of type int",
    "plan study-blocks.yaml": "did you mean min_blocks?",
    "plan smoke --budget 0s": "must be a time greater than 0",
    "plan smoke --blocks 1e12": "at most 10000",
    "run smoke --store full": "full is not a file; give a store",
    "studies wibble": "study='wibble' is unknown",
    "studies --yaml": "--yaml prints one study; name it",
    "tune wibble": "space=wibble is unknown; known: ppo",
    "tune space-infinite.yaml": "learning_rate=inf must be a finite number",
    "tune space-list.yaml": "grid=[1] must be of type dict",
    "tune ppo --grid learning_rate=nan,1": "learning_rate=nan must be a finite number",
    "tune ppo --grid lr=1": "did you mean learning_rate?",
    "advise --steps inf": "steps=inf must be at least 1",
    "advise --backends --steps 3": "--backends needs at least one value",
    "advise --out afile": "afile exists and is not a page of advise",
    "advise --out full": "full is a folder",
    "doctor --seconds nan": "must be greater than 0",
    "envs": "envs knows one thing to do, e.g. benchback envs time",
    "parity --levels L9": "level=L9 is unknown; known: L0",
    "list --jso": "did you mean --json?",
    "scale --largest 0": "choose a larger one",
    "micro --batches 0": "must be at least 1",
}
"""Command -> words of its answer."""


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.sqlite"
    shape = Shape(envs=("CartPole-v1", "Breakout-MinAtar"), models=("small",), blocks=2, iterations=8, sync=False)
    build(path, shape).close()
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Said]]:
    """Runs a command in this process, in an empty folder, on 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["benchback", *arguments])
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
            cli.main()
        return Said(int(end.value.code or 0), out.getvalue(), err.getvalue())

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_one_line_and_leaves_no_file(
    command: str, run: Callable[..., Said], tmp_path: Path, store_path: Path
) -> None:
    words = [word.strip("'") for word in command.split()]
    for name in words:
        if name == "store.sqlite":
            (tmp_path / name).write_bytes(store_path.read_bytes())
        elif name == "cut.sqlite":
            (tmp_path / name).write_bytes(store_path.read_bytes()[:5000])
    for name, content in FILES.items():
        if {name, name.partition("/")[0]} & {part for word in words for part in word.replace("#", "/").split("/")}:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)
    before = sorted(tmp_path.rglob("*"))
    said = run(*words)
    assert said.code == 2, said
    assert WRONG[command] in said.err
    assert said.err.startswith("benchback: error: ")
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""
    assert sorted(path for path in tmp_path.rglob("*") if not path.name.endswith(("-shm", "-wal"))) == before


NUMBERS = {"3e-4": 3e-4, "1e7": 1e7, "1E-3": 1e-3, "+2e3": 2e3, ".5e1": 5.0, "-1.5e+2": -150.0, "1.e2": 100.0}


@pytest.mark.parametrize("text", NUMBERS)
def test_scientific_notation_in_yaml_is_a_float(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"a: {text}\nb: [{text}]\n")
    assert run_dir.read_config(tmp_path / "x.yaml") == {"a": NUMBERS[text], "b": [NUMBERS[text]]}


def test_other_scalars_in_yaml_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 12\nb: -3\nc: 1e\nd: e5\ne: 1e5x\nf: 0.5\ng: '1e5'\nh: 1-e5\n")
    expected = {"a": 12, "b": -3, "c": "1e", "d": "e5", "e": "1e5x", "f": 0.5, "g": "1e5", "h": "1-e5"}
    found = run_dir.read_config(tmp_path / "x.yaml")
    assert found == expected
    assert type(found["a"]) is int


def test_a_whole_number_may_be_written_as_a_float() -> None:
    made = Run.from_dict({"num_iterations": 1e3, "hidden_sizes": [1e1, 8], "learning_rate": 1})
    assert (made.config.num_iterations, made.config.hidden_sizes, made.config.learning_rate) == (1000, (10, 8), 1.0)
    assert type(made.config.num_iterations) is int
    with pytest.raises(InputError, match="must be of type int"):
        Run.from_dict({"num_iterations": 1e-3})


def test_the_config_names_the_algorithm_where_the_command_line_does_not(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Run] = []

    def train(made: Run, at: Any) -> Any:
        begun.append(made)
        raise InputError("far enough")

    monkeypatch.setattr(training, "train", train)
    (tmp_path / "dqn.yaml").write_text(FILES["dqn.yaml"])
    assert "far enough" in run("train", "--config", "dqn.yaml", "--num-envs", "1e1").err
    assert (begun[0].algorithm, begun[0].config.learning_rate, begun[0].config.num_iterations) == ("dqn", 3e-4, 1000)


FLOATS = [(a, f.name) for a in registry.ALGORITHMS for f in fields(registry.config(a)) if f.type is float]


@pytest.mark.parametrize(("algorithm", "name"), FLOATS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 2 * LARGEST])
def test_no_float_of_any_algorithm_may_be_infinite(algorithm: str, name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"^{name}=.*must"):
        registry.config(algorithm)(**{name: float(value)})


COUNTS = [
    (a, f.name)
    for a in registry.ALGORITHMS
    for f in fields(registry.config(a))
    if f.type is int and f.name not in ("start_steps", "update_after")
]


@pytest.mark.parametrize(("algorithm", "name"), COUNTS)
@pytest.mark.parametrize("value", [-1, 0, 2**31, 10**30])
def test_every_count_of_any_algorithm_is_positive_and_can_be_indexed(algorithm: str, name: str, value: int) -> None:
    with pytest.raises(InputError, match=name):
        registry.config(algorithm)(**{name: value})


PPO = [f.name for f in fields(registry.config("ppo"))]
MEANT = {
    "lr": "learning_rate",
    "learning-rate": "learning_rate",
    "Learning_Rate": "learning_rate",
    "n_envs": "num_envs",
    "num_env": "num_envs",
    "gae-lambda": "gae_lambda",
    "lam": "gae_lambda",
    "ent_coef": "entropy_coefficient",
    "vf_coef": "value_coefficient",
    "n_steps": "num_steps",
    "total_timesteps": "num_iterations",
    "n_epochs": "num_epochs",
    "batch_size": "num_minibatches",
    "hidden": "hidden_sizes",
    "net_arch": "hidden_sizes",
    "clip_range": "clip",
    "entropy": "entropy_coefficient",
    "minibatches": "num_minibatches",
    "gama": "gamma",
    "wibble": None,
    "x": None,
    "": None,
    "policy": None,
    "日本": None,
}


@pytest.mark.parametrize("name", MEANT)
def test_a_name_is_suggested_only_when_it_is_near(name: str) -> None:
    assert near(name, PPO) == MEANT[name]


def test_where_nothing_is_near_the_known_names_are_listed() -> None:
    assert hint("wibble", ["one", "two"]) == "known: one, two"
    assert hint("on", ["one", "two"]) == "did you mean one? Known: one, two"
    assert near("buffer_size", [f.name for f in fields(registry.config("td3"))]) == "replay_capacity"


def test_a_run_is_shown_by_the_beginning_of_its_name(run: Callable[..., Said], store_path: Path) -> None:
    with open_store(store_path, readonly=True) as store:
        slot = store.slots()[0]
    whole = run("show", str(store_path), slot.id)
    assert whole.code == 0
    assert run("show", str(store_path), slot.id[:-1]).err.count(f"{slot.cell}/") >= 2
    assert run("show", str(store_path), slot.id[:-2]).code == 2
    short = f"{slot.cell[:8]}/{slot.block}"
    assert json.loads(run("show", str(store_path), short, "--json").out)[0]["slot"] == slot.id
    assert short in run("list-runs", str(store_path)).out


def test_a_unique_beginning_is_enough(run: Callable[..., Said], tmp_path: Path) -> None:
    build(tmp_path / "s.sqlite", Shape(("CartPole-v1",), ("small",), ("linen", "nnx"), 8, 1, sync=False)).close()
    with open_store(tmp_path / "s.sqlite", readonly=True) as store:
        names = [slot.id for slot in store.slots()]
    unique = next(x for x in names if sum(y.startswith(x[:4]) for y in names) == 1)
    assert run("show", "s.sqlite", unique[:4]).out.startswith(f"{unique} attempt 0: ok")


HELP = """
import io, sys
from contextlib import redirect_stdout
from itertools import pairwise
from benchback import cli
for verb in cli.VERBS:
    sys.argv = ["benchback", verb, "--help"]
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            cli.main()
    except SystemExit as end:
        assert not end.code, (verb, end.code)
    assert "example: benchback " + cli.help.EXAMPLES[verb].split(" --")[0] in out.getvalue(), verb
    assert "options" in out.getvalue(), verb
    wide = [x for x in out.getvalue().splitlines() if len(x) > 80 and not x.startswith(("usage: ", "example: "))]
    assert not wide, (verb, wide)
    lines = [x.replace("│", " ").rstrip() for x in out.getvalue().splitlines()]
    pairs = [(x, y.split()[0]) for x, y in pairwise(lines) if x.startswith(15 * " ") and y.startswith(15 * " ")]
    short = [x for x, following in pairs if len(x) + 1 + len(following) <= 78]
    assert not short, (verb, short)
assert not {"jax", "torch"} & set(sys.modules), "slow imports"
"""


def test_every_verb_has_a_help_with_an_example_and_needs_no_framework() -> None:
    subprocess.run([sys.executable, "-c", HELP], check=True, env=os.environ | {"COLUMNS": "80"})


def test_the_usage_names_every_verb_with_its_example() -> None:
    assert set(EXAMPLES) == set(cli.VERBS)
    listed = {line.split()[0] for line in USAGE.splitlines() if line.startswith("  ") and line[2] != " "}
    assert listed == set(cli.VERBS)


WITHOUT = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {missing!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from benchback import cli
for command, (code, words) in {commands!r}.items():
    sys.argv = ["benchback", *command.split()]
    print(f"== {{command}}", flush=True)
    print(f"== {{command}}", file=sys.stderr, flush=True)
    try:
        cli.main()
    except SystemExit as end:
        assert end.code == code, (command, end.code)
"""
JAX = ("jax", "jaxlib", "flax", "optax", "equinox", "haiku", "gymnax")
CLONE = "in a clone of benchback"
LACKING = {
    JAX: {
        "list --json": (0, ""),
        "export store.sqlite --out exported": (0, ""),
        "compare store.sqlite store.sqlite": (0, ""),
        "plan smoke": (0, ""),
        "train ppo --backend linen": (
            2,
            f"backend=linen needs jax, which is not installed: pip install '.[jax]' {CLONE}",
        ),
        "train ppo --env gymnax/CartPole-v1": (2, "backends that are installed: pytorch"),
        "train ppo --backend pytorch": (2, "torch/CartPole-v1 does not need it"),
        "train td3 --backend pytorch": (2, "env=gymnax/Pendulum-v1 needs jax"),
        "train ppo --backend equinox --seeds 2": (2, f"jax is needed and not installed: pip install '.[jax]' {CLONE}"),
        "parity --backends haiku": (2, "pip install '.[jax]'"),
        "parity --backend pytorch": (
            2,
            "parity needs jax for PyTorch too, since all backends get the same draws",
        ),
        "run smoke --store new.sqlite": (2, "backend=linen needs jax"),
        "tune ppo --grid gamma=0.9": (2, "backend=linen needs jax"),
        "micro --quick": (2, "needs jax"),
    },
    ("torch", "brax", "navix", "envpool", "wandb"): {
        "list --json": (0, ""),
        "status store.sqlite": (0, ""),
        "train ppo --backend pytorch": (
            2,
            f"backend=pytorch needs torch, which is not installed: pip install '.[torch]' {CLONE}",
        ),
        "run smoke --store new.sqlite": (2, "for a study without it start from benchback studies STUDY --yaml"),
        "train ppo --env brax/ant": (
            2,
            f"env=brax/ant needs brax, which is not installed: pip install '.[brax]' {CLONE}",
        ),
        "train ppo --env navix/Navix-Empty-5x5-v0": (2, "pip install '.[navix]'"),
        "train ppo --env envpool/Pong-v5": (2, "pip install '.[envpool]'"),
        "run fused --store new.sqlite --track wandb": (2, f"pip install '.[wandb]' {CLONE}"),
    },
}


@pytest.mark.parametrize("missing", LACKING, ids=lambda x: f"without {x[0]}")
def test_without_a_framework_the_rest_works_and_the_extra_is_named(
    missing: tuple[str, ...], tmp_path: Path, store_path: Path
) -> None:
    (tmp_path / "store.sqlite").write_bytes(store_path.read_bytes())
    code = WITHOUT.format(missing=missing, commands=LACKING[missing])
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    said = {part.partition("\n")[0]: part.partition("\n")[2] for part in ended.stderr.split("== ")[1:]}
    for command, (_, words) in LACKING[missing].items():
        assert words in said[command], command
        assert not words or len(said[command].strip().splitlines()) == 1, command
    assert not (tmp_path / "new.sqlite").exists()
    assert not (tmp_path / "runs").exists()


def test_parity_measures_what_is_installed_and_names_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(registry, "missing_of", lambda name: "torch" if name == "pytorch" else None)
    monkeypatch.setattr(matrix, "measured", lambda flags, backend: measured.append(backend) or iter(()))
    monkeypatch.setattr(matrix, "limit_threads", lambda count: None)
    matrix.parity(["--levels", "L0"])
    assert measured == [name for name in registry.BACKENDS if name != "pytorch"]
    assert capsys.readouterr().err == "left out, since their packages are not installed: pytorch\n"


LONG = "gymnax/SpaceInvaders-MinAtar"


def parity_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("ppo", b, "L3", "weights/critic/0/kernel/jax", "float64", 1e-7, 1e-6) for b in registry.BACKENDS]
    matrix.print_parity(rows, as_json=False)


def env_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"env": LONG, "num_envs": 4096, "step_s": 0.123456, "relative": 1234.5}
    machines.print_complexity([row, row | {"env": "playground/CartpoleSwingupSparse"}], as_json=False)


def micro_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"operation": "update", "batch": 1024, "backend": "purejax", "mode": "cached_partial", "rival": "linen/jit"}
    row |= {"call_s": 0.123, "call_low_s": 0.122, "call_high_s": 0.124, "dispatch_s": 0.01, "compute_s": 0.1}
    workloads.print_micro([row | {"ratio": {"ratio": 1.42, "low": 1.38, "high": 1.46}}], as_json=False)


def peer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"ratio": 1.42, "low": 1.38, "high": 1.46}
    line = {"workload": "A", "side": "stable_baselines3", "own": False, "steps_per_s": 123456.0, "error": ""}
    line |= {"products": 0.72, "bandwidth": 0.1, "env": 0.2, "limit": 0.92, "compile_s": 12.3, "peak_rss_bytes": 1.2e9}
    line |= {"episode_return": 123.4, "ratios": {"purejax_reordered": known}, "differs": {}, "note": "", "config": {}}
    own = line | {"side": "purejax_reordered", "own": True, "ratios": {}}
    failed = line | {"side": "sbx", "steps_per_s": None, "error": "error: ModuleNotFoundError: No module named 'sbx'"}
    workloads.print_peers([own, line, failed], as_json=False)


QUICK = ("smoke", "algorithms", "environments")
"""Studies that are constructed in no time; the others have hundreds of cells."""
PRINTED: Mapping[str, Any] = {
    "list": ("list",),
    "studies": ("studies",),
    "list-runs": ("list-runs", "store.sqlite"),
    "status": ("status", "store.sqlite"),
    "compare": ("compare", "store.sqlite", "store.sqlite"),
    "plan": ("plan", "environments"),
    "parity": parity_rows,
    "envs": env_rows,
    "micro": micro_rows,
    "peers": peer_rows,
}


@pytest.mark.parametrize("name", PRINTED)
def test_no_table_breaks_a_word_at_80_columns(
    name: str, run: Callable[..., Said], store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[PlainTable] = []
    original = PlainTable.__rich_console__

    def recording(self: PlainTable, *arguments: Any) -> Any:
        shown.append(self)
        return original(self, *arguments)

    monkeypatch.setattr(PlainTable, "__rich_console__", recording)
    (tmp_path / "store.sqlite").write_bytes(store_path.read_bytes())
    monkeypatch.setattr(studies, "names", lambda: list(QUICK))
    if callable(PRINTED[name]):
        out = io.StringIO()
        with redirect_stdout(out):
            PRINTED[name](monkeypatch)
        text = out.getvalue()
    else:
        said = run(*PRINTED[name])
        assert said.err == ""
        text = said.out
    assert shown or name == "status"
    assert name != "studies" or set(studies.names()) <= set(text.split())
    present = set(text.split())
    for made in shown:
        for column in made.columns:
            words = {word for cell in (column.title, *(x.plain for x in column.cells)) for word in cell.split()}
            assert words <= present | {word.rstrip(":") for word in present}, column.title
    if shown:
        ruled = [line for line in text.splitlines() if "─" in line]
        assert ruled, "as a table, not as paragraphs"
        assert max(map(len, ruled)) <= 80


def test_the_outcome_of_a_campaign_breaks_no_name(store_path: Path) -> None:
    out = io.StringIO()
    with redirect_stdout(out), open_store(store_path, readonly=True) as store:
        outcomes.print_outcome(store, as_json=False)
        names = {word for cell in store.cells().values() for word in variant_name(cell).split()}
    assert names <= set(out.getvalue().split())


def test_a_table_that_cannot_fit_becomes_paragraphs() -> None:
    from rich.console import Console

    from benchback.cli.tables import table

    console = Console(width=40, file=io.StringIO(), record=True)
    made = table("t", ("name", "path"), [("a" * 30, "b" * 35)])
    assert fitted(made.columns, 38) is None
    console.print(made)
    text = console.export_text()
    assert {"a" * 30, "b" * 35} <= set(text.split())


def test_a_folder_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with replacing_folder(out, "me") as draft:
        (draft / "old.txt").write_text("old")
    with pytest.raises(FileNotFoundError), replacing_folder(out, "me") as draft:
        (draft / "new.txt").rename(draft / "newer.txt")
    assert {path.name for path in out.iterdir()} == {"old.txt", LIST}
    with replacing_folder(out, "me") as draft:
        (draft / "new.txt").write_text("new")
    assert {path.name for path in out.iterdir()} == {"new.txt", LIST}
    with pytest.raises(InputError, match="which you did not write"), replacing_folder(out, "you"):
        raise AssertionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("verb", [("export",), pytest.param(("report", "--no-images"), marks=SLOW)])
def test_a_folder_with_a_file_of_the_user_is_left_alone(
    verb: tuple[str, ...], run: Callable[..., Said], store_path: Path, tmp_path: Path
) -> None:
    name, *flags = verb
    for _ in range(2):
        assert run(name, str(store_path), "--out", "out", *flags).code == 0
    (tmp_path / "out" / "notes.txt").write_text("mine")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    said = run(name, str(store_path), "--out", "out", *flags)
    assert (said.code, said.out) == (2, "")
    assert f"holds notes.txt, which benchback {name} did not write" in said.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_an_unwritable_place_is_refused_before_the_work(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []
    for out in (Path("/proc/x/video.mp4"), Path("/dev/null/x"), tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="choose a"):
            check_writable(out)


def full_disk(script: Path, words: str, code: int) -> Path:
    """An encoder that ends as ffmpeg does when it cannot write."""
    script.write_text(f"#!/bin/sh\nhead -c 100 > /dev/null\necho '{words}' >&2\nexit {code}\n")
    script.chmod(0o755)
    return script


def test_a_video_on_a_full_disk_says_so_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = full_disk(tmp_path / "ffmpeg", "av_interleaved_write_frame(): No space left on device", 228)
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(script))
    out = tmp_path / "videos" / "x.mp4"
    out.parent.mkdir()
    frame = np.zeros((256, 256, 3), np.uint8)
    with pytest.raises(OSError, match="the disk is full; free some space") as caught, video.writer(out, 30.0) as write:
        list(map(write, [frame] * 50))
    assert not isinstance(caught.value, BrokenPipeError)
    assert caught.value.filename == str(out)
    assert list(out.parent.iterdir()) == []


def test_a_full_disk_names_the_file_and_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="the disk is full; free some space") as caught:
        write_atomically(tmp_path / "x", "content")
    assert caught.value.filename == str(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [x if x in QUICK else pytest.param(x, marks=SLOW) for x in studies.names()])
def test_a_study_that_ships_is_the_same_as_yaml(name: str, tmp_path: Path) -> None:
    known, path = studies.load(name), tmp_path / "mine.yaml"
    path.write_text(yaml_text(known))
    read = studies.load(path)
    assert read.id == known.id
    assert read.to_dict() == known.to_dict()
    assert isinstance(yaml.safe_load(path.read_text())["products"], list)


def test_studies_lists_what_ships(run: Callable[..., Said]) -> None:
    (row,) = json.loads(run("studies", "smoke", "--json").out)
    assert (row["name"], row["cells"]) == ("smoke", 6)
    assert row["description"]
    assert row["estimate"]["seconds"] > 0


def test_the_page_about_studies_has_every_field_as_the_code_has_it() -> None:
    page = (Path(__file__).parents[1] / "docs" / "studies.md").read_text(encoding="utf-8")
    assert fields_text() in page, "run: python benchmarks/study_docs.py"
    for cls in (Study, Product, *(registry.config(name) for name in registry.ALGORITHMS)):
        words = meanings(cls)
        for field in fields(cls):
            assert words[field.name], f"{field.name} has no docstring"
            assert f"| `{field.name}` |" in page
