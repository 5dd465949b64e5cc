"""Ejected files: they run without this package, give the same numbers, and contain nothing that they do not need."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import picture
import pytest

from benchback import registry
from benchback.algorithms.ppo import equinox as ppo_equinox
from benchback.cli import ejecting
from benchback.errors import InputError
from benchback.math.jax import returns
from benchback.tools.eject import eject
from benchback.tools.eject.knowledge import Facts
from benchback.tools.eject.link import Linker
from benchback.tools.eject.specialise import specialise
from benchback.training.run import Run

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"num_steps": 8, "num_minibatches": 2, "num_epochs": 2},
    "vpg": {"num_steps": 8, "num_value_steps": 3},
    "dqn": {"num_steps": 4, "num_updates": 2, "minibatch_size": 8, "learning_starts": 32, "target_every": 32},
    "td3": {"num_steps": 8, "num_updates": 4, "minibatch_size": 8, "start_steps": 32, "update_after": 32},
}
"""Two iterations and a half collect, the others learn."""

Case = tuple[str, str, str, tuple[tuple[str, Any], ...]]
"""Algorithm, backend, environment and further fields of a run; `population` is the number of seeds in one program."""
EAGER = (("mode", "env_jit"),)
MINATAR = "gymnax/Breakout-MinAtar"
CNN, SHARED, GRU = ((("network", name), ("hidden_sizes", (8,))) for name in ("cnn", "shared_cnn", "gru"))
FAST: list[Case] = [
    ("ppo", "equinox", "gymnax/CartPole-v1", ()),
    ("vpg", "nnx", "gymnax/CartPole-v1", (("population", 2),)),
    ("td3", "pytorch", "gymnasium/Pendulum-v1", EAGER),
]
"""Both frameworks, an algorithm with a replay, and a population; the slow tests run all pairs and networks."""
EVERY: list[Case] = [
    (algorithm, backend, registry.ALGORITHMS[algorithm].env, ())
    for algorithm in registry.ALGORITHMS
    for backend in registry.BACKENDS
]
POPULATIONS: list[Case] = [
    ("ppo", "linen", "gymnax/CartPole-v1", (("population", 3),)),
    ("ppo", "nnx", "gymnax/CartPole-v1", (("population", 3),)),
    ("ppo", "equinox", "gymnax/Pendulum-v1", (("population", 3), ("normalise_obs", True))),
    ("dqn", "haiku", "gymnax/CartPole-v1", (("population", 3),)),
    ("td3", "purejax", "gymnax/Pendulum-v1", (("population", 3),)),
    ("ppo", "pytorch", "gymnax/CartPole-v1", (("population", 2),)),
    ("ppo", "pytorch", "torch/CartPole-v1", (("population", 3), ("normalise_obs", True), *EAGER)),
    ("vpg", "pytorch", "gymnax/CartPole-v1", (("population", 2), *EAGER)),
    ("dqn", "pytorch", "gymnax/CartPole-v1", (("population", 3), *EAGER)),
    ("td3", "pytorch", "torch/Pendulum-v1", (("population", 2), *EAGER)),
    ("ppo", "pytorch", "gymnax/CartPole-v1", (*GRU, ("population", 2), *EAGER)),
    ("ppo", "pytorch", MINATAR, (*CNN, ("population", 2), *EAGER)),
]
VARIANTS: list[Case] = [
    ("ppo", "linen", "gymnax/Pendulum-v1", (("normalise_obs", True), ("anneal", False), ("clip_value", False))),
    ("ppo", "nnx", "gymnax/Pendulum-v1", (("normalise_reward", True), ("truncation", "terminal"))),
    ("ppo", "haiku", "gymnax/Pendulum-v1", (("normalise_obs", True), ("normalise_reward", True))),
    ("ppo", "equinox", "gymnax/Breakout-MinAtar", (("mode", "filter_jit"),)),
    ("vpg", "equinox", "gymnax/Pendulum-v1", ()),
    ("dqn", "nnx", "gymnax/CartPole-v1", (("double", True), ("anneal", True))),
    ("ppo", "purejax", "gymnasium/CartPole-v1", ()),
    ("ppo", "pytorch", "gymnasium/Pendulum-v1", EAGER),
    ("ppo", "pytorch", "gymnax/CartPole-v1", EAGER),
    ("ppo", "pytorch", "torch/CartPole-v1", (("normalise_obs", True),)),
    ("ppo", "pytorch", "torch/Acrobot-v1", EAGER),
    ("ppo", "pytorch", "torch/Asterix-MinAtar", EAGER),
    ("dqn", "pytorch", "torch/Breakout-MinAtar", EAGER),
    ("td3", "pytorch", "torch/Pendulum-v1", EAGER),
    ("td3", "pytorch", "gymnasium/Pendulum-v1", EAGER),
]
OTHER_NETWORKS: list[Case] = [
    (algorithm, backend, env, (*network, *(EAGER if backend == "pytorch" else ())))
    for backend in registry.BACKENDS
    for algorithm, env, network in (
        ("ppo", MINATAR, CNN),
        ("dqn", MINATAR, CNN),
        ("ppo", MINATAR, SHARED),
        ("ppo", "gymnax/CartPole-v1", GRU),
    )
]
OTHER_NETWORKS += [
    ("ppo", "pytorch", "gymnax/CartPole-v1", GRU),
    ("ppo", "pytorch", "torch/CartPole-v1", (*GRU, *EAGER)),
    ("ppo", "linen", "gymnax/Pendulum-v1", (*GRU, ("normalise_obs", True))),
    ("ppo", "haiku", "gymnax/CartPole-v1", (*GRU, ("population", 2))),
    ("ppo", "equinox", MINATAR, (*CNN, ("population", 2))),
    ("ppo", "nnx", "gymnasium/picture:Picture-v0", CNN),
    ("dqn", "haiku", "gymnasium/picture:LargePicture-v0", (("network", "nature_cnn"), ("hidden_sizes", (8,)))),
    ("ppo", "pytorch", "gymnasium/picture:LargePicture-v0", (("network", "shared_nature_cnn"), *SHARED[1:], *EAGER)),
    ("ppo", "purejax", "gymnax/CartPole-v1", (("surrogate", "drift"),)),
]


def run_of(case: Case) -> tuple[Run, int]:
    """The run, and the number of seeds."""
    algorithm, backend, env, more = case
    fields = {"num_envs": 4, "num_iterations": 4, "hidden_sizes": [8, 8], "seed": 3} | SMALL[algorithm] | dict(more)
    fields["hidden_sizes"] = list(fields["hidden_sizes"])
    replay = {"replay_capacity": 40} if algorithm in ("dqn", "td3") else {}
    members = fields.pop("population", 1)
    return Run.from_dict({"algorithm": algorithm, "backend": backend, "env": env} | fields | replay), members


EJECTING = """
import json, sys
from benchback.training.run import Run
from benchback.tools.eject import eject
from benchback.tools.eject.link import Linker
from benchback.training import train

