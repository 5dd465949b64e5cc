"""A store as data frames."""

from dataclasses import dataclass
from pathlib import Path

import polars

from benchback.analysis import export, reader
from benchback.analysis.claim_tables import claims_table
from benchback.analysis.claims import all_claims
from benchback.measure.store import open_store


@dataclass(frozen=True)
class Frames:
    """A campaign as data frames."""

    runs: polars.DataFrame
    """A row for each attempt at a run: what it was, how it ended, how busy the machine was."""
    samples: polars.DataFrame
    """A row for each measured value; `name` says what it is, e.g. `total_s`, `call` in which call of the program."""
    claims: polars.DataFrame
    """A row for each comparison of a variant with the reference; empty where the runs are not trainings."""


def read(store: str | Path) -> Frames:
    """The campaign in a store as data frames."""
    with open_store(Path(store), readonly=True) as opened:
        trainings = {cell.kind for cell in opened.cells().values()} == {"training"}
        claims = claims_table(all_claims(reader.read(opened))) if trainings else polars.DataFrame()
        return Frames(*export.frames(opened), claims)
