"""What came of a tuning."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchback.cli.show_tables import table
from benchback.measure.study import Study
from benchback.tools.tune.result import text

MOST_SHOWN = 30


def print_tuning(
    lines: Sequence[Mapping[str, Any]], tuning: Study, paths: Sequence[Path], failed: int, as_json: bool
) -> None:
    """A row per point, best first, and where the files are."""
    if as_json:
        found = {"event": "outcome", "study": tuning.name, "scale": tuning.scale, "failed": failed}
        print(json.dumps(found | {"rows": list(lines), "files": [str(path) for path in paths]}))
        return
    columns = ("rank", *lines[0]["values"], "return", "+-", "seeds", *(["error"] if failed else []))
    rows = [
        (
            str(rank),
            *(escape(text(x)) for x in line["values"].values()),
            "-" if line["score"] is None else f"{line['score']:.1f}",
            "-" if line["std"] is None else f"{line['std']:.1f}",
            str(line["seeds"]),
            *([escape(line["error"][:60])] if failed else []),
        )
        for rank, line in enumerate(lines[:MOST_SHOWN], 1)
    ]
    scaled = "" if tuning.scale == 1.0 else f", iterations times {tuning.scale:g}"
    Console().print(table(f"{tuning.name}: {len(lines)} points, {tuning.min_blocks} seeds each{scaled}", columns, rows))
    if len(lines) > MOST_SHOWN:
        print(f"{len(lines) - MOST_SHOWN} more in {paths[0]}")
    if failed:
        print(f"{failed} runs have no result: benchback list-runs {paths[0].parent / 'runs.sqlite'}")
    best = next((path for path in paths if path.name == "best.yaml"), None)
    if best is not None:
        print(f"train the best with: benchback train --config {best}")
    print(f"files in {paths[0].parent}")
