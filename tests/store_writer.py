"""A coordinator reduced to its store: claims and finishes slots until none is open, and says what it has finished.

`python store_writer.py STORE OWNER LATER_S`: its clock is LATER_S ahead, so that leases of the dead have run out.
"""

import sys
import time
from pathlib import Path

from benchback.measure.record import Attempt, Record
from benchback.measure.store import Lease, open_store

LEASE_S = 600.0


def attempt_for(lease: Lease) -> Attempt:
    """What an attempt at this slot measures, always the same."""
    values = [lease.slot.seed / 7 + call for call in range(40)]
    marks, ledger = (
        {"first_call": values[0], "finished": values[-1]},
        {"iterations_per_call": 1, "seed": lease.slot.seed},
    )
    record = Record({"total_s": list(values)}, marks, ledger, {})
    return Attempt(lease.slot.id, lease.number, "ok", "2026-01-01T00:00:00+00:00", 1.0, record=record)


def main() -> None:
    path, owner, later_s = sys.argv[1:]
    with open_store(Path(path), clock=lambda: time.time() + float(later_s)) as store:
        while lease := store.lease(owner, LEASE_S):
            store.finish(lease, attempt_for(lease))
            print(lease.slot.id, lease.number, flush=True)


if __name__ == "__main__":
    main()