def computed(run, members):
    if members == 1:
        return [row for progress in train(run) for row in progress.rows]
    from benchback.population.spec import Members
    from benchback.population.training import train_members
    seeds = Members(tuple(range(run.seed, run.seed + members)), {})
    return [
        {name: x[0].tolist() for name, x in progress.metrics.items()}
        for progress in train_members(run, seeds, group=members if run.framework == "jax" else 1)
    ]

def made(run, members, sources, compute):
    text = eject(run, "benchback eject", sources, members)
    return text, computed(run, members) if compute else None

print(json.dumps([made(Run.from_dict(run), *rest) for run, *rest in json.load(sys.stdin)]))
"""

Made = tuple[str, list[dict[str, Any]]]
"""A file, and what the tree computes."""


def eject_all(wanted: list[tuple[Case, dict[str, str]]], compute: bool = True) -> list[Made]:
    """The files, made in a process without the checks of the tests, with which an analysis takes ten times as long.

    What the tree computes is there unless sources are changed, or with `compute` switched off.
    """
    runs = [(*run_of(case), sources) for case, sources in wanted]
    asked = json.dumps([(run.to_dict(), n, sources, compute and not sources) for run, n, sources in runs])
    here = Path(__file__).parent  # where a module that registers environments of images is
    done = subprocess.run([sys.executable, "-c", EJECTING], input=asked, capture_output=True, text=True, cwd=here)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def fast_files() -> dict[Any, Made]:
    """The files of the fast tests, and those of changed sources."""
    wanted = {case: (case, {}) for case in FAST} | {name: (FAST[0], sources) for name, sources in CHANGED.items()}
    return dict(zip(wanted, eject_all(list(wanted.values())), strict=True))


@cache
def made(case: Case) -> Made:
    return fast_files()[case] if case in FAST else eject_all([(case, {})])[0]


def ejected(case: Case) -> str:
    return made(case)[0]


def changed(module: Any, *changes: tuple[str, str]) -> dict[str, str]:
    """The module's source with passages changed, for `eject`."""
    text = Path(module.__file__).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return {module.__name__: text}


