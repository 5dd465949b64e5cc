"""One page per algorithm: the same parts of its six files in columns, with the lines that differ from plain JAX marked.

The code is that of the files, only broken into shorter lines so that columns fit beside each other.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

from benchback.registry import ALGORITHMS, BACKENDS
from site_pages import ROOT

FOLDER = ROOT / "src" / "benchback" / "algorithms"
REFERENCE = "purejax"
ORDER = (REFERENCE, *(name for name in BACKENDS if name != REFERENCE))
WIDTH = 80
"""Columns of code in a column of the page."""
PARTS = {
    "state": ("Networks and state", "What changes during training; each field declares its role."),
    "init": ("Init", "The first state, from a source of randomness and the hyper-parameters."),
    "rollout": ("Rollout", "Steps of the environments; nothing is learnt."),
    "learn": ("One gradient step", "`learn`: what parity is measured on."),
    "update": ("Update", "What a batch becomes: targets, then gradient steps."),
    "act": ("Act", "The greedy action, and the record that all of this is handed out in."),
}
"""Part of an implementation -> its title and what it does, in the order of the files."""


@dataclass(frozen=True)
class Piece:
    """A part of one implementation as it is shown."""

    lines: tuple[str, ...]
    different: tuple[int, ...]
    """Numbers, from one, of the lines that plain JAX does not have."""


def pages() -> dict[str, str]:
    """File of the site -> its Markdown."""
    return {"algorithms/index.md": overview()} | {f"algorithms/{name}.md": page(name) for name in ALGORITHMS}


def overview() -> str:
    """The matrix with the lines of each file, and how many of them differ from plain JAX."""
    titles = " | ".join(BACKENDS[name].title for name in ORDER)
    rows = "\n".join(
        f"| [{name.upper()}]({name}.md) | {' | '.join(_counted(name, b) for b in ORDER)} |" for name in ALGORITHMS
    )
    return f"""# Six frameworks, one algorithm

Every algorithm is written once per framework, each file as that framework's users write it, all of them in one order:
what differs between two columns is the framework. Each cell has the lines of a file, without its imports, and how many
of them differ from plain JAX.

| | {titles} |
|---|{"---|" * len(ORDER)}
{rows}

All six compute the same numbers: `benchback parity --algorithm ppo` measures it.
"""


def _counted(algorithm: str, backend: str) -> str:
    pieces = [pieces_of(algorithm)[backend, part] for part in PARTS]
    total, different = sum(len(x.lines) for x in pieces), sum(len(x.different) for x in pieces)
    return str(total) if backend == REFERENCE else f"{total}, {different} differ"


def page(algorithm: str) -> str:
    """The algorithm's README, and its six implementations side by side."""
    title, _, text = (FOLDER / algorithm / "README.md").read_text().partition("\n")
    return f"""---
hide: [navigation, toc]
---
{title}: {ALGORITHMS[algorithm].title}

<div class="six" markdown>

## The same code in six frameworks

Choose the columns, which scroll sideways; <mark>marked lines</mark> differ from plain JAX.

{_choices()}

{"".join(_part(algorithm, part) for part in PARTS)}
</div>

## How it works
{text.replace(chr(10) + "## ", chr(10) + "### ")}
"""


def _choices() -> str:
    """A box for each framework; style sheets do the rest."""
    boxes = (
        f'<label><input type="checkbox" id="show-{name}" checked> {escape(BACKENDS[name].title)}</label>'
        for name in ORDER
    )
    return f'<div class="choices">{"".join(boxes)}</div>'


def _part(algorithm: str, part: str) -> str:
    title, about = PARTS[part]
    columns = "".join(_column(algorithm, backend, part) for backend in ORDER)
    return f'### {title}\n\n{about}\n\n<div class="columns" markdown>\n{columns}</div>\n\n'


def _column(algorithm: str, backend: str, part: str) -> str:
    piece = pieces_of(algorithm)[backend, part]
    marked = f' hl_lines="{" ".join(map(str, piece.different))}"' if piece.different else ""
    code = "\n".join(piece.lines)
    return f"""<div class="column {backend}" markdown>
**{BACKENDS[backend].title}** <small>`{algorithm}/{backend}.py`</small>

```{{.python{marked}}}
{code}
```
</div>
"""


@cache
def pieces_of(algorithm: str) -> dict[tuple[str, str], Piece]:
    """(backend, part) -> the piece."""
    sources = {
        (backend, part): text
        for backend in ORDER
        for part, text in parts_of((FOLDER / algorithm / f"{backend}.py").read_text()).items()
    }
    lines = {key: text.splitlines() for key, text in narrowed(sources).items()}
    return {
        (backend, part): Piece(tuple(own), different(lines[REFERENCE, part], own))
        for (backend, part), own in lines.items()
    }


def parts_of(source: str) -> dict[str, str]:
    """The code of each part of an implementation; together they are the file without docstring and imports."""
    body = ast.parse(source).body
    make = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "make")
    first = next(i for i, node in enumerate(body) if not _is_preamble(node))
    ends = {"state": body[body.index(make) - 1].end_lineno or 0, **_ends(make)}
    lines, start, parts = source.splitlines(), body[first - 1].end_lineno or 0, {}
    for part in PARTS:
        parts[part] = dedent("\n".join(lines[start : ends[part]])).strip("\n")
        start = ends[part]
    return parts


def _is_preamble(node: ast.stmt) -> bool:
    documentation = isinstance(node, ast.Expr) and node.lineno == 1
    return documentation or isinstance(node, ast.Import | ast.ImportFrom)


def _ends(make: ast.FunctionDef) -> dict[str, int]:
    """Part inside `make` -> its last line: of the function it is named after, or of the last one that this needs."""
    last: dict[str, int] = {}
    needs: dict[str, set[str]] = {}
    for node in make.body:
        for name in _defined(node):
            last[name] = node.end_lineno or 0
            used = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)} - {name}
            needs[name] = needs.get(name, set()) | used
    ends = {part: max(last[name] for name in _closure(part, needs)) for part in ("init", "rollout", "learn", "update")}
    return ends | {"act": make.end_lineno or 0}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    return [x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]


def _closure(name: str, needs: dict[str, set[str]]) -> set[str]:
    """The name and all that it needs, directly or in turn."""
    found, left = set(), {name}
    while left:
        found |= left
        left = {x for known in left for x in needs[known] if x in needs} - found
    return found


def narrowed(sources: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """The same code with lines of at most WIDTH, all formatted in one call."""
    with TemporaryDirectory() as folder:
        files = {key: Path(folder, f"{number}.py") for number, key in enumerate(sources)}
        for key, file in files.items():
            file.write_text(sources[key] + "\n")
        command = [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={WIDTH}", "--quiet", folder]
        subprocess.run(command, check=True)
        return {key: file.read_text().rstrip("\n") for key, file in files.items()}


def different(reference: list[str], own: list[str]) -> tuple[int, ...]:
    """Numbers, from one, of the lines of `own` that are not in `reference` in the same order."""
    same = SequenceMatcher(None, [x.strip() for x in reference], [x.strip() for x in own], autojunk=False)
    shared = {block.b + offset for block in same.get_matching_blocks() for offset in range(block.size)}
    return tuple(at + 1 for at, line in enumerate(own) if at not in shared and line.strip())
