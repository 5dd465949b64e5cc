"""Modules of a user's own, imported by name: by `--import`, by an environment's id, or through an entry point.

A module is looked for where Python looks, then in the current folder, and last where the process which started this one
looks: workers get no PYTHONPATH, and must find what the coordinator found. Folders are added at the end of the path, so
that no file in them hides an installed package.
"""

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from benchback.errors import InputError

MODULES, FOLDERS = "BENCHBACK_IMPORT", "BENCHBACK_IMPORT_FOLDERS"
"""Variables by which a process passes on the modules that it has imported, and its path."""
NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
NOT_THEIRS = ("site-packages", str(Path(__file__).parent), "<frozen")
"""Parts of the paths of files that a user did not write."""
_imported: list[str] = []
"""Modules that a user named, in order."""


def import_named(name: Any, told: str = "--import {}") -> ModuleType:
    """The module of that name; InputError, with `told` to say where the name comes from, if it cannot be imported."""
    where = told.format(name)
    if not isinstance(name, str) or not NAME.fullmatch(name) or name.endswith(".py"):
        own = f"{Path(name).stem}, without folder and suffix" if str(name).endswith(".py") else "e.g. my_package.worlds"
        raise InputError(f"{where}: not the name of a module; give it as Python's import takes it, {own}")
    if name in _imported:
        return sys.modules[name]
    extend_path()
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InputError(f"{where}: it needs {error.name}, which is not installed; install it") from None
        raise InputError(
            f"{where}: there is no module {error.name}; run benchback in the folder that contains it, or install it"
        ) from None
    except InputError:
        raise
    # Whatever a module of the user's does when it is imported is for the user to mend.
    except Exception as error:
        raise InputError(f"{where}: importing it fails: {cause(error)}; mend it") from None
    if name not in _imported:
        _imported.append(name)
    return module


def import_all(names: Iterable[Any]) -> None:
    """Import the modules of these names, in order."""
    for name in names:
        import_named(name)


def cause(error: BaseException) -> str:
    """The error in one line, with the last place in the user's code that it came through."""
    frames = extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not any(part in frame.filename for part in NOT_THEIRS)]
    last = (theirs or frames)[-1]
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text} ({Path(last.filename).name}, line {last.lineno})"


def extend_path() -> None:
    """Add the current folder and those passed on to the end of Python's path."""
    passed_on = [folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    known = {os.path.realpath(entry) for entry in sys.path}
    added = [folder for folder in (os.getcwd(), *passed_on) if os.path.realpath(folder) not in known]
    sys.path.extend(dict.fromkeys(added))
    # A module written since Python last looked into its folder would not be seen.
    invalidate_caches()


def variables() -> dict[str, str]:
    """Environment variables that let a process started from here import what this one has."""
    if not _imported:
        return {}
    return {MODULES: ",".join(_imported), FOLDERS: os.pathsep.join(map(os.path.abspath, sys.path))}


def import_passed_on() -> None:
    """Import what the process that started this one had imported: for workers whose job names no modules."""
    import_all(name for name in os.environ.get(MODULES, "").split(",") if name)


@cache
def installed(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, of every package that Python finds."""
    extend_path()
    return {entry.name: entry for entry in entry_points(group=group)}


def load(entry: EntryPoint) -> object:
    """What the entry point names; InputError if it cannot be loaded."""
    module = import_named(entry.module, f"entry point {entry.name} of {entry.group}, {{}}")
    try:
        found: object = module
        for part in filter(None, entry.attr.split(".")):
            found = getattr(found, part)
    except AttributeError:
        raise InputError(f"entry point {entry.name} of {entry.group}: {entry.value} does not exist") from None
    return found
