"""Relays as statistics: balanced orders, ratios that the machine cannot move, and simulated campaigns."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from relay_model import MACHINES, log_ratios, pooled_wrong, rates

from benchback import stats
from benchback.measure.metrics import CachesNotEmpty, run_metrics, run_turns
from benchback.measure.record import Record
from benchback.stats import NoCommonRound, Unsteady, UnsteadyCause
from benchback.stats.relay import FEWEST_FOR_TREND, FEWEST_ROUNDS

# Orders.


@pytest.mark.parametrize("count", range(1, 10))
def test_everyone_has_every_place_and_every_predecessor_equally_often(count: int) -> None:
    orders = stats.balanced_orders(count)
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert len(orders) == (count if count % 2 == 0 or count == 1 else 2 * count)
    places = Counter((variant, place) for order in orders for place, variant in enumerate(order))
    assert set(places.values()) == {len(orders) // count}
    assert len(places) == count**2
    followed = Counter(pair for order in orders for pair in pairwise(order))
    assert len(followed) == count * (count - 1)
    assert len(set(followed.values())) <= 1


# Ratios.

ROUNDS = range(1, 31)


def by_round(log_seconds: np.ndarray) -> dict[int, float]:
    return dict(zip(ROUNDS, np.exp(log_seconds).tolist(), strict=True))


def jitter(sd: float = 0.002, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sd, len(ROUNDS))


def ratio(numerator: dict[int, float], denominator: dict[int, float]) -> float:
    found = stats.relay_ratio(numerator, denominator)
    assert isinstance(found, float), found
    return found


def test_what_happens_to_everybody_in_a_round_cancels() -> None:
    own, machine = math.log(1.07) + jitter(), np.cumsum(jitter(0.5, 1)) + np.linspace(0, 2, len(ROUNDS))
    still = ratio(by_round(own), by_round(np.zeros(len(ROUNDS))))
    assert still == pytest.approx(1.07, rel=0.001)
    assert ratio(by_round(own + machine), by_round(machine)) == pytest.approx(still, rel=1e-12)


def test_an_interrupted_turn_does_not_move_the_ratio() -> None:
    own = jitter()
    hit = own.copy()
    hit[7] += math.log(50)
    still = ratio(by_round(own), by_round(np.zeros(len(ROUNDS))))
    assert ratio(by_round(hit), by_round(np.zeros(len(ROUNDS)))) == pytest.approx(still, rel=0.001)


def test_the_ratio_has_a_direction() -> None:
    slow, fast = by_round(math.log(1.5) + jitter()), by_round(jitter(seed=1))
    assert ratio(slow, fast) == pytest.approx(1.5, rel=0.003)
    assert ratio(fast, slow) == pytest.approx(1 / ratio(slow, fast), rel=1e-12)


def test_only_a_drift_of_the_ratio_is_a_reason() -> None:
    drift = np.linspace(0, 0.10, len(ROUNDS))
    alone = stats.relay_ratio(by_round(drift + jitter()), by_round(jitter(seed=1)))
    assert isinstance(alone, Unsteady)
    assert (alone.cause, alone.count) == (UnsteadyCause.DRIFT, len(ROUNDS))
    assert alone.amount == pytest.approx(math.expm1(0.10), abs=0.01)
    assert ratio(by_round(drift + jitter()), by_round(drift + jitter(seed=1))) == pytest.approx(1.0, rel=0.002)


def test_a_small_or_uncertain_drift_is_none() -> None:
    small, noisy = np.linspace(0, 0.01, len(ROUNDS)), jitter(0.3)
    assert ratio(by_round(small + jitter()), by_round(jitter(seed=1))) == pytest.approx(1.005, rel=0.002)
    assert isinstance(stats.relay_ratio(by_round(noisy + 3 * small), by_round(np.zeros(len(ROUNDS)))), float)
    few = {r: math.exp(0.05 * r) for r in range(1, FEWEST_FOR_TREND)}
    assert isinstance(stats.relay_ratio(few, dict.fromkeys(few, 1.0)), float)


@pytest.mark.parametrize("common", range(FEWEST_ROUNDS + 1))
def test_rounds_in_which_one_was_missing_do_not_count(common: int) -> None:
    a = dict.fromkeys(range(1, common + 1), 2.0) | dict.fromkeys(range(100, 110), 9.0)
    b = dict.fromkeys(range(1, common + 1), 1.0) | dict.fromkeys(range(200, 210), 1.0)
    assert stats.relay_ratio(a, b) == (NoCommonRound(common) if common < FEWEST_ROUNDS else pytest.approx(2.0))


# What a relay's record says.

WARM_S = [8.0, 0.3, 0.2]


def relay_record(*rounds: list[float], per_call: int = 1, calls: int = 100, **ledger: int) -> Record:
    """A record whose turns took these seconds, call by call."""
    turns = list(enumerate(rounds, 1))
    samples: dict[str, list[float | None]] = {
        "total_s": [*WARM_S, *(x for _, turn in turns for x in turn)],
        "round": [*[0.0] * len(WARM_S), *(float(number) for number, turn in turns for _ in turn)],
        "position": [*[0.0] * (len(WARM_S) + sum(map(len, rounds)))],
    }
    marks = {"started": 0.5, "first_call": 10.0, "finished": 100.0}
    return Record(samples, marks, {"iterations_per_call": per_call, "calls": calls} | ledger, {})


def test_the_first_call_of_a_turn_and_the_warm_up_are_not_counted() -> None:
    record = relay_record([9.0, 0.1, 0.2, 5.0], [9.0, 0.3], [9.0])
    assert run_turns(record)["steady"] == {1: 0.2, 2: 0.3, 3: 9.0}, "one long call has none to spare"


def test_waiting_for_a_processor_that_others_have_is_not_counted() -> None:
    record = relay_record([0.1, 0.4, 0.2])
    waited_s = [*[0.0] * len(WARM_S), 0.0, 0.2, 0.0]
    shared = replace(record, samples={**record.samples, "waited_s": waited_s, "update_s": record.samples["total_s"]})
    assert run_turns(record)["steady"] == {1: pytest.approx(0.3)}
    assert run_turns(shared)["steady"] == run_turns(shared)["update"] == {1: pytest.approx(0.2)}
    assert run_metrics(shared)["total"] == run_metrics(record)["total"], "a training waits as long"


def test_a_turn_gives_the_time_of_an_iteration() -> None:
    assert run_turns(relay_record([9.0, 0.4], per_call=4))["steady"] == {1: pytest.approx(0.1)}


def test_a_whole_training_is_predicted_from_its_start_and_its_turns() -> None:
    found = run_metrics(relay_record([9.0, 0.2], [9.0, 0.2], [9.0, 0.5], per_call=2, calls=100))
    assert found["steady"] == pytest.approx(0.1)
    assert found["cold_start"] == 10.0
    # The first call is in the cold start; two more are warm-up, and 97 calls of the mean length follow.
    assert found["total"] == pytest.approx(10.0 + 0.3 + 0.2 + 97 * 0.3)


def test_what_happens_once_in_a_training_is_predicted_once() -> None:
    usual = [[9.0, 0.2, 0.2]] * 10
    once, often = (run_metrics(relay_record(*usual, *[[9.0, 0.2, 1.2]] * times))["total"] for times in (1, 3))
    assert once == pytest.approx(10.0 + 0.3 + 0.2 + 97 * 0.2 + 1.0)
    assert often == pytest.approx(10.0 + 0.3 + 0.2 + 97 * (23 * 0.2 + 3 * 1.2) / 26)


def test_a_process_that_found_compiled_programs_has_no_cold_start() -> None:
    found = run_metrics(relay_record([9.0, 0.2], cached_files_before=7))
    assert found["cold_start"] == found["total"] == CachesNotEmpty(7)
    assert found["steady"] == pytest.approx(0.2)


# Simulated campaigns.

HARD = MACHINES["all of them"]


@pytest.mark.parametrize("relays", [3, 5, 10])
def test_equal_programs_are_told_apart_one_time_in_twenty(relays: int) -> None:
    found = rates(log_ratios(HARD, relays))
    assert 0.03 <= found.wrong <= 0.07
    assert found.lost < 0.01


@pytest.mark.parametrize("relays", [3, 5, 10])
def test_intervals_hold_the_truth_and_five_percent_are_found(relays: int) -> None:
    found = rates(log_ratios(HARD, relays, seed=1), effect=0.05)
    assert 0.93 <= 1 - found.wrong <= 0.97
    assert found.found >= 0.95


@pytest.mark.parametrize("machine", ["quiet", "all of them"])
def test_rounds_are_not_replicates(machine: str) -> None:
    """The simulation can fail: with rounds taken as replicates it does."""
    assert pooled_wrong(log_ratios(MACHINES[machine], 5, campaigns=100)) > 0.2
