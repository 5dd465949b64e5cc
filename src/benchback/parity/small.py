"""The smallest configuration of each algorithm, for checks whose cost is compilation."""

from dataclasses import fields, replace
from importlib import import_module
from typing import Any, Literal

from benchback import registry
from benchback.parity.subject import Subject

SMALL = {"num_envs": 4, "num_steps": 4, "num_iterations": 4, "hidden_sizes": (8,)}
"""Fields of a plug-in's Config that are made small, where it has them, unless it brings a `SMALL` of its own."""


def small_config(subject: Subject) -> tuple[Any, Literal["discrete", "box"]]:
    """The configuration, and the kind of actions it is checked with."""
    kind = registry.ALGORITHMS[subject.algorithm].actions[0]
    return deepened(subject.chosen(_of_algorithm(subject.algorithm)), subject.network), kind


def deepened(config: Any, network: str) -> Any:
    """The configuration with this network; with a further layer if it is of a plug-in, where one may differ."""
    if network in registry.NETWORKS.built_in:
        return replace(config, network=network) if hasattr(config, "network") else config
    return replace(config, hidden_sizes=(8, 8), network=network)


def _of_algorithm(algorithm: str) -> Any:
    if algorithm in registry.BUILT_IN_ALGORITHMS:
        return import_module(f"benchback.parity.{algorithm}.cases").TINY
    module = registry.module_of(algorithm, "config")
    own = {field.name for field in fields(module.Config)}
    return getattr(module, "SMALL", None) or module.Config(**{name: x for name, x in SMALL.items() if name in own})
