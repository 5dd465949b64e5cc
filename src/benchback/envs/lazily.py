"""Imports put off until they are needed, for libraries that import more than most of their users want."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def lazily(*names: str) -> Iterator[None]:
    """Modules that others import as a whole in this context are loaded when something of them is first used."""
    missing = [name for name in names if name not in sys.modules]
    for name in missing:
        sys.modules[name] = stand_in = ModuleType(name)
        stand_in.__getattr__ = lambda attribute, name=name: getattr(import_module(name), attribute)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
