"""Whether the program of a cell was proven to compute what the oracle computes."""

from collections.abc import Mapping

from benchback.measure.record import Cell

PASS = "pass"
PASS_IN_MODE_NONE = "pass (mode none)"
"""The pass of a store from before programs were proven: its backend was, in mode `none`, without whole iterations."""


def parity_verdict(cell: Cell, parity: Mapping[str, str]) -> str:
    """The verdict on a cell's program, or on its backend in older stores: a pass, or why not."""
    if cell.proof in parity:
        return parity[cell.proof]
    of_backend = parity.get(f"{cell.run['algorithm']}/{cell.run['backend']}", "not measured")
    return PASS_IN_MODE_NONE if of_backend == PASS else of_backend
