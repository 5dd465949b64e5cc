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
