"""Rows of a CSV file that grows while an agent trains, each with the iteration it belongs to."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchback.training.checkpoint import replacing
from benchback.training.outputs import explained


def append_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to the file, a new one with a header."""
    new = not path.exists()
    with explained(path), path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        if new:
            writer.writeheader()
        writer.writerows(rows)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows written so far; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rewind_rows(path: Path, iteration: int) -> None:
    """Delete rows after `iteration`: a resumed run computes them again."""
    # A row that was cut short lacks columns, and its iteration may lack digits.
    whole = [row for row in read_rows(path) if None not in row.values()]
    if kept := [row for row in whole if int(row["iteration"]) <= iteration]:
        with replacing(path) as draft:
            append_rows(draft, kept)
    else:
        path.unlink(missing_ok=True)
