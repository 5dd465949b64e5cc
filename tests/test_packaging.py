"""What users install: extras per framework, a wheel that works, and no framework where another is asked for."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

import pytest

from benchback import __version__, envs
from benchback.registry import ALGORITHMS, BACKENDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = dict(line.split(" ")[0].split("==") for line in (ROOT / "requirements.lock").read_text().splitlines())
FRAMEWORKS = {
    "jax": {"dm-haiku", "equinox", "filelock", "flax", "gymnax", "jax", "optax", "six"},
    "torch": {"torch"},
}
MODULES = {
    "jax": ("jax", "jaxlib", "flax", "equinox", "haiku", "optax", "gymnax", "chex"),
    "torch": ("torch",),
}
"""What an installation without a family of backends cannot import."""
TINY = ("--num-envs=4", "--num-steps=8", "--num-minibatches=2", "--num-epochs=1", "--num-iterations=2")
TRAIN = {
    "jax": ("train", "ppo", "--backend=purejax", "--env=gymnax/CartPole-v1", *TINY),
    "torch": ("train", "ppo", "--backend=pytorch", "--mode=none", "--env=torch/CartPole-v1", *TINY),
}


def names(requirements: list[str]) -> set[str]:
    """Distributions of a list of requirements, those of our own extras followed."""
    found = set()
    for requirement in requirements:
        name = re.split(r"[\[<>=~! ]", requirement)[0]
        extras = re.findall(r"[\w-]+", requirement.partition("[")[2].partition("]")[0]) if name == "benchback" else []
        found |= set().union(*(names(PROJECT["optional-dependencies"][x]) for x in extras)) if extras else {name}
    return found


EXTRAS = {extra: names(requirements) for extra, requirements in PROJECT["optional-dependencies"].items()}


def test_the_core_needs_no_framework() -> None:
    core = names(PROJECT["dependencies"])
    assert not core & set().union(*FRAMEWORKS.values())


@pytest.mark.parametrize("family", FRAMEWORKS)
def test_an_extra_brings_one_family_and_not_the_other(family: str) -> None:
    assert EXTRAS[family] == FRAMEWORKS[family]
    assert {spec.package for spec in BACKENDS.values() if spec.family == family} <= EXTRAS[family]


def test_all_brings_every_backend_and_dev_every_extra() -> None:
    assert EXTRAS["all"] == EXTRAS["jax"] | EXTRAS["torch"]
    assert set().union(*EXTRAS.values()) == EXTRAS["dev"]


def test_every_extra_that_an_error_names_exists() -> None:
    assert {extra for _, extra in envs.EXTRAS.values()} <= EXTRAS.keys()


def test_everything_that_can_be_installed_is_locked() -> None:
    locked = {normal(name) for name in LOCKED}
    wanted = names(PROJECT["dependencies"]) | EXTRAS["dev"]
    assert {normal(name) for name in wanted} <= locked


def normal(name: str) -> str:
    """A distribution's name as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


BLOCKER = """\
import os, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["ABSENT"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def without(family: str, folder: Path) -> Mapping[str, str]:
    """Environment variables of processes that cannot import a family of backends, however deep they are."""
    (folder / "absent").mkdir()
    (folder / "absent" / "sitecustomize.py").write_text(BLOCKER)
    return os.environ | {"PYTHONPATH": str(folder / "absent"), "ABSENT": ",".join(MODULES[family])}


def test_torch_trains_without_jax(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchback.cli", *TRAIN["torch"], "--out=run"]
    process = subprocess.run(command, env=without("jax", tmp_path), cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_jax_trains_and_is_proven_without_torch(tmp_path: Path) -> None:
    code = f"""\
import sys
from importlib import import_module
for algorithm in {list(ALGORITHMS)}:
    import_module(f"benchback.parity.{{algorithm}}.levels")
import benchback.measure.parity_worker, benchback.measure.worker, benchback.measure.relay_worker
sys.argv = ["benchback", *{[*TRAIN["jax"], "--out=run"]}]
from benchback.cli import main
main()
"""
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, env=without("torch", tmp_path), cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built as `make dist` does; from a copy, because building writes beside the sources."""
    source = copied(tmp_path_factory.mktemp("source"))
    return built(source, "--wheel")


def copied(folder: Path) -> Path:
    """A copy of the tree as far as distributions are made of it."""
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in (
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Makefile",
        "requirements.lock",
    ):
        shutil.copy(ROOT / name, folder / name)
    return folder


def built(source: Path, *options: str) -> Path:
    """The one distribution that `build` makes of a source tree with these options."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, str(source)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    [distribution] = (source / "dist").iterdir()
    return distribution


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = f"benchback-{__version__}.dist-info"
        metadata = HeaderParser().parsestr(archive.read(f"{folder}/METADATA").decode())
        entry_points = archive.read(f"{folder}/entry_points.txt").decode()
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    core = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert names(core) == names(PROJECT["dependencies"])
    assert "benchback = benchback.cli:main" in entry_points


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "benchback"
    files = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        missing = {name for name in files if "__pycache__" not in name} - set(archive.namelist())
    assert not missing


@pytest.mark.slow
def test_the_wheel_works_where_nothing_of_ours_is_installed(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "installed.pth").write_text(str(Path(pytest.__file__).parents[1]))
    command = tmp_path / "venv" / "bin" / "benchback"
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}

    def benchback(*arguments: str) -> str:
        process = subprocess.run([command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        return process.stdout

    where = subprocess.run(
        [python, "-c", "import benchback; print(benchback.__file__)"], env=environment, capture_output=True, text=True
    )
    assert Path(where.stdout.strip()).is_relative_to(tmp_path)
    assert "train ALGORITHM" in benchback("--help")
    assert "purejax" in benchback("list")
    assert "files in jax" in benchback(*TRAIN["jax"], "--out=jax")
    assert "files in torch" in benchback(*TRAIN["torch"], "--out=torch")


@pytest.mark.slow
def test_a_wheel_can_be_built_from_the_source_distribution(wheel: Path, tmp_path: Path) -> None:
    source = copied(tmp_path)
    with tarfile.open(built(source, "--sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    again = built(tmp_path / "unpacked" / f"benchback-{__version__}", "--wheel")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert set(first.namelist()) == set(second.namelist())


def test_the_image_has_what_the_package_is_built_from() -> None:
    """Every file that the Dockerfile copies exists and is let through by .dockerignore; it installs what is locked."""
    text = (ROOT / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    needed = {name for line in copies for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert needed == {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in needed)
    assert f"torch=={LOCKED['torch']}" in text
    assert 'ENTRYPOINT ["benchback"]' in text
    assert text.index("USER benchback") < text.index("ENTRYPOINT")
