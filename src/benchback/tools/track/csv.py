"""CSV, which needs no package: `metrics.csv` with a row per iteration, named as `benchback train` names them."""

import csv
from pathlib import Path

from benchback.tools.track.run import Tracked


def write(run: Tracked, folder: Path, online: bool) -> None:
    """Write the rows of a run; missing values are empty fields."""
    columns = list(dict.fromkeys(name for row in run.rows for name in row))
    with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=columns, restval="")
        writer.writeheader()
        writer.writerows(run.rows)
