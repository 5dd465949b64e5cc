"""Puts an example package on the path as `pip install` would: its source, and metadata with its entry points."""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchback.registry import ALGORITHMS, BACKENDS, NETWORKS

EXAMPLES = Path(__file__).parent.parent / "examples"


def write_metadata(folder: Path, name: str, version: str, entries: Mapping[str, Mapping[str, str]]) -> None:
    """Metadata of a distribution with these entry points: group -> name -> object."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [line for group, found in entries.items() for line in (f"[{group}]", *map(" = ".join, found.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Context in which packages of these folders are installed, and the registry has read them anew."""
    path, modules = list(sys.path), set(sys.modules)
    sys.path[:0] = map(str, folders)
    try:
        forget()
        yield
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules.keys() - modules if name.startswith(("my_", "plug_"))]:
            del sys.modules[name]
        forget()


def forget() -> None:
    """Let the registry read entry points again, and drop what was added."""
    for known in (ALGORITHMS, BACKENDS, NETWORKS):
        known.added.clear()
        known.broken.clear()
        vars(known).pop("installed", None)


@contextmanager
def installed(example: str, folder: Path) -> Iterator[None]:
    """Context in which an example is installed; `folder` receives its metadata."""
    project = tomllib.loads((EXAMPLES / example / "pyproject.toml").read_text())["project"]
    write_metadata(folder, project["name"], project["version"], project["entry-points"])
    with on_path(folder, EXAMPLES / example / "src"):
        yield
