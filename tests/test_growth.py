"""Knees and exponents against curves whose law is known."""

import math

import numpy as np
import pytest

from benchback.stats import Fitted, NoFall, StillRising, TooFewPoints, exponent, growth, knee

FOURFOLD = [4.0**i for i in range(8)]


def value_of(found: object) -> float:
    assert isinstance(found, Fitted)
    return found.value


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 2.0])
def test_the_exponent_of_a_power_law_is_its_power(power: float) -> None:
    assert exponent({x: 1 / (3e-6 * x**power) for x in FOURFOLD}) == pytest.approx(power, abs=1e-12)


def test_the_exponent_is_that_of_least_squares() -> None:
    speed = np.random.default_rng(0).uniform(1, 9, len(FOURFOLD))
    fitted = np.polyfit(np.log(FOURFOLD), -np.log(speed), 1)[0]
    assert exponent(dict(zip(FOURFOLD, speed, strict=True))) == pytest.approx(fitted)


def test_two_points_are_no_law() -> None:
    assert exponent({1.0: 1.0, 4.0: 2.0}) == TooFewPoints(2)
    found = growth([{1.0: 100.0, 4.0: 10.0}], rising=False)
    assert (found.below, found.beyond) == (TooFewPoints(1), TooFewPoints(1))
    assert growth([{1.0: 1.0}], rising=True).knee == TooFewPoints(1)


def test_calls_that_cost_the_same_whatever_they_hold_have_a_knee_and_two_exponents() -> None:
    """Time of a step 1/x up to 64, constant from there on: 80 % of the best speed is at 51.2."""
    found = growth([{x: min(x, 64.0) for x in FOURFOLD}], rising=True)
    assert value_of(found.knee) == pytest.approx(51.2)
    assert value_of(found.below) == pytest.approx(-1)
    assert value_of(found.beyond) == pytest.approx(0)


def test_a_size_that_costs_from_some_place_on_has_its_knee_where_it_stops_being_free() -> None:
    """Time constant up to 256 and square from there on: 80 % of the speed is at 256 / sqrt(0.8)."""
    found = growth([{x: min(1.0, (256 / x) ** 2) for x in FOURFOLD}], rising=False)
    assert value_of(found.knee) == pytest.approx(256 / math.sqrt(0.8))
    assert value_of(found.below) == pytest.approx(0)
    assert value_of(found.beyond) == pytest.approx(2)


def test_a_fixed_cost_and_one_for_each_have_their_knee_where_it_is_expected() -> None:
    """Time a + b/x: 80 % of the speed at infinity is at 4 b / a; between two values it is found to a fifth."""
    speed = {x: 1 / (1.0 + 25 / x) for x in FOURFOLD}
    assert knee(speed, rising=True) == pytest.approx(100, rel=0.2)


def test_no_knee_is_an_answer_and_the_exponent_is_then_of_all_points() -> None:
    rising = growth([{x: x for x in FOURFOLD}], rising=True)
    assert (rising.knee, rising.beyond) == (StillRising(FOURFOLD[-1]), TooFewPoints(0))
    assert value_of(rising.below) == pytest.approx(-1)
    assert growth([dict.fromkeys(FOURFOLD, 7.0)], rising=False).knee == NoFall(FOURFOLD[-1])


def test_the_knee_is_the_first_value_where_it_is_fast_or_slow_from_the_start() -> None:
    assert knee(dict.fromkeys(FOURFOLD, 7.0), rising=True) == 1.0
    assert knee({1.0: 1.0, 4.0: 9.0, 16.0: 9.0}, rising=False) == 1.0


def test_intervals_over_blocks_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        blocks = [{x: x**-2.0 * float(np.exp(rng.normal(0, 0.05))) for x in FOURFOLD[:4]} for _ in range(3)]
        found = growth(blocks, rising=False).beyond
        assert isinstance(found, Fitted)
        held += found.low <= 2.0 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_one_block_has_no_interval_and_a_block_without_a_point_keeps_its_others() -> None:
    one = {x: x**-2.0 for x in FOURFOLD[:4]}
    found = growth([one], rising=False).beyond
    assert isinstance(found, Fitted)
    assert (found.value, math.isnan(found.low), math.isnan(found.high)) == (pytest.approx(2), True, True)
    two = growth([one, {x: y for x, y in one.items() if x > 1}], rising=False).beyond
    assert isinstance(two, Fitted)
    assert (two.low, two.high) == (pytest.approx(2), pytest.approx(2))
