"""The tree is what it says it is: layers, the registry, one order of reading, sizes."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import SHAPED

import benchback
from benchback import envs, registry

ROOT = Path(benchback.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LAYERS = (
    ("agent", "errors", "stats"),
    ("plugins",),
    ("math", "envs"),
    ("backends",),
    ("algorithms",),
    ("registry",),
    ("training",),
    ("population",),
    ("parity",),
    ("measure",),
    ("analysis",),
    ("report",),
    ("tools",),
    ("api",),
    ("cli",),
)
"""From the bottom up; a module may import from its own layer's room and from those below."""
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def test_the_top_level_can_be_taken_in_at_a_glance() -> None:
    entries = {path.name for path in ROOT.iterdir()} - {"__pycache__"}
    assert len(entries) <= 20
    assert {name.removesuffix(".py") for name in entries - {"py.typed"}} - {"__init__"} == LEVEL.keys()


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


NAMED = re.compile(r"(?:^|\b(?:from|import) )benchback\.(\w*)|\bfrom benchback import (\w+)")
"""A module by name: alone, as import_module and `python -m` take it, or imported by code for another process."""


ENTRY_POINTS = ("environments",)
"""Groups of entry points, which are named like modules of ours: `benchback.environments`."""


def named_rooms(tree: ast.AST) -> set[str]:
    """Rooms of modules that strings name, docstrings left out; "" where an f-string leaves the room open."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in statements)
    found = (match.groups("") for node in strings for match in NAMED.finditer(str(node.value)))
    return {module or name for module, name in found}


def imported_rooms(source: str) -> set[str]:
    tree = ast.parse(source)
    found = named_rooms(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "benchback":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("benchback.")}
    return found - {"__version__", *ENTRY_POINTS}


@pytest.mark.parametrize("path", [f for f in FILES if room(f) != "__init__"], ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    for other in imported_rooms(path.read_text()):
        assert other == room(path) or LEVEL[other] < LEVEL[room(path)], f"{path} imports {other}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from benchback import training, envs", {"training", "envs"}),
        ("import benchback.report.page", {"report"}),
        ('import_module("benchback.tools.play")', {"tools"}),
        ('import_module(f"benchback.tools.{name}").film()', {"tools"}),
        ('import_module(f"benchback.{name}")', {""}),
        ('COMMAND = (sys.executable, "-m", "benchback.cli", "parity")', {"cli"}),
        ('code = f"import json; from benchback.measure import {name}; import benchback.cli.run"', {"measure", "cli"}),
        ('code = "from benchback import cli"', {"cli"}),
        ('"""As `python -m benchback.cli` does it; see benchback.report."""', set()),
    ],
)
def test_rooms_are_found_however_they_are_imported(source: str, expected: set[str]) -> None:
    assert imported_rooms(source) == expected


def test_shapes_are_checked_in_every_room_that_annotates_them() -> None:
    annotating = {room(path) for path in FILES if re.search(r"^from jaxtyping import", path.read_text(), re.MULTILINE)}
    assert annotating == set(SHAPED)


def commands(tree: ast.AST) -> Iterator[str]:
    """What `python -m` starts."""
    for node in ast.walk(tree):
        words = [ast.unparse(x).strip("'\"") for x in node.elts] if isinstance(node, ast.List | ast.Tuple) else []
        yield from (word for flag, word in pairwise(words) if flag == "-m")


def test_nothing_starts_our_own_command_line() -> None:
    for path in FILES:
        started = [word for word in commands(ast.parse(path.read_text())) if word.startswith("benchback.cli")]
        assert not started, f"{path} starts {started}"


def test_every_room_has_a_layer() -> None:
    assert {room(path) for path in FILES} - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_registry_equals_disk(algorithm: str) -> None:
    folder = ROOT / "algorithms" / algorithm
    files = {path.stem for path in folder.glob("*.py")}
    assert files == {"__init__", "config", "loss", *registry.BACKENDS}
    assert (folder / "README.md").exists()
    assert {path.stem for path in (ROOT / "backends").glob("*.py")} == {
        "__init__",
        "kernel_gradients",
        "nnx_layers",
        "torch_layers",
        "torch_memory",
        "torch_script",
        "torch_state",
        "xla",
        *registry.BACKENDS,
    }
    assert {path.name for path in (ROOT / "algorithms").iterdir() if path.is_dir()} - {"__pycache__"} == set(
        registry.ALGORITHMS
    )


MAY_NAME = ("registry.py", "algorithms", "backends", "measure/studies", "measure/peers", "measure/micro")
"""Where backends and algorithms are named: in the registry, in their own files, and in workloads, which are data."""
FOREIGN = ("analysis/imported.py",)
"""Reads the results of another project, whose names are its own."""


def names_in(source: str) -> set[str]:
    """Backends and algorithms that strings of the code name, docstrings left out."""
    tree = ast.parse(source)
    words = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in words)
    return {x for x in strings if isinstance(x, str)} & {*registry.BACKENDS, *registry.ALGORITHMS}


def may_name(path: Path) -> bool:
    own = path.relative_to(ROOT).as_posix()
    proof = own.startswith(tuple(f"parity/{name}/" for name in registry.ALGORITHMS))
    return own.startswith(MAY_NAME) or own in FOREIGN or proof


@pytest.mark.parametrize("path", [f for f in FILES if not may_name(f)], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_other_file_names_a_backend_or_an_algorithm(path: Path) -> None:
    assert not names_in(path.read_text())


def test_names_are_found_in_code_and_not_in_docstrings() -> None:
    assert names_in('"""For ppo and linen."""\nx = {"linen": 1}; f("dqn", kind="x")') == {"linen", "dqn"}


@pytest.mark.parametrize("name", registry.BACKENDS)
def test_registry_tells_what_the_backend_offers(name: str) -> None:
    _, backend = registry.load("ppo", name)
    assert tuple(backend.modes) == registry.BACKENDS[name].modes
    assert tuple(backend.functional_modes) == registry.BACKENDS[name].populations
    assert tuple(backend.units) == registry.BACKENDS[name].units
    assert registry.BACKENDS[name].best in backend.modes


def test_modes_are_those_of_the_design() -> None:
    assert {name: set(spec.modes) for name, spec in registry.BACKENDS.items()} == {
        "linen": {"eager", "none", "jit"},
        "haiku": {"eager", "none", "jit"},
        "purejax": {"eager", "none", "jit"},
        "equinox": {"eager", "none", "filter_jit", "flatten"},
        "nnx": {"eager", "none", "jit", "cached_partial", "jit_partial", "split"},
        "pytorch": {"none", "env_jit", "script", "compile", "cudagraphs"},
    }


IMPLEMENTATIONS = [ROOT / "algorithms" / a / f"{b}.py" for a in registry.ALGORITHMS for b in registry.BACKENDS]
ORDER = ["init", "rollout", "learn", "update", "act"]


@pytest.mark.parametrize("path", IMPLEMENTATIONS, ids=lambda p: p.stem)
def test_implementations_read_in_one_order(path: Path) -> None:
    tree = ast.parse(path.read_text())
    top = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert "State" in top
    assert top[-1] == "make"
    make = tree.body[-1]
    inner = [node.name for node in ast.walk(make) if isinstance(node, ast.FunctionDef) and node.name in ORDER]
    assert inner == ORDER
    assert len(path.read_text().splitlines()) < 250


@pytest.mark.parametrize("path", IMPLEMENTATIONS, ids=lambda p: p.stem)
def test_implementations_neither_measure_nor_print(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert not names & {"print", "open", "time", "logging"}
    assert not attributes & {"item", "tolist", "device_get", "block_until_ready", "perf_counter"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_fit_a_reader(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    for node in ast.walk(ast.parse(path.read_text())):
        # `make` is the body of an implementation: a page of short functions.
        if isinstance(node, ast.FunctionDef) and node.name not in ("make", "vectorise"):
            assert (node.end_lineno or node.lineno) - node.lineno < 50, f"{node.name} is too long"


def test_no_code_is_loaded_from_data() -> None:
    for path in FILES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        assert not {name for name in names if name.endswith((".unsafe_load", ".full_load"))}
        assert "torch.load" not in names
        assert "pickle" not in {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


@pytest.mark.parametrize("module", sorted(LEVEL.keys() - {"math", "backends", "algorithms"}))
def test_reading_the_command_line_imports_no_framework(module: str) -> None:
    code = f"import sys, benchback.{module}; assert not {{'jax', 'torch', 'flax', 'gymnax'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", registry.BACKENDS)
def test_loading_a_backend_imports_no_other(name: str) -> None:
    top = {
        "linen": "flax",
        "nnx": "flax",
        "equinox": "equinox",
        "haiku": "haiku",
        "pytorch": "torch",
        "purejax": "",
    }
    others = {module for backend, module in top.items() if module and module != top[name]}
    if name == "haiku":
        others -= {"flax"}  # Haiku itself looks for it
    code = f"import sys; from benchback import registry; registry.load('ppo', {name!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not others & set(loaded)
    if name == "pytorch":
        assert "jax" not in loaded


def test_environment_ids_are_those_of_gymnax() -> None:
    import gymnax

    ours = {*envs.GYMNAX, *envs.CONTINUOUS}
    # MNISTBandit downloads its data when made.
    assert ours == set(gymnax.registered_envs) - {"MNISTBandit-bsuite"}


def test_public_functions_have_docstrings() -> None:
    for path in FILES:
        if "algorithms" in (path.parent.parent.name, path.parents[2].name) or path.parent.name == "cli":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
    assert inspect.getdoc(benchback)
