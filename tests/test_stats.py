"""Statistics: by hand, against scipy, and on simulated campaigns whose truth is known.

Noise of the simulations is what earlier work measured between runs of one cell (108 cells): a coefficient of variation
of 0.22 % in the median and 1.2 % at the 90th percentile. Where one value is needed it is the latter, or 2 %, worse.
"""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats as reference

from benchback import stats
from benchback.stats import (
    Gap,
    Missing,
    NoBreakEven,
    NotPositive,
    NoVerdict,
    TooFewValues,
    Unsteady,
    UnsteadyCause,
    returns,
)
from benchback.stats.verdicts import p_difference

CAMPAIGNS = 1000
CRASHED = Missing()
"""Stands for any reason why a run has no value."""
CV_MEDIAN, CV_HIGH, CV_WORSE = 0.0022, 0.012, 0.02
SPREAD_OF_CV = math.log(CV_HIGH / CV_MEDIAN) / 1.2816
"""Standard deviation of log CV between cells: the 90th percentile is 1.2816 deviations above the median."""


def runs(generator: np.random.Generator, *shape: int, cv: float = CV_HIGH, effect: float = 0.0) -> np.ndarray:
    """Durations in seconds around 1 + effect."""
    return np.exp(math.log1p(effect) + cv * generator.normal(size=shape))


def oracle(result: Any) -> Any:
    """A result of scipy, whose fields its type stubs do not know."""
    return result


def rate(test: Callable[[np.random.Generator], bool], seed: int, campaigns: int = CAMPAIGNS) -> float:
    """Fraction of simulated campaigns that the test answers with yes."""
    generator = np.random.default_rng(seed)
    return sum(test(generator) for _ in range(campaigns)) / campaigns


# Ratios


def test_paired_ratio_agrees_with_scipy() -> None:
    generator = np.random.default_rng(0)
    a, b = runs(generator, 7), runs(generator, 7, effect=0.05)
    found, expected = stats.paired_ratio(list(a), list(b)), oracle(reference.ttest_rel(np.log(a), np.log(b)))
    bounds = expected.confidence_interval(0.95)
    assert found.ratio == pytest.approx(stats.geometric_mean(list(a / b)))
    assert (found.low, found.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))
    assert p_difference(stats.estimate(np.log(a / b))) == pytest.approx(expected.pvalue)


def test_nothing_has_no_mean() -> None:
    assert math.isnan(stats.geometric_mean([]))
    assert stats.paired_ratio([], []).blocks == 0


def test_two_cells_combine_as_in_welchs_test() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=4), 3 * generator.normal(size=9) + 1
    found, expected = stats.combine([a, b]), oracle(reference.ttest_ind(a, -b, equal_var=False))
    assert found.mean == pytest.approx((a.mean() + b.mean()) / 2)
    assert found.mean / found.error == pytest.approx(expected.statistic)
    assert found.freedom == pytest.approx(expected.df)


def test_cells_count_the_same_however_many_blocks_they_have() -> None:
    assert stats.combine([[0.0, 0.2], [0.3] * 50]).mean == pytest.approx(0.2)


def test_a_cell_of_one_block_cannot_be_combined() -> None:
    with pytest.raises(ValueError, match="two blocks"):
        stats.combine([[0.1, 0.2], [0.3]])


@pytest.mark.parametrize("n", [2, 5, 20])
def test_minimum_detectable_effect_has_the_power_it_says(n: int) -> None:
    effect = math.log1p(stats.minimum_detectable_effect(0.03, n, power=0.8))
    critical = reference.t.ppf(0.975, n - 1)
    assert reference.nct.sf(critical, n - 1, effect / (0.03 / math.sqrt(n))) == pytest.approx(0.8, abs=1e-6)


def test_minimum_detectable_effect_by_the_textbook() -> None:
    # For many blocks (1.960 + 0.842) s / sqrt(n).
    assert stats.minimum_detectable_effect(0.1, 10_000) == pytest.approx(math.expm1(2.802 * 0.001), rel=1e-3)
    assert math.isnan(stats.minimum_detectable_effect(0.1, 1))
    assert stats.minimum_detectable_effect(0.0, 5) == 0


# Verdicts


