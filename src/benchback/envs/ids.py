"""The parts of an environment's id: `suite/name`, or `python:module.function`, then wrappers: `+time_limit=500`."""

from typing import NamedTuple

OWN = ("python", "plugin")
"""Suites of a user's own environments: by the name of a function, and by the name of an entry point."""


class EnvId(NamedTuple):
    """An id in its parts."""

    suite: str
    name: str
    wrappers: tuple[str, ...] = ()
    """As written: `frame_stack=4`, `clip_reward`."""

    @property
    def base(self) -> str:
        """The id without wrappers."""
        return f"{self.suite}{':' if self.suite == 'python' else '/'}{self.name}"

    @property
    def task(self) -> str:
        """The id without its suite: the same in suites that have the same environment."""
        return "+".join((self.name, *self.wrappers))


def split(id: str) -> EnvId:
    """The parts of an id; nothing is checked."""
    base, *wrappers = id.split("+")
    separator = ":" if base.startswith("python:") else "/"
    suite, _, name = base.partition(separator)
    return EnvId(suite, name, tuple(wrappers))
