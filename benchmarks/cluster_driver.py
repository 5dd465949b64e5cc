"""What the driver of a cluster itself costs: a large campaign in virtual time, and results stored per second.

    python benchmarks/cluster_driver.py plan --cells 10000 --machines 256
    python benchmarks/cluster_driver.py limit --cells 1000 --machines 64

`plan` drives scheduler and store in virtual time over cells of 10 to 30 s. `limit` lets stations return at once, with
records of 60 calls, into a store that syncs every transaction to disk: results per second that the driver takes, and
whether each is there once. Exit code 1 if a result is lost or counted twice, if a plan takes a minute or more, or if
fewer than 1,000 results are stored per second.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from benchback.measure import plan
from benchback.measure.block import BlockJob, Measured
from benchback.measure.coordinator import Hooks
from benchback.measure.driver import Done, Driver, Joined, Report
from benchback.measure.process import Ended
from benchback.measure.store import create
from benchback.measure.study import Product, Study
from benchback.measure.virtual import MACHINE, foresee

BACKENDS = ["linen", "nnx", "equinox", "haiku", "purejax"]
FIXED = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "num_epochs": 1, "hidden_sizes": [8], "num_iterations": 6}
CALLS = 60


def study_of(cells: int) -> Study:
    """So many cells, five of which are compared in each group, in five blocks."""
    gammas = [0.9 + 1e-6 * i for i in range(cells // len(BACKENDS))]
    product = Product(axes={"backend": BACKENDS, "gamma": gammas}, fixed=FIXED)
    return Study(name="large", products=(product,), min_blocks=5, max_blocks=5, aa=False)


def peak_mb() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def planned(cells: int, machines: int) -> bool:
    """Whether the plan took less than a minute."""
    began_s = time.perf_counter()
    study = study_of(cells)
    _ = study.id
    made_s, before_mb = time.perf_counter() - began_s, peak_mb()
    found = foresee(study, machines, lambda cell, variants, again: 10 + int(cell.id, 16) % 1000 / 50)
    print(f"{cells} cells, {found.blocks} blocks, {machines} machines: study read in {made_s:.1f} s, ", end="")
    print(
        f"planned in {found.planned_s:.1f} s; makespan {found.makespan_s / 3600:.2f} h, idle {found.idle:.1%}, ", end=""
    )
    print(f"{found.writes_per_s:.1f} store writes/s; memory {before_mb:.0f} MB before, {peak_mb():.0f} MB at most")
    return found.planned_s < 60


class Instant:
    """Stations that return at once."""

    def __init__(self, count: int) -> None:
        self.reports: list[Report] = [Joined(f"station {i:03}", MACHINE) for i in range(count)]
        samples = {"total_s": [0.01] * CALLS, "round": [float(i // 4) for i in range(CALLS)]}
        ledger = {"iterations_per_call": 1, "calls": CALLS}
        self.record = {
            "samples": samples,
            "marks": {"first_call": 1.0, "finished": 2.0},
            "ledger": ledger,
            "memory": {},
        }

    def begin(self, station: str, token: int, job: BlockJob) -> None:
        """Done with all cells."""
        ended = {x.id: Ended("ok", duration_s=1.0, messages=[{"record": self.record}]) for x in job.cells}
        self.reports.append(Done(station, token, Measured(ended, {}, "2026-01-01T00:00:00.000+00:00")))

    def prove(self, station: str, proofs: object) -> None:
        """Not asked for."""

    def poll(self, limit_s: float) -> list[Report]:
        """All that has happened since."""
        found, self.reports = self.reports, []
        return found

    def silent_s(self, station: str) -> float:
        """Never silent."""
        return 0.0

    def stop(self) -> None:
        """Nothing to end."""


def limit(cells: int, machines: int) -> bool:
    """Whether a thousand results were stored per second, each once."""
    study = study_of(cells)
    with tempfile.TemporaryDirectory() as folder:
        campaign = {"study": {"name": study.name}, "seed": 0, "fingerprint": MACHINE}
        with create(Path(folder) / "limit.sqlite", campaign, *plan.schedule(study, 0)) as store:
            driver = Driver(store, replace(study), Hooks(prove=None), Instant(machines))
            began_s = time.perf_counter()
            driver.work()
            took_s = time.perf_counter() - began_s
            stored = Counter(attempt.slot for attempt in store.attempts())
            slots = {slot.id for slot in store.slots()}
    sound = set(stored) == slots and set(stored.values()) == {1}
    rate = len(stored) / took_s
    print(
        f"{len(stored)} of {len(slots)} results of {machines} stations in {took_s:.1f} s: {rate:.0f} per second, ",
        end="",
    )
    print(f"{'each there once' if sound else 'LOST OR TWICE'}; memory {peak_mb():.0f} MB at most")
    return sound and rate >= 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of a cluster's driver")
    parser.add_argument("what", choices=("plan", "limit"))
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--machines", type=int, default=256)
    options = parser.parse_args()
    good = (planned if options.what == "plan" else limit)(options.cells, options.machines)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