def test_tost_agrees_with_two_t_tests() -> None:
    log_ratio = np.array([0.004, -0.006, 0.011, 0.002])
    limit = math.log(1.02)
    sides = ((-limit, "greater"), (limit, "less"))
    expected = max(oracle(reference.ttest_1samp(log_ratio, at, alternative=side)).pvalue for at, side in sides)
    assert stats.tost(log_ratio, 0.02) == pytest.approx(expected)


def test_holm_by_hand() -> None:
    # Sorted 0.01 x 3, 0.03 x 2, 0.04 x 1, never falling.
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert len(stats.holm([])) == 0


@pytest.mark.parametrize(
    ("ratio", "p", "p_equivalence", "expected"),
    [
        (1.10, 0.001, 0.9, "slower"),
        (0.90, 0.001, 0.9, "faster"),
        (1.005, 0.001, 0.001, "equivalent"),
        (1.000, 0.9, 0.01, "equivalent"),
        (1.10, 0.2, 0.5, "inconclusive"),
    ],
)
def test_verdicts(ratio: float, p: float, p_equivalence: float, expected: str) -> None:
    assert stats.verdict(ratio, p, p_equivalence) == expected
    opposite = {"slower": "faster", "faster": "slower"}
    mirrored = stats.verdict(ratio, p, p_equivalence, lower_is_better=False)
    assert mirrored == opposite.get(expected, expected)


def test_a_row_holds_everything() -> None:
    row = stats.compare("cell", [1.10, 1.11, 1.12], [1.00, 1.01, 1.02])
    assert row.verdict == "slower"
    assert row.n == 3
    assert None not in (row.ratio, row.low, row.high, row.p, row.p_holm, row.p_equivalence, row.mde)
    assert row.reason is None
    assert not row.gaps


def test_runs_without_spread_are_certain() -> None:
    same, twice = stats.compare("same", [2.0, 2.0], [2.0, 2.0]), stats.compare("twice", [2.0, 4.0], [1.0, 2.0])
    assert (same.verdict, same.p, same.p_equivalence) == ("equivalent", 1.0, 0.0)
    assert (twice.verdict, twice.p, twice.p_equivalence) == ("slower", 0.0, 1.0)


@pytest.mark.parametrize(
    ("numerator", "n", "ratio", "reason"),
    [
        ([2.0, CRASHED], 1, 2.0, NoVerdict.ONE_BLOCK),
        ([CRASHED, CRASHED], 0, None, NoVerdict.NO_COMPLETE_BLOCK),
        ([0.0, -1.0], 0, None, NoVerdict.NO_COMPLETE_BLOCK),
    ],
)
def test_what_cannot_be_computed_says_why(numerator: list, n: int, ratio: float | None, reason: NoVerdict) -> None:
    row = stats.compare("cell", numerator, [1.0, 1.0])
    assert (row.n, row.verdict, row.p, row.low) == (n, None, None, None)
    assert row.ratio == (ratio and pytest.approx(ratio))
    assert row.reason is reason
    assert [gap.block for gap in row.gaps] == list(range(n, 2))
    causes = {cause for gap in row.gaps for cause in gap.causes}
    assert causes == {x if isinstance(x, Missing) else NotPositive(x) for x in numerator[n:]}


def test_a_claim_keeps_the_cells_it_cannot_use() -> None:
    good, bad = ([1.1, 1.1, 1.2], [1.0, 1.0, 1.0]), ([1.1, CRASHED, CRASHED], [1.0, 1.0, 1.0])
    rows = [stats.compare(name, *pair) for name, pair in {"a": good, "b": good, "c": bad}.items()]
    pooled = stats.pool("all", rows)
    assert [row.name for row in pooled.cells] == ["a", "b", "c"]
    assert (pooled.overall.cells, pooled.overall.n) == (2, 6)
    assert [(row.name, row.reason) for row in pooled.overall.left_out] == [("c", NoVerdict.ONE_BLOCK)]
    assert pooled.cells[0].p_holm == pytest.approx(2 * (pooled.cells[0].p or 0))
    assert pooled.cells[2].p_holm is None
    assert stats.pool("none", [*rows[2:], *rows[2:]]).overall.reason is NoVerdict.NO_CELL
    assert stats.pool("none", rows, {"c"}).overall.reason is NoVerdict.NO_COMMON_CELL
    one = stats.pool("one", rows, {"b"}).overall
    assert (one.cells, one.n, [row.name for row in one.left_out]) == (1, 3, ["a", "c"])


