"""Results of a campaign: which blocks a comparison may use, and of which machine state."""

from dataclasses import replace
from pathlib import Path

import pytest
from campaign_double import HOOKS, MACHINE, modelled, study, work

from benchback.measure import coordinator
from benchback.measure.process import Ended
from benchback.measure.record import Cell
from benchback.measure.results import block_times, complete, latest, results
from benchback.measure.store import open_store


def test_a_block_is_complete_if_every_member_that_ran_has_it() -> None:
    times = {"a": {0: 1.0, 1: 2.0, 3: 4.0}, "b": {3: 40.0, 1: 20.0, 2: 30.0}, "never": {}, "other": {7: 1.0}}
    assert complete(times, ["a", "b", "never", "missing"]) == {"a": [2.0, 4.0], "b": [20.0, 40.0]}
    assert complete(times, ["a", "never"]) == {}
    assert complete({"a": {0: 1.0}, "b": {1: 1.0}}, ["a", "b"]) == {"a": [], "b": []}


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
        assert second[cell] == pytest.approx({block: 2 * seconds for block, seconds in times.items()}, rel=1e-6)