NETWORKS = 'SIZES = {"small": ActorCritic, "large": make}\n\n\nclass State(NamedTuple):'
CHANGED = {
    "returns and networks": changed(returns, ("gamma * lam)", "gamma * lam * 0.5)"))
    | changed(
        ppo_equinox,
        ("class State(NamedTuple):", NETWORKS),
        ("model = NETWORKS[config.network](", "model = SIZES[config.model]("),
    ),
}
"""Sources that differ from those in the tree."""


# Runs each file, stores after two iterations, and resumes.
CHILD = """
import importlib, importlib.util, json, sys
from pathlib import Path

assert importlib.util.find_spec("benchback") is None
folder = Path(sys.argv[1])
sys.path.insert(0, sys.argv[1])

def plain(metrics):
    return {name: x.tolist() if hasattr(x, "tolist") else x for name, x in metrics.items()}

results = {}
for name, resumes in json.loads(sys.argv[2]):
    module = importlib.import_module(name)
    stored = folder / f"{name}.safetensors"
    rows = []
    for iteration, state, metrics in module.train(module.Config(), 3):
        rows.append(plain(metrics))
        if iteration == 2:
            module.save(stored, state, 2)
    rest = [plain(row) for _, _, row in module.train(module.Config(), 3, stored)] if resumes else None
    results[name] = {"rows": rows, "resumed": rest}
print(json.dumps(results))
"""


def bare_python(folder: Path) -> Path:
    """The Python of a new virtual environment that has all packages of this one, but not benchback."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    # A path in a .pth file is searched for packages, but not for further .pth files: an editable benchback is in one.
    (site / "packages.pth").write_text("\n".join(x for x in sys.path if x.endswith("site-packages")))
    return folder / "bin" / "python"


def run_alone(folder: Path, cases: list[Case], resumes: Callable[[Case], bool]) -> list[dict[str, Any]]:
    """What each file computes in a process of an environment in which there is no benchback."""
    names = []
    for place, case in enumerate(cases):
        (folder / f"ejected_{place}.py").write_text(ejected(case))
        names.append((f"ejected_{place}", resumes(case)))
    shutil.copy(picture.__file__, folder)
    command = [str(bare_python(folder / "venv")), "-c", CHILD, str(folder), json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return [found[name] for name, _ in names]


def exactly(rows: list[dict[str, Any]]) -> list[dict[str, list[str]]]:
    def digits(x: Any) -> list[str]:
        return [float(member).hex() for member in (x if isinstance(x, list) else [x])]

    return [{name: digits(x) for name, x in sorted(row.items())} for row in rows]


def check_same(case: Case, result: dict[str, Any]) -> None:
    assert exactly(result["rows"]) == exactly(made(case)[1])
    if result["resumed"] is None:
        return
    # An environment in Python starts new episodes when it is resumed, and so does a torch run.
    if case[1] != "pytorch" and not case[2].startswith("gymnasium"):
        assert exactly(result["resumed"]) == exactly(result["rows"][2:])
    else:
        assert [sorted(row) for row in result["resumed"]] == [sorted(row) for row in result["rows"][2:]]


def test_files_give_the_numbers_of_the_tree_bit_for_bit_without_it(tmp_path: Path) -> None:
    results = run_alone(tmp_path, FAST, resumes=lambda case: case == FAST[0])
    for case, result in zip(FAST, results, strict=True):
        check_same(case, result)


def name_of(case: Case) -> str:
    """Algorithm, backend, environment, network and whether there are several seeds, to select tests by."""
    several = ["population"] if "population" in dict(case[3]) else []
    return "-".join([*case[:3], dict(case[3]).get("network", "mlp"), *several])


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY + VARIANTS + POPULATIONS + OTHER_NETWORKS, ids=name_of)
def test_every_file_gives_the_numbers_of_the_tree(case: Case, tmp_path: Path) -> None:
    check_same(case, run_alone(tmp_path, [case], lambda _: True)[0])
    check_text(case, tmp_path)


TREE = """
import json, sys
from benchback.training import train
from benchback.training.run import Run
for _ in train(Run.from_dict(json.loads(sys.argv[1]))):
    pass