def test_a_single_cell_with_one_block_is_a_ratio_without_an_interval() -> None:
    row = stats.compare("c", [1.1, CRASHED, CRASHED], [1.0, 1.0, 1.0])
    once = stats.pool("alone", [row]).overall
    assert (once.name, once.ratio, once.low, once.verdict) == ("alone", pytest.approx(1.1), None, None)
    assert once.reason is NoVerdict.ONE_BLOCK


def test_two_independent_samples_agree_with_scipy() -> None:
    generator = np.random.default_rng(0)
    a, b = np.exp(generator.normal(0, 0.1, 7)), np.exp(generator.normal(0.1, 0.3, 5))
    row = stats.compare_unpaired("x", [*a.tolist(), CRASHED], b.tolist())
    welch = oracle(reference.ttest_ind(np.log(a), np.log(b), equal_var=False))
    span = welch.confidence_interval()
    assert row.p == pytest.approx(welch.pvalue)
    assert (row.low, row.high) == pytest.approx((np.exp(span.low), np.exp(span.high)))
    assert row.gaps == (Gap(7, (CRASHED,)),)


@pytest.mark.parametrize(
    ("numerator", "ratio", "reason"),
    [([CRASHED], None, NoVerdict.NO_RUN), ([], None, NoVerdict.NO_RUN), ([2.0], 2.0, NoVerdict.ONE_RUN)],
)
def test_an_independent_sample_that_is_too_small_says_so(
    numerator: list, ratio: float | None, reason: NoVerdict
) -> None:
    row = stats.compare_unpaired("x", numerator, [1.0, 1.0])
    assert (row.ratio, row.reason, row.verdict) == (ratio, reason, None)


def test_time_left_is_that_of_the_mean_cell() -> None:
    assert stats.time_left(10, []) is None
    assert stats.time_left(10, [[2.0]]) == (20.0, 10.0)
    seconds, error = stats.time_left(10, [[1.0, 1.0, 9.0], [3.0]]) or (0.0, 0.0)
    assert (seconds, error) == pytest.approx((20.0, 10.0 * math.sqrt(2) / math.sqrt(2)))


# Simulated campaigns


@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_equal_backends_are_told_apart_one_time_in_twenty(n: int) -> None:
    def alarm(generator: np.random.Generator) -> bool:
        row = stats.compare("A/A", list(runs(generator, n)), list(runs(generator, n)))
        return (row.p or 0) < 0.05

    assert 0.03 <= rate(alarm, seed=n) <= 0.07


@pytest.mark.parametrize("n", [3, 5, 20])
@pytest.mark.parametrize("effect", [0.0, 0.02, 0.1])
def test_intervals_cover_the_truth(n: int, effect: float) -> None:
    def covers(generator: np.random.Generator) -> bool:
        found = stats.paired_ratio(list(runs(generator, n, effect=effect)), list(runs(generator, n)))
        return found.low <= 1 + effect <= found.high

    assert 0.93 <= rate(covers, seed=100 + n) <= 0.97


@pytest.mark.parametrize(("cv", "least"), [(CV_HIGH, 0.94), (CV_WORSE, 0.80)])
def test_twenty_blocks_find_two_percent(cv: float, least: float) -> None:
    """With 1.2 % between runs the margin of equivalence itself is the limit: an effect of its size gets 5 %."""

    def found(generator: np.random.Generator) -> bool:
        row = stats.compare("A/B", list(runs(generator, 20, cv=cv, effect=0.02)), list(runs(generator, 20, cv=cv)))
        return row.verdict == "slower"

    assert rate(found, seed=7) >= least


def test_a_difference_of_the_margin_is_called_equivalent_one_time_in_twenty() -> None:
    def equivalent(generator: np.random.Generator) -> bool:
        found = stats.compare(
            "A/B", list(runs(generator, 10, cv=0.005, effect=0.02)), list(runs(generator, 10, cv=0.005))
        )
        return found.verdict == "equivalent"

    assert 0.03 <= rate(equivalent, seed=8) <= 0.07


