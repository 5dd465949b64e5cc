"""Deferred imports, for libraries that import more than most of their users need."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    """A placeholder for a module, loaded at the first access to one of its attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks for these; loading here would recurse
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


@contextmanager
def lazy_imports(*names: str) -> Iterator[None]:
    """Context in which importing these modules gives placeholders that load them at the first attribute access."""
    missing = [name for name in names if name not in sys.modules]
    placeholders = {name: _StandIn(name) for name in missing}
    sys.modules.update(placeholders)
    for name, placeholder in placeholders.items():
        package, _, last = name.rpartition(".")
        if package in placeholders:  # `import a.b as c` asks a for b
            setattr(placeholders[package], last, placeholder)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
