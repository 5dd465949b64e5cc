"""Parity tests: every backend computes the same numbers, at five levels, each within a tolerance.

- L0 initialisation and the forward pass: greedy actions, values and log-probabilities against the oracle;
- L1 one gradient step: every metric, gradient, weight and moment against the oracle;
- L2 twenty gradient steps on different minibatches against the oracle;
- L3 whole updates and whole iterations against the oracle, given the same noise and the same rows;
- L4 every mode and unit of a backend against its own mode `none` in unit `phase`; in the JAX family members of a
  population against the same runs alone; and torch against the JAX family, given the same noise and the same rows.

`measure` runs L0 to L3 on all cases in mode `none`, and L4 carries their result over to the others. `prove` runs L0
to L3 in the mode and unit of a cell that is timed, compiled as it will be timed, on the cases that share its programs;
of a cell with several agents also that its members compute what the agent alone computes.
An algorithm without an oracle and a network of a plug-in are measured `against` another backend, at L0, L3 and L4.
`check` adds the laws of an agent, whether its modes compile once, and probes that it must learn.
`oracle.py` is the independent reference, `cases.py` has the test cases, `tolerance.py` the largest deviations allowed.
Importing this package imports no framework; `measure` and `prove` do. Each algorithm has a folder of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from benchback import registry
from benchback.agent import Gradients
from benchback.errors import InputError
from benchback.parity.environment import LARGE
from benchback.parity.tolerance import CHECKS, tolerance

if TYPE_CHECKING:
    from benchback.parity.deviation import Deviation
    from benchback.parity.subject import Subject

LEVELS = ("L0", "L1", "L2", "L3", "L4")
PROVEN = LEVELS[:-1]
"""Levels of the proof of a cell."""
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
    *,
    mode: str = "none",
    unit: str = "phase",
    gradients: Gradients = "framework",
    thorough: bool = True,
    network: str = "mlp",
) -> Iterator[Row]:
    """Largest deviation over the cases of every quantity at every level, backend by backend; `thorough`: all cases."""
    from benchback.parity.subject import Subject

    for dtype in dtypes:
        agents = {}
        for backend in backends:
            subject = Subject(algorithm, backend, dtype, agents, mode, unit, gradients, thorough, network)
            # Without LLVM's optimiser the convolutions of a large network take longer than compiling them with it.
            yield from _rows(subject, levels, optimised=network in LARGE)


def prove(proof: str) -> Iterator[Row]:
    """Deviations of a cell's program: `proof` is algorithm/backend/mode/unit/network/dtype/gradients.

    Behind it come options, such as another surrogate, with which all cases are then computed. One that ends in
    `/population` is of the part of L4 that is about members of a population in this mode and unit: each is compared
    with the same run alone. What the agent alone computes is the proof without that ending.
    """
    from benchback.parity.subject import Subject

    algorithm, backend, mode, unit, network, dtype, gradients, *more = proof.split("/")
    how, fields = cast(Gradients, gradients), {}
    for option in (word for word in more if word != "population"):
        fields |= _options(algorithm)[option]
    subject = Subject(algorithm, backend, dtype, {}, mode, unit, how, thorough=False, network=network, options=fields)
    if "population" in more:
        members = import_module(_module(subject)).members
        yield from _level(subject, "L4", members, optimised=True)
    else:
        yield from _rows(subject, PROVEN, optimised=True)


def _options(algorithm: str) -> Mapping[str, Mapping[str, Any]]:
    """Options of a built-in algorithm that the oracle knows -> the fields that they stand for."""
    if algorithm not in registry.BUILT_IN_ALGORITHMS:
        raise InputError(f"options of {algorithm} have no oracle")
    return import_module(f"benchback.parity.{algorithm}.cases").OPTIONS


def check(algorithm: str, backend: str, checks: Sequence[str] = tuple(CHECKS), network: str = "mlp") -> Iterator[Row]:
    """Whether a backend keeps the laws, compiles once in each mode, and learns probes, in its best mode and float32."""
    from benchback.parity import laws, probes
    from benchback.parity.subject import Subject, computing

    functions = {"laws": laws.laws, "compiles": laws.engagement, "probes": probes.probes}
    subject = Subject(algorithm, backend, "float32", {}, registry.BACKENDS[backend].best, network=network)
    for name in checks:
        with computing("float32", optimised=False):
            found = list(functions[name](subject))
        for quantity, deviation in found:
            allowed = CHECKS[name][quantity.partition("/")[0]]
            yield Row(algorithm, backend, name, quantity, "float32", deviation, allowed)


def _rows(subject: "Subject", levels: Sequence[str], *, optimised: bool) -> Iterator[Row]:
    levels_of = _levels_of(subject)
    for level in (level for level in levels if level in levels_of):
        yield from _level(subject, level, levels_of[level], optimised=optimised)


def _level(
    subject: "Subject", level: str, deviations: "Callable[[Subject], Iterable[Deviation]]", *, optimised: bool
) -> Iterator[Row]:
    from benchback.parity.subject import computing

    # Collected before yielding: code between two yields would run in the caller's precision.
    with computing(subject.dtype, optimised=optimised):
        found = list(deviations(subject))
    for quantity, deviation in found:
        allowed = tolerance(subject.dtype, level, quantity, subject.network)
        yield Row(subject.algorithm, subject.backend, level, quantity, subject.dtype, deviation, allowed)


def _module(subject: "Subject") -> str:
    """The module with the levels of a built-in algorithm and network."""
    recurrent = subject.network in registry.RECURRENT
    return f"benchback.parity.{subject.algorithm}.{'recurrent_levels' if recurrent else 'levels'}"


def _levels_of(subject: "Subject") -> Mapping[str, Any]:
    """The comparisons with the algorithm's oracle, or, where there is none for it, with another backend."""
    algorithm, oracle = subject.algorithm, None
    if subject.network in registry.NETWORKS.built_in:
        built_in = algorithm in registry.BUILT_IN_ALGORITHMS
        oracle = (
            import_module(_module(subject)) if built_in else registry.part(registry.ALGORITHMS, algorithm, "parity")
        )
    return oracle.LEVELS if oracle else import_module("benchback.parity.against").levels(subject)
