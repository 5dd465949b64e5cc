"""When a campaign has enough blocks."""

import math

import numpy as np
import pytest

from benchback.measure.metrics import Timed
from benchback.measure.stopping import half_width, pair_ratios


def whole(*seconds: float) -> dict[int, Timed]:
    """A cell with a whole run in each block."""
    return {block: Timed(x, {}) for block, x in enumerate(seconds)}


def test_half_the_interval_of_a_paired_t() -> None:
    # By hand: n = 5, s = 0.01 -> half width 2.776445 x 0.01 / sqrt(5) = 0.012417.
    log_ratio = np.array([-1, -1, 0, 1, 1]) * 0.01 + 0.7
    assert float(np.std(log_ratio, ddof=1)) == pytest.approx(0.01)
    assert half_width(list(log_ratio)) == pytest.approx(0.012417, rel=1e-4)


@pytest.mark.parametrize("log_ratio", [[], [0.1], [0.1, math.nan]])
def test_too_little_is_never_enough(log_ratio: list[float]) -> None:
    assert not half_width(log_ratio) <= 1.0


def test_every_pair_is_compared_in_the_blocks_that_all_completed() -> None:
    times = {"linen": whole(1.0, 1.0, 1.0), "nnx": whole(2.0, 2.0), "haiku": {}}
    assert pair_ratios(times, list(times)) == {("linen", "nnx"): [-math.log(2)] * 2}


def test_relays_are_compared_within_rounds() -> None:
    # The machine is three times as slow in round 2, in which only their ratio tells that b takes twice as long.
    a, b = ({0: Timed(1.0, {1: x, 2: 3 * x, 3: x})} for x in (1.0, 2.0))
    assert pair_ratios({"a": a, "b": b}, ["a", "b"])["a", "b"] == pytest.approx([-math.log(2)])
    unpaired = {0: Timed(1.0, {7: 1.0, 8: 1.0, 9: 1.0})}
    assert pair_ratios({"a": a, "b": unpaired}, ["a", "b"]) == {}, "nothing is expected of runs that never met"
    drifting = {0: Timed(1.0, {r: 1 + 0.01 * r for r in range(20)})}
    steady = {0: Timed(1.0, dict.fromkeys(range(20), 1.0))}
    assert pair_ratios({"a": drifting, "b": steady}, ["a", "b"]) == {("a", "b"): []}, "not known yet"
