"""Programs that several tests share: tracing and compiling them is most of what a small training takes."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from benchback.population import evolution, halving, training

BUILDERS = ((training, "built"), (halving, "_built"), (evolution, "_built"))


def share_programs(patch: pytest.MonkeyPatch) -> None:
    """Trainings of populations use the program that was built before for the same arguments."""
    for module, name in BUILDERS:
        patch.setattr(module, name, remembering(getattr(module, name)))


def remembering(build: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    def built(*arguments: Any) -> Any:
        key = re.sub(r"seed=\d+", "", repr(arguments))  # a program does not depend on the seed of the run
        if key not in known:
            known[key] = build(*arguments)
        return known[key]

    return built
