"""benchback: which neural-network backend should I build my reinforcement-learning project on?

`import benchback as bb`, then `bb.train`, `bb.load`, `bb.weights`, `bb.run`, `bb.read`, `bb.advise`: docs/library.md.
Importing this package imports neither jax nor torch; what it offers is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchback.api import Frames, Policy, Progress, Result, Results, advise, load, read, run, train, weights
    from benchback.errors import InputError
    from benchback.measure.study import Product, Study
    from benchback.training.monitor import Diverged
    from benchback.training.run import Run

__version__ = "0.1.0"

__all__ = [
    "Diverged",
    "Frames",
    "InputError",
    "Policy",
    "Product",
    "Progress",
    "Result",
    "Results",
    "Run",
    "Study",
    "advise",
    "load",
    "read",
    "run",
    "train",
    "weights",
]

_ELSEWHERE = {
    "Diverged": "training.monitor",
    "InputError": "errors",
    "Product": "measure.study",
    "Run": "training.run",
    "Study": "measure.study",
}
"""Where a name is from that is not in `benchback.api`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'benchback' has no attribute {name!r}")
    found = getattr(import_module(f"benchback.{_ELSEWHERE.get(name, 'api')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
