"""Checkpoints: canonical weights, optimiser state, environment and random stream in one safetensors file.

One file, because one file can be replaced atomically; what is not an array (iteration, resolved run) is
JSON in its header. Loading cannot execute code: neither pickle nor torch.load is used.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from benchback.agent import Weights
from benchback.errors import InputError
from benchback.training.outputs import explained

FORMAT = "benchback-checkpoint"
VERSION = 1


class CheckpointError(InputError):
    """Invalid or damaged checkpoint file; the message names the remedy."""


@dataclass(frozen=True)
class Checkpoint:
    """A training run between two iterations."""

    weights: Weights
    iteration: int
    """Completed iterations."""
    run: dict[str, Any]
    """The resolved run, as `Run.to_dict` gives it."""


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: after a crash `path` holds either the complete old or the complete new checkpoint."""
    weights = {name: np.asarray(array, order="C") for name, array in sorted(checkpoint.weights.items())}
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "iteration": str(checkpoint.iteration),
        "run": json.dumps(checkpoint.run, sort_keys=True),
    }
    header["sha256"] = _digest(header, weights)
    write_atomically(path, save(weights, metadata=header))


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write atomically: after a crash `path` holds either the complete old or the complete new content."""
    with explained(path), replacing(path) as draft, draft.open("wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context with a temporary file that replaces `path` on success and is deleted on error."""
    # Keep the suffix: some programs infer the format from it.
    draft = path.with_name(f".{path.stem}.{os.getpid()}.new{path.suffix}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path) -> Checkpoint:
    """The checkpoint at `path`; CheckpointError if it is damaged, not a checkpoint, or of a newer version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); give a run folder of `benchback train`"
        ) from None
    header = _header(path, data)
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a benchback checkpoint; give a run folder of `benchback train`")
    if header.get("version") != str(VERSION):
        raise CheckpointError(f"{path}: format {header.get('version')}, newer than {VERSION}; upgrade benchback")
    try:
        weights = load(data)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error}); use an earlier copy") from None
    if _digest(header, weights) != header.get("sha256"):
        raise CheckpointError(f"{path}: damaged (checksum differs); use an earlier copy")
    return Checkpoint(weights, int(header["iteration"]), json.loads(header["run"]))


def _header(path: Path, data: bytes) -> dict[str, str]:
    # The length of a safetensors header may begin like a pickle; its JSON follows, where a pickle has other bytes.
    if data[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") and data[8:9] != b"{":
        raise CheckpointError(f"{path}: a pickle or zip file, which could run code; refused. Give a .safetensors file")
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise CheckpointError(f"{path}: truncated or not a safetensors file; use an earlier copy")
    try:
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except (ValueError, AttributeError):
        raise CheckpointError(f"{path}: damaged header or not a safetensors file; use an earlier copy") from None
    return metadata if isinstance(metadata, dict) else {}


def _digest(header: dict[str, str], weights: Weights) -> str:
    digest = hashlib.sha256()
    for name in ("format", "version", "iteration", "run"):
        digest.update(f"{name}={header.get(name)};".encode())
    for name in sorted(weights):
        array = weights[name]
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
