"""A gymnasium environment without advice on what to install."""

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium


@contextmanager
def made(name: str) -> Iterator[gymnasium.Env]:
    """The environment."""
    yield gymnasium.make(name, disable_env_checker=True)