def many_cells(generator: np.random.Generator, blocks: int) -> list[np.ndarray]:
    """Log ratios of 36 cells as noisy as those measured, with effects of their own that average to nothing."""
    sd = math.sqrt(2) * CV_MEDIAN * np.exp(SPREAD_OF_CV * generator.normal(size=36))
    return list(np.linspace(-0.1, 0.1, 36)[:, None] + sd[:, None] * generator.normal(size=(36, blocks)))


@pytest.mark.parametrize("blocks", [3, 5, 20])
def test_claims_over_cells_cover_the_truth(blocks: int) -> None:
    def covers(generator: np.random.Generator) -> bool:
        low, high = stats.interval(stats.combine(many_cells(generator, blocks)))
        return low <= 1 <= high

    assert 0.93 <= rate(covers, seed=200 + blocks) <= 0.97


def test_holm_keeps_the_family_from_false_alarms() -> None:
    log_ratio = np.random.default_rng(9).normal(size=(CAMPAIGNS, 36, 5))
    families = oracle(reference.ttest_1samp(log_ratio, 0, axis=-1)).pvalue
    assert np.mean([min(stats.holm(p)) < 0.05 for p in families]) <= 0.07
    assert np.mean([min(p) < 0.05 for p in families]) > 0.7


def drifting(generator: np.random.Generator, place: np.ndarray, blocks: int) -> np.ndarray:
    """Durations of equal backends [2, blocks] run at the given places of a campaign that slows down by 3 %."""
    return runs(generator, 2, blocks) * np.exp(math.log(1.03) * place / (2 * blocks - 1))


