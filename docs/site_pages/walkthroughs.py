"""The notebooks of examples/ as pages: text, code and what it printed or drew when it was last run."""

import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any

from site_pages import ROOT

FOLDER = ROOT / "examples" / "notebooks"


def pages() -> dict[str, str]:
    """File of the site -> its Markdown; nothing where no notebook has been run."""
    found = {f"walkthroughs/{path.stem}.md": page(path) for path in notebooks()}
    return ({"walkthroughs/index.md": overview()} | found) if found else {}


def figures() -> dict[str, bytes]:
    """File of the site -> an image that a notebook drew."""
    images: dict[str, bytes] = {}
    for path in notebooks():
        for number, output in enumerate(_outputs(path)):
            if "image/png" in output.get("data", {}):
                images[f"walkthroughs/{_figure(path, number)}"] = b64decode(output["data"]["image/png"])
    return images


def notebooks() -> list[Path]:
    """The notebooks that have been run, in the order of their names."""
    return sorted(FOLDER.glob("*.ipynb"))


def overview() -> str:
    """Every notebook with its title and first sentence."""
    entries = "\n".join(
        f"- [{title}]({path.stem}.md): {about}" for path in notebooks() for title, about in [opening(path)]
    )
    return f"""# Walkthroughs

Notebooks that run on two cores without a GPU, each in a minute or two. The sources are Python files with cells
(`examples/notebooks/*.py`), which editors and Jupyter open by way of jupytext; the notebooks beside them have the
outputs shown here. `make notebooks` runs them again.

{entries}
"""


def opening(path: Path) -> tuple[str, str]:
    """Title and first sentence of a notebook."""
    title, _, text = _text(_cells(path)[0]).partition("\n")
    sentence = " ".join(text.split("\n\n")[0 if text.split("\n\n")[0].strip() else 1].split())
    return title.removeprefix("# "), sentence


def page(path: Path) -> str:
    """A notebook as Markdown."""
    parts, number = [], 0
    for cell in _cells(path):
        if cell["cell_type"] == "markdown":
            parts.append(_text(cell))
            continue
        parts.append(f"```python\n{_text(cell)}\n```")
        for output in cell["outputs"]:
            parts.append(_shown(output, _figure(path, number)))
            number += 1
    return "\n\n".join(parts) + f"\n\n---\n\nSource: `examples/notebooks/{path.stem}.py`.\n"


def _shown(output: dict[str, Any], figure: str) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![What the code above drew]({figure})"
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```{{.text .output}}\n{text}\n```"


def _figure(path: Path, number: int) -> str:
    return f"{path.stem}-{number}.png"


def _outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in _cells(path) for output in cell.get("outputs", [])]


@cache
def _cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["cells"]


def _text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])
