"""Results of a campaign: which blocks a comparison may use, and of which machine state."""

from dataclasses import replace
from pathlib import Path

import pytest
from campaign_double import HOOKS, MACHINE, modelled, study, work

from benchback.measure import coordinator
from benchback.measure.process import Ended
from benchback.measure.record import Cell
from benchback.measure.results import block_times, latest, results
from benchback.measure.store import open_store


def test_times_of_a_stratum_are_its_own(tmp_path: Path) -> None:
    def slower(cell: Cell, seed: int, timeout_s: float, tick: object) -> Ended:
        return modelled(cell, seed, effects=dict.fromkeys(("linen", "nnx", "equinox"), 1.0))

    path, quick = tmp_path / "double.sqlite", study(gammas=(0.9,), max_blocks=2)
    assert work(path, HOOKS, quick)
    with open_store(path, readonly=True) as store:
        first = block_times(store, 0)
    changed = MACHINE | {"cpu": "another"}
    with coordinator.open_campaign(path, quick, fingerprint=changed, new_stratum=True) as store:
        assert coordinator.work(store, quick, replace(HOOKS, launch=slower))
    with open_store(path, readonly=True) as store:
        assert block_times(store, 0) == first
        second = block_times(store, 1)
        assert {slot.stratum for slot, _ in latest(store)} == {1}
        assert {slot.stratum for slot, _ in results(store)} == {0, 1}
    for cell, times in first.items():
        assert second[cell].keys() == times.keys()
        for block, timed in times.items():
            assert second[cell][block].seconds == pytest.approx(2 * timed.seconds, rel=1e-6)
