"""Plug-ins: algorithms, backends and networks of other packages, beside the built-in ones.

A package declares them as entry points, whose modules are imported when a name is asked for that is not built in, or
when all are listed; a module given to `--import` calls `add`. Neither imports a framework: what is registered is a
record and the package that has the code. A plug-in that cannot be imported is kept with the reason and stops no other.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from benchback.errors import InputError
from benchback.plugins.towers import TOWERS

BUILT_IN = "benchback"
"""Origin of everything that is no plug-in, and the first part of the groups of entry points."""
NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Names are parts of file names and of the identities of measured cells."""

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin(Generic[T]):
    """One entry of a plug-in."""

    record: T
    package: str
    """Module below which its code is."""
    origin: str
    """Distribution and version, or the module that added it."""


class Merged(Mapping[str, T]):
    """Records of one kind by name: the built-in ones, then those of plug-ins."""

    def __init__(self, kind: str, record_type: type, built_in: Mapping[str, T]) -> None:
        self.kind, self.record_type, self.built_in = kind, record_type, built_in
        self.added: dict[str, Plugin[T]] = {}
        self.broken: dict[str, str] = {}
        """Name -> origin and reason, of entry points that cannot be used; complete once they are read."""

    @cached_property
    def installed(self) -> dict[str, Plugin[T]]:
        """Plug-ins of installed distributions, read once."""
        found: dict[str, Plugin[T]] = {}
        for entry in sorted(entry_points(group=f"{BUILT_IN}.{self.kind}s"), key=lambda entry: entry.name):
            try:
                self._check(entry.name, record := entry.load(), found)
            except Exception as error:  # whatever a plug-in raises must not stop what does not need it
                reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
                self.broken[entry.name] = f"{_distribution(entry)}: {reason}"
            else:
                found[entry.name] = Plugin(record, entry.module, _distribution(entry))
        return found

    def add(self, name: str, record: T, package: str) -> None:
        """Add an entry for this process; InputError if its name is taken or it is no record of this kind."""
        known = self.plugins.get(name)
        if known is None or (known.record, known.package) != (record, package):
            self._check(name, record, self.plugins)
            self.added[name] = Plugin(record, package, package)

    def _check(self, name: str, record: Any, taken: Mapping[str, Plugin[T]]) -> None:
        if not NAME.fullmatch(name):
            raise InputError(f"{self.kind}={name!a:.80} is no name; use lower-case letters, digits and underscores")
        if name in self.built_in or name in taken:
            whose = taken[name].origin if name in taken else BUILT_IN
            raise InputError(f"{self.kind}={name} is already one of {whose}; choose another name")
        if not isinstance(record, self.record_type):
            raise InputError(f"{self.kind}={name} is a {type(record).__name__}, not a {self.record_type.__name__}")

    @property
    def plugins(self) -> dict[str, Plugin[T]]:
        """All plug-ins by name."""
        return self.installed | self.added

    def origin(self, name: str) -> str:
        """Whence the entry comes: `benchback`, a distribution and its version, or the module that added it."""
        return BUILT_IN if name in self.built_in else self.plugins[name].origin

    def __getitem__(self, name: str) -> T:
        return self.built_in[name] if name in self.built_in else self.plugins[name].record

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        return iter([*self.built_in, *self.plugins])

    def __len__(self) -> int:
        return len(self.built_in) + len(self.plugins)


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module


BUILT_IN_NETWORKS = ("mlp", *TOWERS, "gru")
NETWORKS: Merged[Mapping[str, str]] = Merged("network", Mapping, {name: {} for name in BUILT_IN_NETWORKS})
"""Name -> backend -> module that has the network; the built-in ones are in the backends themselves."""


class Networks:
    """The networks of one backend for one purpose: what builds them, by name."""

    def __init__(self, backend: str, part: str, **own: Any) -> None:
        self.backend, self.part, self.own = backend, part, own

    def __getitem__(self, name: str) -> Any:
        if name in self.own:
            return self.own[name]
        modules = NETWORKS.get(name, {})
        if self.backend not in modules:
            raise absent(name, self.backend)
        try:
            part = getattr(import_module(modules[self.backend]), self.part, None)
        except ImportError as error:
            whose = f"network={name} of {NETWORKS.origin(name)}"
            raise InputError(f"{whose} cannot be imported: {error}; install what it needs, or use another") from error
        if part is None:
            where = f"{modules[self.backend]} has no {self.part}"
            raise InputError(f"network={name} is not for this algorithm: {where}; use --network mlp")
        return part


def absent(name: str, backend: str) -> InputError:
    """The error that a network does not exist for a backend; it names those that have it."""
    having = ", ".join(NETWORKS.get(name, {})) or "others"
    return InputError(f"network={name} does not exist for {backend}, only for {having}; use --network mlp")
