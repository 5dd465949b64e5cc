"""References: what every verb's --help prints, and the public modules from their docstrings."""

import os
import re
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from unittest.mock import patch

from benchback.cli import USAGE, VERBS
from benchback.errors import InputError
from benchback.registry import ALGORITHMS
from site_pages import ROOT

WIDTH = 88
MODULES = {
    "api": "The package as a library: what `import benchback as bb` gives.",
    "agent": "The interface between algorithms and frameworks.",
    "training.run": "A run: everything that determines one training.",
    "registry": "The matrix of algorithms and backends.",
    "training": "The training loop, one for all.",
    "envs.interface": "What an environment is to an agent.",
    "population.members": "Many agents in one program.",
    "stats.ratios": "Ratios of durations, with intervals.",
    "stats.verdicts": "Verdicts from intervals.",
}
"""Public modules, most used first; those that do not exist are left out."""


def pages() -> dict[str, str]:
    """File of the site -> its Markdown."""
    return {"reference/command-line.md": command_line(), "reference/python.md": python()}


def command_line() -> str:
    """Every verb with its help, as the terminal shows it."""
    parts = [f"# Command line\n\n```text\n{USAGE}```\n"]
    for verb in VERBS:
        for arguments in arguments_of(verb):
            parts.append(f"## benchback {' '.join([verb, *arguments])}\n\n```text\n{help_of(verb, arguments)}\n```\n")
    return "\n".join(parts)


def arguments_of(verb: str) -> list[list[str]]:
    """What to ask help for: training has options of its own for each algorithm."""
    return [[name] for name in ALGORITHMS] if verb == "train" else [[]]


def help_of(verb: str, arguments: list[str]) -> str:
    """What `benchback VERB ... --help` prints, without colours."""
    module, function = VERBS[verb]
    printed = StringIO()
    narrow = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    with redirect_stdout(printed), suppress(SystemExit), patch.dict(os.environ, narrow):
        try:
            getattr(import_module(f"benchback.cli.{module}"), function)([*arguments, "--help"])
        except InputError as error:  # a verb that takes names only says which
            print(error)
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).strip()


def python() -> str:
    """The public modules, each to be filled in from its docstrings."""
    found = [(name, about) for name, about in MODULES.items() if exists(name)]
    sections = "\n".join(f"## {name}\n\n{about}\n\n::: benchback.{name}\n" for name, about in found)
    return f"# Python\n\nGenerated from the docstrings.\n\n{sections}"


def exists(module: str) -> bool:
    """Whether `benchback.<module>` is a file or a package of the tree."""
    path = ROOT / "src" / "benchback" / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