"""
FILE = """
import sys
sys.path.insert(0, sys.argv[1])
import ejected
for _ in ejected.train(ejected.Config(), 3):
    pass
"""


def optimised_programs(code: str, argument: str, folder: Path) -> list[Counter[str]]:
    """Instructions, by kind, of every program of some size that a process compiles, ordered by what they compute."""
    folder.mkdir()
    flags = f"{os.environ['XLA_FLAGS']} --xla_dump_to={folder} --xla_dump_hlo_as_text"
    variables = os.environ | {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", code, argument], check=True, env=variables, capture_output=True)
    texts = [path.read_text() for path in folder.glob("*after_optimizations.txt")]
    kinds = [Counter(re.findall(INSTRUCTION, text, re.MULTILINE)) for text in texts]
    big = (x for x in kinds if x.total() > FEWEST_INSTRUCTIONS)
    return sorted(big, key=lambda program: sorted((k, n) for k, n in program.items() if k not in PASSED_ON))


INSTRUCTION = r"^ +(?:ROOT )?%?[\w.-]+ = .*? ([a-z][\w-]*)\("
"""A line of HLO; the group is its kind."""
FEWEST_INSTRUCTIONS = 60
"""Of a program that is compared: smaller ones make keys and constants once."""
PASSED_ON = {"parameter", "copy", "tuple", "get-tuple-element"}
"""Instructions that compute nothing: a file does not pass on the hyper-parameters that it does not need."""


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in EVERY if case[1] != "pytorch"], ids=name_of)
def test_the_programs_of_a_file_are_those_of_the_tree(case: Case, tmp_path: Path) -> None:
    """Equal speed, without a clock; benchmarks/eject_speed.py measures it."""
    (tmp_path / "ejected.py").write_text(ejected(case))
    tree = optimised_programs(TREE, json.dumps(run_of(case)[0].to_dict()), tmp_path / "tree")
    file = optimised_programs(FILE, str(tmp_path), tmp_path / "file")
    assert len(file) == len(tree) >= 2
    for ours, theirs in zip(tree, file, strict=True):
        assert not theirs - ours
        assert set(ours - theirs) <= PASSED_ON


MOST_LINES = 450
"""Of a file of PPO with the default network, comments and blank lines included."""


def check_text(case: Case, folder: Path) -> None:
    text = ejected(case)
    tree = ast.parse(text)
    header, _, body = text.partition('"""\n\n')
    assert "Apache-2.0" in header
    assert "benchback" not in body
    assert "jaxtyping" not in body
    assert "| tuple[()]" not in body
    modules = {x.module for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)}
    assert "__future__" not in modules
    path = folder / "checked.py"
    path.write_text(text)
    for words in (["format", "--check"], ["check", "--select", "E,F,W,I,B,UP,RET"]):
        command = ["ruff", *words, "--isolated", "--line-length", "120", "--target-version", "py311", str(path)]
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not dead_branches(tree)
    assert not unused(tree)
    # Bytes are divided by 255 and nothing else is: which of the two an environment shows is known.
    assert ("/ 255" in body) is ("picture" in case[2])
    assert [x.name for x in tree.body if isinstance(x, ast.FunctionDef)][-1] == "main"
    assert max(map(len, text.splitlines())) <= 120
    if case in EVERY and case[0] == "ppo":
        assert len(text.splitlines()) <= MOST_LINES


