"""Parity tests: every backend computes the same numbers, at five levels, each within a tolerance.

- L0 initialisation and the forward pass: greedy actions, values and log-probabilities against the oracle;
- L1 one gradient step: every metric, gradient, weight and moment against the oracle;
- L2 twenty gradient steps on different minibatches against the oracle;
- L3 whole updates against the oracle, and whole iterations: the JAX family must take equal actions;
- L4 every mode and unit of a backend against its own mode `none` in unit `phase`.

L0 to L3 run in mode `none`, and L4 carries their result over to the others. `oracle.py` is the independent
reference, `cases.py` has the test cases, `tolerance.py` the largest deviations allowed. Importing this
package imports no framework; `measure` does. Each algorithm has a folder of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from benchback.parity.tolerance import TOLERANCE

LEVELS = ("L0", "L1", "L2", "L3", "L4")
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Row:
    """The deviation of one quantity in one backend."""

    algorithm: str
    backend: str
    level: str
    quantity: str
    dtype: str
    deviation: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the deviation is within the tolerance; False for NaN."""
        return self.deviation <= self.tolerance


def measure(
    algorithm: str,
    backends: Sequence[str],
    dtypes: Sequence[str] = DTYPES,
    levels: Sequence[str] = LEVELS,
) -> Iterator[Row]:
    """Largest deviation over all cases of every quantity at every level, backend by backend."""
    from benchback.parity.subject import Subject, computing

    levels_of = import_module(f"benchback.parity.{algorithm}.levels").LEVELS
    for dtype in dtypes:
        agents = {}
        for subject in [Subject(algorithm, backend, dtype, agents) for backend in backends]:
            for level in levels:
                # Collected before yielding: code between two yields would run in the caller's precision.
                with computing(dtype, optimised=False):
                    found = list(levels_of[level](subject))
                for quantity, deviation in found:
                    allowed = TOLERANCE[dtype][level][quantity.partition("/")[0]]
                    yield Row(algorithm, subject.backend, level, quantity, dtype, deviation, allowed)
