"""Which backends a test tries by default: all where their own mathematics is compared, else one of each style.

Linen, Haiku and plain JAX hold their state in the same way and share modes, units and layout; NNX mutates an object,
Equinox has modules of arrays and functions, PyTorch is another framework. `make slow` tries all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from benchback.registry import BACKENDS, one_of_each_family

REPRESENTATIVES = ("purejax", "nnx", "equinox", "pytorch")


def representatives(names: Iterable[str] = BACKENDS) -> list[Any]:
    """The names as parameters; those that others stand for are slow."""
    return [pytest.param(name, marks=[] if name in REPRESENTATIVES else [pytest.mark.slow]) for name in names]


def most_different(names: Iterable[str]) -> list[Any]:
    """The names as parameters; all but NNX, whose modes are least like the others', are slow."""
    return [pytest.param(name, marks=[] if name == "nnx" else [pytest.mark.slow]) for name in names]


def slow(name: str) -> Any:
    """The name as a parameter of the slow tests."""
    return pytest.param(name, marks=pytest.mark.slow)


def quickest(name: str) -> str:
    """The mode in which a backend is compared with the oracle soonest.

    In JAX the best mode compiles a few programs instead of hundreds of single operations; torch.compile cannot see
    through the annotation checks of the tests.
    """
    return BACKENDS[name].best if BACKENDS[name].family == "jax" else "none"


def measured(levels: Mapping[str, Sequence[str]]) -> list[Any]:
    """(backend, dtype, level) for the levels of each precision; float64 of one backend per family, the others slow.

    A mistake that only float64 shows is one in the shared mathematics, or it is the framework's.
    """
    families = one_of_each_family()
    return [
        pytest.param(
            name, dtype, level, marks=[pytest.mark.slow] if dtype == "float64" and name not in families else []
        )
        for name in BACKENDS
        for dtype, wanted in levels.items()
        for level in wanted
    ]
