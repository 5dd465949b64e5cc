"""Bugs made on purpose in the layers above the maths, each with the test that must fail because of it.

`python tests/seeded_bugs.py [NAME ...]` makes one bug at a time in a copy of the package, runs its test, and exits with
1 if any test still passes. The maths have their own in `test_mutations.py`.
"""

import os
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRELOADED = ("numpy", "scipy.special", "scipy.stats", "jax", "jax.numpy", "beartype", "yaml")
PRELOADED += ("rich.console", "rich.progress", "tyro", "polars", "psutil", "safetensors.numpy")
"""Imported once; each test runs in a fork that has not imported the package yet."""

OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


@dataclass(frozen=True)
class Bug:
    """A replacement in one file."""

    file: str
    right: str
    wrong: str
    test: str
    """A file in this folder, `::` and the test that must fail."""


BUGS: dict[str, Bug] = {}


def made(bug: Bug, source: Path) -> str:
    """The file's text with the bug."""
    text = (source / bug.file).read_text()
    if text.count(bug.right) != 1:
        raise SystemExit(f"{bug.file} has {text.count(bug.right)} times: {bug.right}")
    return text.replace(bug.right, bug.wrong)


def fails(bug: Bug, source: Path, log: Path) -> bool:
    """Whether the bug's test fails on the package in `source`, with the bug in it."""
    path, right = source / bug.file, (source / bug.file).read_text()
    path.write_text(made(bug, source))
    try:
        child = os.fork()
        if not child:
            run(bug.test, source, log)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        path.write_text(right)
    if status not in (0, 1):
        raise SystemExit(f"{bug.test} could not be run ({status}): {log.read_text()[-2000:]}")
    return status == 1


def run(test: str, source: Path, log: Path) -> None:
    """Run a test on the package in `source` and end this process with pytest's exit code."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, str(source.parent))
    os.environ["PYTHONPATH"] = str(source.parent)
    os.chdir(ROOT)
    code = 70
    try:
        code = int(import_module("pytest").main([*OPTIONS, *f"tests/{test}".split(" ", 2)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(names: list[str]) -> int:
    """The number of bugs that no test noticed."""
    for name in PRELOADED:
        import_module(name)
    survived = 0
    with tempfile.TemporaryDirectory(prefix="benchback-bugs-") as folder:
        source = Path(folder) / "src" / "benchback"
        shutil.copytree(ROOT / "src" / "benchback", source, ignore=shutil.ignore_patterns("__pycache__"))
        for name in names or BUGS:
            started = time.monotonic()
            caught = fails(BUGS[name], source, Path(folder) / "log")
            survived += not caught
            print(f"{'caught' if caught else 'SURVIVED'} {name} in {time.monotonic() - started:.1f} s", flush=True)
    return survived


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
