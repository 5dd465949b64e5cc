"""Networks by name: those of a backend, and those that plug-ins add to it."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from benchback.errors import InputError
from benchback.plugins import Merged

NETWORKS: Merged[Mapping[str, str]] = Merged("network", Mapping, {"mlp": {}})
"""Name -> backend -> module that has the network; the built-in ones are in the backends themselves."""


class Networks:
    """The networks of one backend for one purpose: what builds them, by name."""

    def __init__(self, backend: str, part: str, **own: Any) -> None:
        self.backend, self.part, self.own = backend, part, own

    def __getitem__(self, name: str) -> Any:
        if name in self.own:
            return self.own[name]
        check_network(name, self.backend)
        module = NETWORKS.get(name, {}).get(self.backend, "")
        part = getattr(import_module(module), self.part, None) if module else None
        if part is None:
            where = f"{module} has none" if module else f"{self.backend} has {', '.join(self.own)}"
            raise InputError(f"network={name} needs {self.part} here, and {where}; use --network mlp")
        return part


def check_network(name: str, backend: str) -> None:
    """Raise an InputError if the network is a plug-in's that does not exist for the backend."""
    if name in NETWORKS.plugins and backend not in (known := NETWORKS[name]):
        raise InputError(f"network={name} does not exist for {backend}, only for {', '.join(known)}; use --network mlp")
