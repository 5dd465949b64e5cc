"""The tree is what it says it is: layers, the registry, one order of reading, sizes."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import benchback
from benchback import envs, registry

ROOT = Path(benchback.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LAYERS = (
    ("agent", "errors", "stats"),
    ("math", "envs"),
    ("backends",),
    ("algorithms",),
    ("registry",),
    ("checkpoint", "run"),
    ("train", "evaluate"),
    ("run_dir", "parity"),
    ("measure",),
    ("analysis",),
    ("report",),
    ("tools",),
    ("cli",),
)
"""From the bottom up; a module may import from its own layer's room and from those below."""
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "benchback":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("benchback.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", [f for f in FILES if room(f) != "__init__"], ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    for other in imported_rooms(path):
        assert other == room(path) or LEVEL[other] < LEVEL[room(path)], f"{path} imports {other}"


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
        "xla",
        "torch_state",
        *registry.BACKENDS,
    }
    assert {path.name for path in (ROOT / "algorithms").iterdir() if path.is_dir()} - {"__pycache__"} == set(
        registry.ALGORITHMS
    )


@pytest.mark.parametrize("name", registry.BACKENDS)
def test_registry_tells_what_the_backend_offers(name: str) -> None:
    _, backend = registry.load("ppo", name)
    assert tuple(backend.modes) == registry.BACKENDS[name].modes
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
            assert node.end_lineno - node.lineno < 50, f"{node.name} is too long"


def test_no_code_is_loaded_from_data() -> None:
    for path in FILES:
        names = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
        assert not names & {"unsafe_load", "full_load"}
        assert "pickle" not in {
            a.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import) for a in n.names
        }
        assert "torch.load" not in path.read_text().replace("no pickle and no torch.load", "")


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
        if path.parent.parent.name == "algorithms" or path.parent.name == "cli":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
    assert inspect.getdoc(benchback)
