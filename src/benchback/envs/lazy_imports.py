"""Imports put off until they are needed, for libraries that import more than most of their users want."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    """A module that is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system, which must not be sent in circles
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


@contextmanager
def lazily(*names: str) -> Iterator[None]:
    """Modules that others import as a whole in this context are loaded when something of them is first used."""
    missing = [name for name in names if name not in sys.modules]
    for name in missing:
        sys.modules[name] = _StandIn(name)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