def dead_branches(tree: ast.AST) -> list[str]:
    """Conditions whose outcome is written in the file, and loops over nothing."""
    tests = [x.test for x in ast.walk(tree) if isinstance(x, ast.If | ast.IfExp | ast.While | ast.Assert)]
    tests += [x.operand for x in ast.walk(tree) if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.Not)]
    compared = [x for x in tests if isinstance(x, ast.Compare)]
    literal = [x for x in compared if all(isinstance(y, ast.Constant) for y in (x.left, *x.comparators))]
    empty = [x.iter for x in ast.walk(tree) if isinstance(x, ast.For | ast.comprehension) and _is_empty(x.iter)]
    return [ast.unparse(x) for x in [*literal, *empty, *(x for x in tests if isinstance(x, ast.Constant))]]


def _is_empty(node: ast.AST) -> bool:
    return isinstance(node, ast.Tuple) and not node.elts


def unused(tree: ast.Module) -> set[str]:
    """Definitions, methods and variables of functions included, that nothing in the file mentions.

    A decorator may keep what it is given.
    """
    definitions = [x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef | ast.ClassDef)]
    made = {x.name for x in definitions if not x.decorator_list}
    assigned = [x.targets[0] for x in ast.walk(tree) if isinstance(x, ast.Assign)]
    made |= {x.id for x in assigned if isinstance(x, ast.Name)}
    mentioned = {x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
    mentioned |= {x.attr for x in ast.walk(tree) if isinstance(x, ast.Attribute)}
    mentioned |= {x.value for x in ast.walk(tree) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
    return {x for x in made - mentioned if not x.startswith("__")} - {"setup", "forward"}


@pytest.mark.parametrize("case", FAST, ids="-".join(("{0[0]}", "{0[1]}")).format)
def test_files_are_formatted_and_contain_only_what_they_need(case: Case, tmp_path: Path) -> None:
    check_text(case, tmp_path)


@pytest.mark.slow
def test_files_are_typed(tmp_path: Path) -> None:
    cases = [*EVERY, *FAST, VARIANTS[0], VARIANTS[2], OTHER_NETWORKS[3], POPULATIONS[0], POPULATIONS[5], POPULATIONS[8]]
    for place, (text, _) in enumerate(eject_all([(case, {}) for case in cases], compute=False)):
        (tmp_path / f"checked_{place}.py").write_text(text)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *map(str, tmp_path.glob("*.py"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_change_of_a_source_is_in_the_file_and_of_a_table_of_networks_only_the_chosen_one() -> None:
    before, after = (set(text.splitlines()) for text in (ejected(FAST[0]), fast_files()["returns and networks"][0]))
    decay = "jnp.where(batch.terminated | batch.truncated, 0, hyper.gamma * hyper.gae_lambda"
    assert before - after == {f"        decay = {decay})"}
    assert after - before == {f"        decay = {decay} * 0.5)"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"env": "brax/halfcheetah"}, "env=brax/halfcheetah cannot be ejected"),
        ({"env": "probe/one-reward"}, "env=probe/"),
        (
            {"env": "gymnax/CartPole-v1+observe=0,2"},
            "cannot be ejected: wrappers are not; use --env gymnax/CartPole-v1$",
        ),
        ({"mode": "eager"}, "mode=eager cannot be ejected; use --mode none or jit"),
        ({"unit": "chunk"}, "unit=chunk cannot be ejected"),
        ({"gradients": "reordered"}, "gradients=reordered cannot be ejected"),
        ({"dtype": "float64"}, "dtype=float64 cannot be ejected"),
        (
            {"surrogate": "learned", "objective": [0.1] * 9},
            "surrogate=learned cannot be ejected.* use --surrogate drift",
        ),
    ],
)
def test_what_cannot_be_ejected_is_refused_with_the_remedy(fields: dict[str, Any], words: str) -> None:
    if fields.get("env", "").startswith("probe"):
        from benchback import envs

        fields = {"env": f"probe/{envs.PROBES[0]}"}
    with pytest.raises(InputError, match=words):
        eject(Run.from_dict({"algorithm": "ppo"} | fields), "benchback eject")


def test_the_verb_writes_a_new_file_only_and_tells_how_to_run_it(
    tmp_path: Path, benchback: Callable[..., subprocess.CompletedProcess]
) -> None:
    arguments = ("eject", "vpg", "--backend", "purejax", "--actor-learning-rate", "4e-4", "--out", "mine.py")
    done = benchback(*arguments)
    text = (tmp_path / "mine.py").read_text()
    assert f"    benchback {' '.join(arguments)}\n" in text
    assert "actor_learning_rate: Any = 0.0004" in text
    shown = done.stdout.splitlines()
    assert shown[0] == f"mine.py: {len(text.splitlines())} lines"
    assert [line.split()[1:3] for line in shown[1:]] == [["python", "mine.py"]] * 2


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "mine.py"
    out.write_text("mine")
    with pytest.raises(InputError, match=r"exists; choose another name, e.g. .*mine_2.py"):
        ejecting.eject(["ppo", "--out", str(out)])
    assert out.read_text() == "mine"


def test_a_file_does_not_hide_a_library_that_it_imports(tmp_path: Path) -> None:
    text = ejected(FAST[0])
    ejecting.check_name(tmp_path / "mine.py", text)
    with pytest.raises(InputError, match=r"equinox.py has the name of a library .* e.g. my_equinox.py"):
        ejecting.check_name(tmp_path / "equinox.py", text)


def test_fields_keep_their_names_where_a_function_of_their_module_has_the_same() -> None:
    source = """
from typing import Any, NamedTuple


class Pair(NamedTuple):
    policy: Any
    value: Any


def policy(x: Any) -> Any:
    return x


def main() -> Any:
    return Pair(policy, 1).policy
"""
    linker = Linker("Array", {}, {"benchback.mine": source})
    linker.link("benchback.mine", "main")
    pair = linker.program.definitions["benchback__mine__Pair"].node
    assert [ast.unparse(x.target) for x in pair.body] == ["policy", "value"]


def test_what_torch_compiles_is_called_compiled_under_another_name_too() -> None:
    source = """
from typing import Any

import torch


def main(x: Any) -> Any:
    def double(x: Any) -> Any:
        return 2 * x

    compiled = torch.compile(double)
    return lambda x: compiled(x)
"""
    linker = Linker("Tensor", {}, {"benchback.mine": source})
    entry = linker.link("benchback.mine", "main")
    specialise(linker.program, entry, Facts())
    main = linker.program.definitions[entry].node
    assert ast.unparse(main.body[-1]) == "return lambda x: compiled(x)"


def test_a_number_that_no_call_gives_is_written_where_it_is_read() -> None:
    source = """
import torch
from torch import Tensor


class Scaled:
    def __init__(self, x: Tensor, power: float = 2**0.5, shift: float = 1.0):
        self.x = x**power + shift


def main(x: Tensor) -> Tensor:
    return Scaled(x, shift=3.0).x + Scaled(x).x
"""
    linker = Linker("Tensor", {}, {"benchback.mine": source})
    entry = linker.link("benchback.mine", "main")
    specialise(linker.program, entry, Facts())
    (made,) = [x.node for x in linker.program.definitions.values() if x.node.name == "Scaled"]
    assert ast.unparse(made.body[0]).splitlines() == [
        "def __init__(self, x: Tensor, shift: float=1.0):",
        "    self.x = x ** 2 ** 0.5 + shift",
    ]


@pytest.mark.parametrize(
    ("fields", "members", "words"),
    [
        ({"env": "gymnasium/CartPole-v1"}, 3, "population=3 does not fit env=gymnasium/CartPole-v1: .* use a gymnax"),
        ({}, 0, "population=0 has no members; choose at least 1"),
    ],
)
def test_a_population_that_does_not_fit_is_refused_with_the_remedy(
    fields: dict[str, Any], members: int, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        eject(Run.from_dict({"algorithm": "ppo"} | fields), "benchback eject", members=members)
