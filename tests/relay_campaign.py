"""A coordinator whose blocks are relays: of processes without a framework, or of nothing but a model of their times.

`python relay_campaign.py STORE FOLDER`: works on the campaign of STUDY with the runners of `relay_double`, and the
faults that FOLDER has for them, until it is complete or it is asked to stop.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from campaign_double import HOOKS, study, work
from relay_double import CALL_S, COMMAND, seconds_of

from benchback.cli.arguments import on_stop
from benchback.measure.coordinator import Hooks
from benchback.measure.process import Ended
from benchback.measure.record import Cell, Record
from benchback.measure.relay import Relay, RelayLaunch, run_relay

STUDY = study(gammas=(0.9,), max_blocks=2, aa=False, protocol="relay", turn_s=2 * CALL_S, relay_s=0.6)
"""Two blocks of three variants, six rounds each."""


def relayed(command: Sequence[str], caches: Path | None = None) -> RelayLaunch:
    """Runs relays of processes that this command starts."""
    return lambda relay: run_relay(replace(relay, caches=caches, command=command))


def modelled(relay: Relay) -> dict[str, Ended]:
    """A relay whose times depend on cell and seed only."""
    return {cell.id: told(cell, seconds_of(cell, relay.seed), 0.01, relay.seed) for cell in relay.cells}


def told(cell: Cell, call_s: float, duration_s: float, seed: int, rounds: int = 4) -> Ended:
    """The end of a runner whose calls took so long."""
    places = [0.0] * 3 + [float(number) for number in range(1, rounds + 1) for _ in range(2)]
    samples: dict[str, list[float | None]] = {"total_s": [call_s] * len(places), "round": [*places]}
    samples["position"] = [0.0] * len(places)
    marks = {"first_call": 1.0, "finished": 2.0}
    ledger = {"iterations_per_call": 1, "calls": 6, "seed": seed, "coordinator": os.getpid()}
    record = Record(samples, marks, ledger, {"peak_rss_bytes": 1e8})
    return Ended("ok", duration_s=duration_s, messages=[{"kind": "record", "record": asdict(record)}])


def hooks(relay: RelayLaunch = modelled) -> Hooks:
    return replace(HOOKS, launch=None, relay=relay)


MANY = study(gammas=[0.9 + i / 1000 for i in range(12)], min_blocks=2, max_blocks=2, protocol="relay")


def share(path: Path) -> None:
    """For one of several coordinators of MANY."""

    def slowly(relay: Relay) -> dict[str, Ended]:
        time.sleep(0.01)
        return modelled(relay)

    work(path, hooks(slowly), MANY)


def main() -> None:
    path, folder = sys.argv[1:]
    asked = replace(hooks(relayed((*COMMAND, folder))), asked_to_stop=on_stop())
    sys.exit(0 if work(Path(path), asked, STUDY) else 130)


if __name__ == "__main__":
    main()
