"""Why two runs must not be compared, beside the reasons that a single run has."""

from dataclasses import dataclass

from benchback.stats import Missing


@dataclass(frozen=True)
class ParityNotProven(Missing):
    """No speed is claimed for a program whose parity was not proven."""

    proof: str
    """See `Cell.proof`."""
    verdict: str


@dataclass(frozen=True)
class LedgersDiffer(Missing):
    """Two runs of a block did different work."""

    fields: tuple[str, ...]
    """Names of the differing fields of their ledgers."""


@dataclass(frozen=True)
class Deviates(Missing):
    """Two runs that began with the same weights and keys did not compute the same."""

    metric: str
    iteration: int
    deviation: float
    """Relative; infinite where one of them has no value."""
