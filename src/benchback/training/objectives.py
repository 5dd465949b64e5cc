"""Files of learned drifts: JSON, so that one can be read, compared and put under version control.

A drift has some hundred numbers, which JSON keeps exactly; where they come from is beside them. A run holds the numbers
themselves, not the file's name: it is the same run wherever the file is.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.training.checkpoint import write_atomically

FORMAT = "benchback drift 1"
LARGEST = 10_000_000
"""Bytes of a file at most."""


def write(path: Path, weights: Sequence[float], about: Mapping[str, Any]) -> None:
    """Write the weights of a drift and where they come from."""
    content = {"format": FORMAT, "weights": list(map(float, weights)), "about": dict(about)}
    write_atomically(path, json.dumps(content, indent=1) + "\n")


def read(path: Path) -> tuple[float, ...]:
    """The weights in a file; InputError if it is none of a drift."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} is too large for a drift; give a file that benchback discover has written")
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError
        return tuple(map(float, content["weights"]))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; benchback discover writes such a file, objective.json") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} is not the file of a drift; give an objective.json of benchback discover") from None
