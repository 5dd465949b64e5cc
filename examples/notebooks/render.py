"""Runs the walkthroughs, cells in order in a fresh kernel, and writes each with its outputs as a notebook.

python examples/notebooks/render.py                          # all, beside their sources
python examples/notebooks/render.py reading_a_verdict --out /tmp
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parent
SOURCES = sorted(path for path in FOLDER.glob("*.py") if path != Path(__file__))
TIMEOUT_S = 1800
"""For one cell, against hanging only. A walkthrough takes a minute or two, on a busy machine ten times as long."""


def render(source: Path, folder: Path) -> Path:
    """The notebook of a source, written into `folder`; raises CellExecutionError where a cell does."""
    notebook = jupytext.read(source, fmt="py:percent")
    with TemporaryDirectory() as sockets:
        # Sockets in a folder rather than ports: the kernel can be reached by nobody else.
        private = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", record_timing=False, config=private)
        client.execute(cwd=str(folder))
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # drawn at random otherwise: every rendering would differ
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    target = folder / f"{source.stem}.ipynb"
    nbformat.write(notebook, target)
    return target


def main() -> None:
    """Renders the walkthroughs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*(path.stem for path in SOURCES), []])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the notebooks")
    arguments = parser.parse_args()
    for source in SOURCES:
        if not arguments.names or source.stem in arguments.names:
            begun = time.perf_counter()
            target = render(source, arguments.out)
            print(f"{target}: {time.perf_counter() - begun:.0f} s, {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
