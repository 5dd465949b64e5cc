"""A gymnasium environment without advice on what to install or which space to choose."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium


@contextmanager
def made(name: str, render_mode: str | None) -> Iterator[gymnasium.Env]:
    """The environment."""
    yield gymnasium.make(name, disable_env_checker=True)


def one(name: str, render_mode: str | None) -> gymnasium.Env:
    """The environment."""
    return gymnasium.make(name, disable_env_checker=True)


def no_notes(environment: Any) -> tuple[()]:
    """Nothing is said of its spaces."""
    return ()
