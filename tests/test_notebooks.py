"""The walkthroughs run from top to bottom, and what is committed is what they print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "render")
CHEAPEST = "reading_a_verdict"
SWITCHES = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
"""What tests set so that programs compile fast; trainings of millions of steps need programs that run fast."""


def cells(notebook: Path) -> list[dict]:
    return json.loads(notebook.read_text())["cells"]


def sources(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(notebook)]


@pytest.mark.parametrize("name", [CHEAPEST, *(pytest.param(x, marks=pytest.mark.slow) for x in NAMES if x != CHEAPEST)])
def test_a_walkthrough_runs_and_draws(name: str, tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "render.py", name, "--out", tmp_path]
    variables = {key: x for key, x in os.environ.items() if key not in SWITCHES}
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    outputs = [output for cell in cells(tmp_path / f"{name}.ipynb") for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_of_this_source_and_small(name: str) -> None:
    import jupytext

    notebook = FOLDER / f"{name}.ipynb"
    assert notebook.stat().st_size < 300_000
    assert sources(notebook) == [cell.source for cell in jupytext.read(FOLDER / f"{name}.py", fmt="py:percent").cells]
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
