"""The doctor: yes or no, what is detectable, and what to change."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from benchback import stats
from benchback.cli import machines
from benchback.measure import doctor
from benchback.measure.doctor import COARSEST, FINEST, ROUNDS, ability, trimmed_estimate


def test_the_trimmed_mean_and_its_error_are_those_of_yuen() -> None:
    values = [0.9, -0.2, 0.1, 0.3, 0.2, -5.0, 0.0, 0.4, 0.5, 8.0]
    found = trimmed_estimate(values)
    kept = [-0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    replaced = [0.0, 0.0, *kept, 0.5, 0.5]
    mean = sum(replaced) / 10
    squares = sum((x - mean) ** 2 for x in replaced)
    assert found.mean == pytest.approx(sum(kept) / 6)
    assert found.error == pytest.approx(math.sqrt(squares / (6 * 5)))
    assert found.freedom == 5


def test_pairs_that_were_interrupted_change_little() -> None:
    quiet = np.random.default_rng(0).normal(0, 0.01, 100)
    disturbed = quiet.copy()
    disturbed[::8] += 3.0
    clean, found = trimmed_estimate(list(quiet)), trimmed_estimate(list(disturbed))
    assert abs(found.mean) < 0.01
    assert found.error < 2 * clean.error


def test_the_promised_difference_is_found_as_often_as_promised() -> None:
    generator = np.random.default_rng(1)
    pairs = generator.normal(0, 0.04, 4000)
    able = ability(trimmed_estimate(list(pairs)), len(pairs))
    assert able.blocks > 5
    found = 0
    for _ in range(1000):
        rounds = np.sort(generator.normal(math.log1p(able.detectable), 0.04, (able.blocks, ROUNDS)), axis=1)
        estimate = stats.estimate(rounds[:, 2:-2].mean(axis=1))
        found += stats.interval(estimate)[0] > 1
    assert 0.75 < found / 1000 < 0.86


@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.003, 0.03, 0.1, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("pairs", [5, 6, 40])
def test_what_is_detectable_is_a_number_one_can_believe(spread: float, pairs: int) -> None:
    values = np.random.default_rng(2).normal(0, 1, pairs) * spread
    able = ability(trimmed_estimate(list(values)), pairs)
    assert FINEST <= able.detectable <= COARSEST
    assert 5 <= able.blocks <= 30
    assert able.detectable <= stats.MARGIN or able.blocks == 30


def test_more_blocks_are_asked_for_on_a_noisier_machine() -> None:
    pairs = np.random.default_rng(3).normal(0, 1, 50)
    able = [ability(trimmed_estimate(list(pairs * spread)), 50) for spread in (0.01, 0.04, 0.06, 0.3)]
    blocks = [x.blocks for x in able]
    assert blocks == sorted(blocks)
    assert (blocks[0], blocks[-1]) == (5, 30)
    assert able[-1].detectable > stats.MARGIN


# As printed.


def canaries(spread: float, slower: float = 0.0) -> Callable[[], dict[str, float]]:
    """Canaries of pairs whose second is slower; the first pair begins with its second (see `pairs`)."""

    def times() -> Iterator[dict[str, float]]:
        generator = np.random.default_rng(4)
        for pair in range(10**6):
            for side in (0, 1) if pair % 2 else (1, 0):
                seconds = 0.003 * (1 + side * slower) * math.exp(generator.normal(0, spread))
                yield {"matmul_s": seconds, "memcpy_s": seconds}

    return times().__next__


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Exit code and output of the doctor on a machine whose canary takes these times."""

    def examine(canary: Callable[[], dict[str, float]], *flags: str, free: int = 100 << 30) -> tuple[int, str]:
        monkeypatch.setattr(doctor.canary, "run", canary)
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: type("Disk", (), {"free": free}))
        monkeypatch.setattr(doctor, "FEWEST_PAIRS", 30)
        code = machines.doctor(["--seconds", "0.001", *flags])
        return code, capsys.readouterr().out

    return examine


def test_a_quiet_machine_can_measure(examined: Callable[..., tuple[int, str]]) -> None:
    code, printed = examined(canaries(0.005))
    answer = "yes, this machine can measure: differences from ([0-9.]+)% on are detectable with 5 blocks"
    found = re.fullmatch(answer, printed.splitlines()[0])
    assert found
    assert 0.1 <= float(found[1]) <= 2.0
    assert code == 0


def test_a_machine_that_varies_too_much_cannot_measure(examined: Callable[..., tuple[int, str]]) -> None:
    code, printed = examined(canaries(1.0))
    first = printed.splitlines()[0]
    found = re.match(r"no: even 30 blocks only find differences from ([0-9.]+)% on\. What to change: .+", first)
    assert found
    assert 2.0 < float(found[1]) <= 100.0
    assert code == 1


def test_a_machine_on_which_copies_differ_cannot_measure(examined: Callable[..., tuple[int, str]]) -> None:
    code, printed = examined(canaries(0.001, slower=0.05))
    assert printed.startswith("no: two copies of the same work differ by 4.")
    assert code == 1
    # Differences that do not matter in the choice of a backend do not matter here.
    assert examined(canaries(0.001, slower=0.01))[0] == 0


def test_a_full_disk_cannot_hold_what_is_measured(examined: Callable[..., tuple[int, str]]) -> None:
    code, printed = examined(canaries(0.001), free=10**9)
    assert printed.startswith("no: only 1.0 GB are free here. What to change: ")
    assert code == 1


@pytest.mark.parametrize(("spread", "able"), [(0.001, True), (1.0, False)])
def test_json_has_the_same_answer(spread: float, able: bool, examined: Callable[..., tuple[int, str]]) -> None:
    code, printed = examined(canaries(spread), "--json")
    found: dict[str, Any] = json.loads(printed)
    assert found["can_measure"] is able
    assert (found["detectable"] <= stats.MARGIN) is able
    assert bool(found["obstacles"]) is not able
    assert code == (0 if able else 1)