def in_blocks(generator: np.random.Generator, blocks: int) -> np.ndarray:
    """Place of each run: the order inside a block is random, and reversed in the next."""
    flip = (np.repeat(generator.integers(2, size=blocks // 2), 2) + np.arange(blocks)) % 2
    return 2 * np.arange(blocks) + np.stack([flip, 1 - flip])


def one_after_the_other(generator: np.random.Generator, blocks: int) -> np.ndarray:
    """Place of each run: all of one backend, then all of the other."""
    return np.arange(2 * blocks).reshape(2, blocks)


def test_drift_biases_a_sequential_order_but_not_blocks() -> None:
    def estimates(order: Callable[[np.random.Generator, int], np.ndarray]) -> tuple[float, float]:
        generator, found = np.random.default_rng(10), []
        for _ in range(CAMPAIGNS):
            a, b = drifting(generator, order(generator, 20), 20)
            found.append(stats.paired_ratio(list(a), list(b)))
        alarms = np.mean([not row.low <= 1 <= row.high for row in found])
        return stats.geometric_mean([row.ratio for row in found]), float(alarms)

    bias, alarms = estimates(in_blocks)
    assert bias == pytest.approx(1, abs=5e-4)
    assert 0.03 <= alarms <= 0.07
    bias, alarms = estimates(one_after_the_other)
    assert bias < 0.987
    assert alarms > 0.5


def test_pooled_iterations_and_all_pairs_raise_false_alarms() -> None:
    """The simulation can fail: with methods known to be wrong it does."""

    def pooled(generator: np.random.Generator) -> bool:
        iterations = runs(generator, 2, 5, 1)[..., None] * runs(generator, 2, 5, 1, 100)
        a, b = np.log(iterations).reshape(2, -1)
        return oracle(reference.ttest_ind(a, b)).pvalue < 0.05

    def crossed(generator: np.random.Generator) -> bool:
        a, b = np.log(runs(generator, 2, 5))
        return oracle(reference.ttest_1samp(np.subtract.outer(a, b).ravel(), 0)).pvalue < 0.05

    assert rate(pooled, seed=11, campaigns=300) > 0.2
    assert rate(crossed, seed=12, campaigns=300) > 0.2


# As published


def test_all_pairs_by_hand() -> None:
    # Ratios 1/1, 1/2, 4/1, 4/2 and, in the second cell, 8/1: product 32, sorted 0.5 1 2 4 8.
    found = stats.all_pairs([([1.0, 4.0], [1.0, 2.0]), ([8.0], [1.0])])
    assert found.geometric_mean == pytest.approx(32 ** (1 / 5))
    assert found.median == pytest.approx(2.0)
    assert found.pairs == 5
    assert "as published" in found.label
    assert stats.all_pairs([]).pairs == 0


@pytest.mark.parametrize(("count", "rank"), [(5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (50, 18)])
def test_median_intervals_are_those_of_the_sign_test(count: int, rank: int) -> None:
    """Ranks of order statistics from tables of the sign test, e.g. Conover, Practical Nonparametric Statistics."""
    found = stats.median_interval([float(x) for x in np.random.default_rng(0).permutation(np.arange(1, count + 1))])
    assert (found.value, found.low, found.high) == ((count + 1) / 2, rank, count + 1 - rank)


def test_published_windows_are_off_by_one() -> None:
    assert stats.windows(np.arange(100.0)) == {"0": 0.0, "1:7": 4.0, "7:": 53.5}
    assert math.isnan(stats.windows([1.0])["7:"])


# Steady state


@dataclass(frozen=True)
class Trace:
    """A run whose answer is known."""

    kind: str
    duration: np.ndarray
    start: int | None
    """First steady iteration: the time expected stays within 1 %, or within the noise of an iteration, from here on."""
    level: float
    tolerance: float
    """Five iterations or 5 % of the run; the end of an exponential is vague by its time constant."""


STEADY_KINDS = ("flat", "creep", "exponential", "step", "settling", "recompile")
UNSTEADY_KINDS = ("drift", "walk", "late step")


def shape(generator: np.random.Generator, kind: str, count: int, noise: float) -> tuple[np.ndarray, int, float]:
    """Expected log time over the final level, first steady iteration, time constant."""
    i, low = np.arange(count), max(0.03, 3 * noise)
    sign = generator.choice([-1, 1])
    if kind == "exponential":
        tau = generator.uniform(1, count / 12)
        excess = generator.uniform(0.05, 1) * np.exp(-i / tau)
        return excess, max(1, int(np.argmax(excess < max(0.01, noise)))), tau
    if kind in ("step", "late step"):
        at = int(count * (generator.uniform(0.05, 0.65) if kind == "step" else generator.uniform(0.8, 0.95)))
        return np.where(i < at, sign * generator.uniform(low, 0.3), 0), at, 0
    if kind == "settling":
        first, second = np.sort(generator.choice(np.arange(5, count // 2), 2, replace=False))
        height = generator.uniform(low, 0.15)
        return np.where(i < first, height + generator.uniform(low, 0.5), np.where(i < second, height, 0)), second, 0
    if kind == "recompile":
        at = int(generator.integers(1, count // 2))
        return np.where(i == at, np.log(generator.uniform(3, 100)), 0), at + 1 if at < min(10, count // 20) else 1, 0
    if kind == "drift":
        return sign * generator.uniform(max(0.04, 3 * noise), 0.4) * (i / count - 1), 1, 0
    if kind == "creep":
        return sign * generator.uniform(0, 0.01) * (i / count - 0.5), 1, 0
    if kind == "walk":
        return np.cumsum(generator.normal(size=count)) * generator.uniform(0.15, 0.4) / math.sqrt(count), 1, 0
    return np.zeros(count), 1, 0


def traces(seed: int, count: int) -> Iterator[Trace]:
    """Runs of 100 to 1000 iterations: a compile spike, a shape, correlated noise of 0.1 to 2 %, outliers up to 4 x."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        kind = str(generator.choice(STEADY_KINDS + UNSTEADY_KINDS))
        length = int(generator.choice([100, 200, 500, 1000]))
        noise = math.exp(generator.uniform(math.log(0.001), math.log(0.02)))
        excess, start, tau = shape(generator, kind, length, noise)
        memory = generator.choice([0.0, 0.3, 0.6])
        fresh = generator.normal(size=length + 20)
        wave = np.convolve(fresh, memory ** np.arange(21), mode="valid") * math.sqrt(1 - memory**2)
        outlier = generator.random(length) < generator.choice([0.0, 0.01, 0.03])
        time = excess + noise * wave + outlier * np.log1p(generator.uniform(0.1, 3, length))
        time[0] += np.log(generator.uniform(5, 1000))
        level = generator.uniform(0.001, 1)
        tolerance = max(5, 0.05 * length, tau)
        yield Trace(kind, level * np.exp(time), int(start) if kind in STEADY_KINDS else None, level, tolerance)


def right(trace: Trace) -> bool:
    found = stats.steady(trace.duration)
    if trace.start is None or not found.found:
        return trace.start is None and not found.found
    on_time = abs(found.start - trace.start) <= trace.tolerance
    return on_time and abs(math.log(found.steady_s / trace.level)) <= 0.01


def test_steady_state_is_right_on_labelled_traces() -> None:
    answers: dict[str, list[bool]] = {}
    for trace in traces(2026, 1000):
        answers.setdefault(trace.kind, []).append(right(trace))
    assert np.mean([answer for several in answers.values() for answer in several]) >= 0.95
    assert min(np.mean(several) for several in answers.values()) >= 0.85, answers


@pytest.mark.parametrize(
    ("duration", "start"),
    [
        ([50.0] + [1.0] * 9, 1),
        ([50.0, 20.0] + [1.0] * 8, 2),
        ([50.0, 1.0, 20.0] + [1.0] * 27, 3),
        ([9.0] * 5 + [1.0] * 5, 5),
        ([1.0] * 40, 0),
        ([9.0] + [1.0] * 20 + [4.0] + [1.0] * 78, 1),
    ],
)
def test_steady_state_of_short_and_clean_runs(duration: list[float], start: int) -> None:
    found = stats.steady(duration)
    assert (found.start, found.stop, found.steady_s, found.reason) == (start, len(duration), 1.0, None)


@pytest.mark.parametrize(
    ("duration", "reason"),
    [
        ([9.0, 1.0, 1.0], Unsteady(UnsteadyCause.TOO_SHORT, 3)),
        ([1.0] * 9 + [math.nan], Unsteady(UnsteadyCause.NOT_POSITIVE, 10)),
        ([1.0] * 9 + [0.0], Unsteady(UnsteadyCause.NOT_POSITIVE, 10)),
        ([1.0] * 85 + [2.0] * 15, Unsteady(UnsteadyCause.LAST_LEVEL, 100, 15.0)),
    ],
)
def test_no_steady_state_says_why(duration: list[float], reason: Unsteady) -> None:
    found = stats.steady(duration)
    assert not found.found
    assert found.reason == reason
    assert math.isnan(found.steady_s)
    assert math.isnan(stats.warmup_excess(duration, found))


def test_a_run_that_slows_down_has_no_steady_state() -> None:
    noise = 0.02 * np.random.default_rng(0).normal(size=200)
    drifting = stats.steady(1 + 0.08 * np.arange(200) / 200 + noise).reason
    assert drifting is not None
    assert drifting.cause is UnsteadyCause.DRIFT
    assert drifting.amount == pytest.approx(0.08, abs=0.02)
    assert not stats.steady(np.linspace(1, 1.3, 100)).found


def test_steady_state_does_not_depend_on_the_unit_of_time() -> None:
    for trace in traces(3, 20):
        assert stats.steady(trace.duration).start == stats.steady(trace.duration * 1000).start


def test_a_burst_interrupts_nothing() -> None:
    duration = 1 + 0.001 * np.random.default_rng(4).normal(size=500)
    duration[200:210] = 1.5
    assert stats.steady(duration).start < 5
    duration[200:230] = 1.5
    assert stats.steady(duration).start == 230


def test_a_level_that_goes_to_and_fro_in_noise_is_seldom_called_steady() -> None:
    wave, generator = 0.05 * np.sin(np.arange(400) / 400 * 4 * np.pi), np.random.default_rng(6)
    assert sum(stats.steady(np.exp(wave + 0.08 * generator.normal(size=400))).found for _ in range(40)) <= 20


def test_noise_that_remembers_is_not_taken_for_levels() -> None:
    generator = np.random.default_rng(5)
    wave = (
        0.02
        * 0.8
        * np.stack([np.convolve(row, 0.6 ** np.arange(21), "valid") for row in generator.normal(size=(50, 320))])
    )
    assert sum(stats.steady(row).start == 0 for row in np.exp(wave)) >= 47


def test_mean_pays_for_pauses_and_median_does_not() -> None:
    duration = np.ones(100)
    duration[20::20] = 3.0
    found = stats.steady(duration)
    assert found.steady_s == 1.0
    assert found.mean_s == pytest.approx(1.08)


def test_total_is_cold_start_excess_and_steady_iterations() -> None:
    duration = [50.0, 3.0, 2.0] + [1.0] * 30
    found = stats.steady(duration)
    excess = stats.warmup_excess(duration, found)
    assert excess == pytest.approx(3.0)
    assert sum(duration) == pytest.approx(duration[0] + excess + (len(duration) - 1) * found.steady_s)


# Break-even


def test_break_even_by_hand() -> None:
    # 10 + 0.1 k = 2 + 0.2 k.
    found = stats.break_even([10.0, 10.0], [0.1, 0.1], [2.0, 2.0], [0.2, 0.2])
    assert (found.iterations, found.low, found.high) == pytest.approx((80.0, 80.0, 80.0))
    assert found.overtakes == "a"
    assert stats.break_even([2.0], [0.2], [10.0], [0.1]).overtakes == "b"


def test_break_even_that_never_comes_says_who_is_ahead() -> None:
    found = stats.break_even([1.0, 1.1], [0.1, 0.1], [2.0, 2.2], [0.2, 0.2])
    assert (found.iterations, found.low, found.high, found.overtakes) == (None, None, None, None)
    assert found.reason is NoBreakEven.A_AHEAD
    assert stats.break_even([2.0], [0.2], [1.0], [0.1]).reason is NoBreakEven.B_AHEAD
    assert stats.break_even([2.0], [0.2], [2.0], [0.2]).reason is NoBreakEven.SAME_TIME
    assert stats.break_even([], [], [], []).reason is NoBreakEven.NO_COMPLETE_BLOCK


def test_break_even_is_unbounded_where_steady_times_cannot_be_told_apart() -> None:
    found = stats.break_even([10.0, 10.1, 9.9], [0.10, 0.12, 0.11], [2.0, 2.1, 1.9], [0.12, 0.10, 0.12])
    assert found.high == math.inf
    assert found.low is not None
    assert 0 < found.low < 800


@pytest.mark.parametrize("n", [3, 5, 20])
def test_break_even_intervals_cover_the_truth(n: int) -> None:
    def covers(generator: np.random.Generator) -> bool:
        # A slow block is slow at the start and afterwards, so that numerator and denominator go together.
        block = runs(generator, n, cv=0.2)
        cold_a, cold_b = 10 * block * runs(generator, n, cv=0.02), 2 * block * runs(generator, n, cv=0.02)
        steady_a, steady_b = 0.1 * block * runs(generator, n), 0.11 * block * runs(generator, n)
        found = stats.break_even(list(cold_a), list(steady_a), list(cold_b), list(steady_b))
        return found.low is not None and found.high is not None and found.low <= 800 <= found.high

    assert 0.93 <= rate(covers, seed=300 + n) <= 0.97


# Learning


def test_interquartile_mean_agrees_with_scipy() -> None:
    score = np.random.default_rng(13).normal(size=(11, 3))
    assert stats.interquartile_mean([1.0, 2.0, 3.0, 100.0]) == pytest.approx(2.5)
    assert stats.interquartile_mean(score) == pytest.approx(reference.trim_mean(score.ravel(), 0.25))
    assert stats.interquartile_mean(score, axis=0) == pytest.approx(reference.trim_mean(score, 0.25, axis=0))


def test_performance_profile_by_hand() -> None:
    assert stats.performance_profile([1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 3.5, 4.0]) == pytest.approx([1, 0.5, 0.25, 0])
    band = stats.profile_band([[1.0, 2.0], [3.0, 4.0]], [0.0, 2.0, 9.0], np.random.default_rng(0))
    assert band.estimate == pytest.approx([1, 0.5, 0])
    # Every run of the second stratum is above 2 and none of the first, whatever is drawn.
    assert band.low == pytest.approx([1, 0.5, 0])
    assert band.high == pytest.approx([1, 0.5, 0])


def test_bootstrap_depends_on_the_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    strata = [np.random.default_rng(k).normal(size=(5 + k, 4)) for k in range(3)]

    def band(seed: int) -> list[float]:
        found = stats.stratified_bootstrap(strata, stats.interquartile_mean, np.random.default_rng(seed), resamples=200)
        return [*found.low, *found.high]

    first = band(0)
    assert band(1) != first
    monkeypatch.setattr(returns, "LARGEST", 1000)
    assert band(0) == first


def test_bootstrap_intervals_cover_the_interquartile_mean() -> None:
    def covers(generator: np.random.Generator) -> bool:
        strata = generator.normal(size=(6, 10))
        found = stats.stratified_bootstrap(list(strata), stats.interquartile_mean, generator, resamples=500)
        return bool(found.low <= 0 <= found.high)

    assert 0.92 <= rate(covers, seed=14, campaigns=500) <= 0.98


def test_time_to_threshold() -> None:
    time, score = [1.0, 2.0, 3.0, 4.0, 5.0], [math.nan, 5.0, 1.0, 5.0, 6.0]
    assert stats.time_to_threshold(time, score, 5.0) == 2.0
    assert stats.time_to_threshold(time, score, 5.0, hold=2) == 4.0
    assert stats.time_to_threshold(time, score, 7.0) is None
    assert stats.time_to_threshold([], [], 0.0) is None


# Memory


def test_slope_agrees_with_scipy() -> None:
    value = np.random.default_rng(15).normal(size=60).cumsum().round(1)
    found, expected = stats.robust_slope(value), oracle(reference.theilslopes(value))
    assert (found.per_iteration, found.low, found.high) == pytest.approx((expected[0], expected[2], expected[3]))


def test_a_leak_is_seen_through_pages_and_jumps() -> None:
    generator = np.random.default_rng(16)
    leak = 1e8 + np.floor(np.arange(1000) * 300 / 4096) * 4096 + 1e4 * generator.normal(size=1000)
    leak[100:103] += 1e9
    leak[5] = math.nan
    found = stats.robust_slope(leak)
    assert found.per_iteration == pytest.approx(300, rel=0.02)
    assert found.grows


def test_noise_is_a_leak_one_time_in_forty() -> None:
    def leaks(generator: np.random.Generator) -> bool:
        return stats.robust_slope(generator.normal(size=60)).grows

    assert 0.01 <= rate(leaks, seed=17, campaigns=500) <= 0.045


def test_constant_memory_has_no_slope_and_three_values_no_answer() -> None:
    flat = stats.robust_slope(np.full(500, 7.0))
    assert (flat.per_iteration, flat.low, flat.high, flat.grows) == (0, 0, 0, False)
    assert stats.robust_slope(np.arange(9.0)).reason == TooFewValues(9)


def test_importing_is_light() -> None:
    heavy = {"scipy", "ruptures", "jax", "torch", "pandas"}
    code = f"import sys, benchback.stats; assert not {heavy} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Unlike ratios


def test_ratios_that_are_alike_are_rarely_called_unlike() -> None:
    """At most 5 % of campaigns, with three values of an axis and five blocks of each."""

    def unlike(generator: np.random.Generator) -> bool:
        return stats.differ([stats.estimate(generator.normal(0.1, 0.05, 5)) for _ in range(3)])

    assert rate(unlike, seed=21, campaigns=2000) < 0.06


def test_ratios_that_differ_are_called_unlike_unless_nobody_would_notice() -> None:
    def around(mean: float) -> stats.Estimate:
        return stats.estimate([mean - 0.001, mean, mean + 0.001])

    assert stats.differ([around(0.0), around(0.0), around(0.1)])
    assert not stats.differ([around(0.0), around(0.01)])
    assert not stats.differ([around(0.3)])


def test_an_effect_that_only_absurd_differences_would_show_is_left_out() -> None:
    two = stats.compare("two blocks", [1.0, 2.0], [1.0, 1.0])
    assert two.mde is None
    assert two.half_width is not None
    assert two.half_width > 10
    assert stats.compare("three", [1.0, 1.01, 0.99], [1.0] * 3).mde is not None


def test_half_width_and_bound_of_an_interval() -> None:
    row = stats.Comparison("x", 5, ratio=1.2, low=0.8, high=1.8)
    assert row.half_width == pytest.approx(0.5)
    assert row.at_most == pytest.approx(0.8)
    assert stats.Comparison("x", 5, low=0.4, high=1.1).at_most == pytest.approx(1.5)
