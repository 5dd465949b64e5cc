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
from benchback.train import Progress, Run


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


class _UniqueKeys(yaml.SafeLoader):
    """A safe loader that refuses a key given twice."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"{key} is given twice in line {node.start_mark.line + 1} and after; keep one")
    return {key: loader.construct_object(value, deep=True) for key, (_, value) in zip(keys, node.value, strict=True)}


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; tags that would run code and duplicate keys are refused."""
    try:
        content = yaml.load(path.read_text(), _UniqueKeys)
    except OSError as error:
        raise InputError(f"--config {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"--config {path}: not a text file; give YAML as in a run folder's config.yaml") from None
    except yaml.YAMLError as error:
        raise InputError(f"--config {path}: not plain YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"--config {path}: must be a mapping of field names to values, e.g. `num_envs: 32`")
    return content
