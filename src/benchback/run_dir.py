"""The folder of a run: `config.yaml` (resolved), `metrics.csv` (a row per iteration), `checkpoint.safetensors`.

Rows are on disk as soon as they are known and the checkpoint is replaced atomically, so that a crash
loses at most the iterations since the last checkpoint.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchback import checkpoint
from benchback.checkpoint import Checkpoint
from benchback.errors import InputError
from benchback.run import Run
from benchback.train import Progress


@dataclass(frozen=True)
class Folder:
    """A run on disk."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to the metrics and flush them."""
        new = not self.metrics.exists()
        with self.metrics.open("a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            if new:
                writer.writeheader()
            writer.writerows(rows)

    def rows(self) -> list[dict[str, str]]:
        """The metrics written so far."""
        if not self.metrics.exists():
            return []
        with self.metrics.open(newline="") as file:
            return list(csv.DictReader(file))

    def rewind(self, iteration: int) -> None:
        """Drop rows of iterations after `iteration`: a resumed run computes them again."""
        kept = [row for row in self.rows() if row["iteration"] and int(row["iteration"]) <= iteration]
        self.metrics.unlink(missing_ok=True)
        if kept:
            self.append(kept)


def create(path: Path, run: Run) -> Folder:
    """A new run folder; refused if something is there already."""
    check_free(path)
    path.mkdir(parents=True)
    folder = Folder(path)
    folder.config.write_text(yaml.safe_dump(run.to_dict(), sort_keys=False))
    return folder


def check_free(path: Path) -> None:
    """Refuse a path where something is."""
    if path.exists():
        raise InputError(f"{path} exists; choose another --out, or continue it with --resume {path}")


def open_run(path: Path) -> tuple[Folder, Checkpoint]:
    """The run folder at `path` and its checkpoint."""
    folder = Folder(path)
    if not path.is_dir():
        raise InputError(f"{path} is not a run folder; give one that `benchback train` wrote")
    return folder, checkpoint.read(folder.checkpoint)


def reopen(path: Path, at: Checkpoint) -> tuple[Folder, float]:
    """The folder of a run that continues from `at`, and the seconds it has run until there."""
    folder = Folder(path)
    folder.rewind(at.iteration)
    rows = folder.rows()
    return folder, float(rows[-1]["seconds"]) if rows else 0.0


def save(folder: Folder, progress: Progress, run: Run) -> None:
    """Replace the folder's checkpoint by where training stands."""
    checkpoint.write(folder.checkpoint, Checkpoint(progress.export(), progress.iteration, run.to_dict()))


def default_path(run: Run) -> Path:
    """runs/<algorithm>-<backend>-<env>-<mode>-<unit>-seed<n>."""
    suite, name = run.env.split("/")
    return Path("runs") / f"{run.algorithm}-{run.backend}-{suite}-{name}-{run.compile_mode}-{run.unit}-seed{run.seed}"


MOST_BYTES = 32 * 1024
"""Of a YAML file: twenty times what a whole configuration takes, and read in less than a second."""
DEEPEST = 20


STUMBLES = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""What the YAML library raises over nesting, keys that are lists, dates that do not exist, and tags that do not fit."""


class _Plain(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, deep nesting, and aliases: a page of them can be gigabytes."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, "aliases are not read; write the value out", mark)
        if self.depth == DEEPEST:
            raise yaml.MarkedYAMLError(None, None, f"nested more than {DEEPEST} deep", mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _mapping(loader: _Plain, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in found:
            raise InputError(f"{str(key)[:60]} is given twice in line {node.start_mark.line + 1} and after; keep one")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Plain.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; tags that would run code, duplicate keys, aliases and large files are refused."""
    try:
        content = yaml.load(_text(path), _Plain)
    except OSError as error:
        raise InputError(f"--config {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"--config {path}: not a text file; give YAML as in a run folder's config.yaml") from None
    except (yaml.YAMLError, *STUMBLES) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"--config {path}: not plain YAML ({reason or type(error).__name__})") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"--config {path}: must be a mapping of field names to values, e.g. `num_envs: 32`")
    return content


def _text(path: Path) -> str:
    if not path.exists():
        raise InputError(f"--config {path}: cannot be read (No such file or directory)")
    if not path.is_file():
        raise InputError(f"--config {path}: cannot be read (not a file)")
    with path.open(encoding="utf-8") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise InputError(f"--config {path}: larger than {MOST_BYTES} bytes; give YAML as in a run folder's config.yaml")
    return text
