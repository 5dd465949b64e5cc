"""Proof that every backend computes the same numbers: five levels of comparison, each within a tolerance.

- L0 initialisation and the forward pass: greedy actions, values and log-probabilities against the oracle;
- L1 one gradient step: every metric, gradient, weight and moment against the oracle;
- L2 twenty gradient steps on different minibatches against the oracle;
- L3 whole updates against the oracle, and whole iterations: the JAX family must take equal actions;
- L4 every mode and unit of a backend against its own mode `none` in unit `phase`.

L0 to L3 run in mode `none`, and L4 carries their result over to the others. `oracle.py` is the independent
reference, `cases.py` what it is tried on, `tolerance.py` how far a backend may be off. Importing this
package imports no framework; `measure` does. What is special to an algorithm is in a folder of its name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from benchback.parity.tolerance import TOLERANCE

LEVELS = ("L0", "L1", "L2", "L3", "L4")
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Row:
    """One quantity of one backend and how far it is off."""

    algorithm: str
    backend: str
    level: str
    quantity: str
    dtype: str
    deviation: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the deviation is a number within the tolerance."""
        return self.deviation <= self.tolerance


def measure(
    algorithm: str,
    backends: Sequence[str],
    dtypes: Sequence[str] = DTYPES,
    levels: Sequence[str] = LEVELS,
) -> Iterator[Row]:
    """Every quantity of every level, worst over all cases, backend by backend."""
    from benchback.parity.subject import Subject, computing

    levels_of = import_module(f"benchback.parity.{algorithm}.levels").LEVELS
    for dtype in dtypes:
        agents = {}
        for subject in [Subject(algorithm, backend, dtype, agents) for backend in backends]:
            for level in levels:
                # Listed before it is yielded: what is between two yields runs in the caller's precision.
                with computing(dtype, optimised=False):
                    found = list(levels_of[level](subject))
                for quantity, deviation in found:
                    allowed = TOLERANCE[dtype][level][quantity.partition("/")[0]]
                    yield Row(algorithm, subject.backend, level, quantity, dtype, deviation, allowed)
