"""The schedule: what a block is, that drift cannot bias it, and when there are enough. Nothing here is timed."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchback import stats
from benchback.errors import InputError
from benchback.measure import cost, plan
from benchback.measure.plan import estimate, extend, minimum_detectable_effect, schedule
from benchback.measure.record import Cell, Slot
from benchback.measure.study import Product, Study, load, names, scaled, select

JAX = ("linen", "nnx", "equinox", "haiku", "purejax")
ENVS = ("gymnax/CartPole-v1", "gymnax/Acrobot-v1", "gymnax/Catch-bsuite")
FULL = load("benchback_rl")


@cache
def make(backends: int = 2, envs: int = 1, blocks: int = 5, **fields: object) -> Study:
    axes = {"env": list(ENVS[:envs]), "backend": list(JAX[:backends])}
    return Study("made", (Product(axes),), min_blocks=blocks, **fields)  # pyright: ignore


# Shapes of studies, not studies: type checks draw from `random`, which a strategy must not.
SHAPES = st.fixed_dictionaries(
    {"backends": st.integers(1, 5), "envs": st.integers(1, 3), "blocks": st.integers(1, 6), "aa": st.booleans()}
)
SEEDS = st.integers(0, 2**32 - 1)
EXAMPLES = settings(deadline=None, max_examples=50, database=None)


def by_block(cells: list[Cell], slots: list[Slot]) -> dict[tuple[str, int], list[Slot]]:
    group = {cell.id: cell.group for cell in cells}
    found: dict[tuple[str, int], list[Slot]] = {}
    for slot in slots:
        found.setdefault((group[slot.cell], slot.block), []).append(slot)
    return found


@EXAMPLES
@given(SHAPES, SEEDS)
def test_every_block_has_every_variant_of_its_group_once(shape: dict[str, Any], seed: int) -> None:
    study = make(**shape)
    cells, slots = schedule(study, seed)
    members = Counter(cell.group for cell in cells)
    blocks = by_block(cells, slots)
    assert set(blocks) == {(group, b) for group in members for b in range(study.min_blocks)}
    for (group, _), block in blocks.items():
        assert sorted(s.cell for s in block) == sorted(cell.id for cell in cells if cell.group == group)


@EXAMPLES
@given(SHAPES, SEEDS)
def test_a_block_is_reversed_in_the_next(shape: dict[str, Any], seed: int) -> None:
    study = make(**shape)
    cells, slots = schedule(study, seed)
    blocks = by_block(cells, slots)
    for (group, number), block in blocks.items():
        if number % 2:
            assert [s.cell for s in block] == [s.cell for s in blocks[group, number - 1]][::-1]


@EXAMPLES
@given(SHAPES, SEEDS)
def test_blocks_of_a_group_are_in_order_and_their_slots_neighbours(shape: dict[str, Any], seed: int) -> None:
    study = make(**shape)
    cells, slots = schedule(study, seed)
    assert [slot.order for slot in slots] == list(range(len(slots)))
    group = {cell.id: cell.group for cell in cells}
    runs = [key for key, _ in groupby(slots, key=lambda slot: (group[slot.cell], slot.block))]
    assert len(runs) == len(set(runs))
    for name in set(group.values()):
        assert [block for owner, block in runs if owner == name] == list(range(study.min_blocks))


@EXAMPLES
@given(SHAPES, SEEDS)
def test_seeds_are_shared_within_a_block_and_differ_between(shape: dict[str, Any], seed: int) -> None:
    study = make(**shape)
    seeds: dict[int, set[int]] = {}
    for slot in schedule(study, seed)[1]:
        seeds.setdefault(slot.block, set()).add(slot.seed)
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == study.min_blocks
    assert all(0 <= x < 2**32 for found in seeds.values() for x in found)


@EXAMPLES
@given(SHAPES, SEEDS)
def test_a_campaign_carries_one_twin_unless_told_otherwise(shape: dict[str, Any], seed: int) -> None:
    study = make(**shape)
    cells, _ = schedule(study, seed)
    twins = [cell for cell in cells if cell.twin]
    assert len(twins) == int(study.aa)
    for twin in twins:
        originals = [cell for cell in cells if cell == replace(twin, twin=False)]
        assert len(originals) == 1
        assert originals[0].group == twin.group
        assert originals[0].id != twin.id
        assert twin.variant == originals[0].variant + "'"


@EXAMPLES
@given(SHAPES, SEEDS)
def test_the_schedule_is_a_function_of_study_and_seed(shape: dict[str, Any], seed: int) -> None:
    study = make(**shape)
    assert schedule(study, seed) == schedule(study, seed)
    assert schedule(study, seed)[1] != schedule(study, seed + 1)[1]


def test_the_twin_is_of_the_cheapest_cell() -> None:
    cells, _ = schedule(FULL, 0)
    twin = next(cell for cell in cells if cell.twin)
    assert plan.seconds_per_run(twin) == min(plan.seconds_per_run(cell) for cell in cells)


def test_orders_are_random_over_seeds() -> None:
    study = make(2, aa=False)
    first = Counter(schedule(study, seed)[1][0].cell for seed in range(200))
    # Binomial(200, 1/2): between 70 and 130 but for 2 in 100,000.
    assert all(70 <= count <= 130 for count in first.values())
    assert len(first) == 2


def test_blocks_of_different_groups_are_shuffled() -> None:
    cells, slots = schedule(make(2, 3, 6, aa=False), 0)
    group = {cell.id: cell.group for cell in cells}
    turns = [group[slot.cell] for slot in slots[::2]]
    assert sum(1 for _ in groupby(turns)) > 6


@EXAMPLES
@given(SHAPES, SEEDS, st.integers(1, 5), st.integers(1, 5))
def test_an_extended_group_is_what_a_longer_schedule_would_hold(
    shape: dict[str, Any], seed: int, one: int, two: int
) -> None:
    study = make(**shape)
    cells, slots = schedule(study, seed)
    group = cells[0].group
    more = extend(cells, slots, group, one, seed)
    more += extend(cells, [*slots, *more], group, two, seed)
    assert [slot.order for slot in more] == list(range(len(slots), len(slots) + len(more)))
    total = study.min_blocks + one + two
    longer = by_block(*schedule(replace(study, min_blocks=total, max_blocks=total), seed))
    extended = by_block(cells, [*slots, *more])
    for block in range(total):
        expected = [(s.cell, s.seed) for s in longer[group, block]]
        assert [(s.cell, s.seed) for s in extended[group, block]] == expected
    assert all(s.block >= study.min_blocks for s in more)


def test_a_new_stratum_begins_its_own_blocks() -> None:
    cells, slots = schedule(make(), 3)
    more = extend(cells, slots, cells[0].group, 2, 3, stratum=1)
    assert {slot.block for slot in more} == {0, 1}
    assert {slot.stratum for slot in more} == {1}
    assert not {slot.id for slot in more} & {slot.id for slot in slots}
    assert extend(cells, slots, cells[0].group, 0, 3) == []


def test_a_group_that_is_not_there_cannot_be_extended() -> None:
    cells, slots = schedule(make(), 0)
    with pytest.raises(ValueError, match="no cell belongs to group"):
        extend(cells, slots, "0" * 16, 1, 0)


def test_the_original_order_is_the_published_list() -> None:
    study = replace(FULL, order="original", repeats=3)
    cells, slots = schedule(study, 0)
    assert [slot.cell for slot in slots] == [entry.cell.id for entry in study.entries] * 3
    assert [slot.order for slot in slots] == list(range(3 * 231))
    assert not any(cell.twin for cell in cells)
    assert len({slot.id for slot in slots}) == len(slots)
    # The warm-up's cell is in experiment 1 again: two blocks in each pass.
    assert [slot.block for slot in slots if slot.cell == study.entries[0].cell.id] == list(range(6))


@pytest.mark.parametrize("name", names())
def test_slots_of_every_study_are_unique(name: str) -> None:
    cells, slots = schedule(load(name), 7)
    assert len({slot.id for slot in slots}) == len(slots)
    assert len({cell.id for cell in cells}) == len(cells)
    assert {slot.cell for slot in slots} == {cell.id for cell in cells}


def test_one_configuration_is_planned_alone() -> None:
    cells, slots = schedule(select(FULL, index=42), 0)
    assert len(cells) == 2
    assert len(slots) == 2 * FULL.min_blocks


def test_negative_seeds_are_refused() -> None:
    with pytest.raises(InputError, match="seed=-1"):
        schedule(FULL, -1)


DRIFT, NOISE, BLOCKS, CAMPAIGNS = 0.03, 0.005, 20, 400


def verdicts(sequential: bool) -> tuple[float, float]:
    """Of campaigns of two equal cells on a machine that slows down by 3 %: mean log ratio, share of false alarms."""
    generator = np.random.default_rng(11)
    study = make(2, blocks=BLOCKS, aa=False)
    ratios = []
    for seed in range(CAMPAIGNS):
        cells, slots = schedule(study, seed)
        if sequential:
            slots = sorted(slots, key=lambda slot: slot.cell != cells[0].id)
        time = {}
        for place, slot in enumerate(slots):
            drift = DRIFT * place / (len(slots) - 1)
            time[slot.cell, slot.block] = math.exp(drift + generator.normal(0, NOISE))
        ratios.append([[time[cell.id, block] for block in range(BLOCKS)] for cell in cells])
    found = [stats.paired_ratio(second, first) for first, second in ratios]
    alarms = sum(not ratio.low <= 1 <= ratio.high for ratio in found) / CAMPAIGNS
    return float(np.mean([math.log(ratio.ratio) for ratio in found])), alarms


def test_drift_biases_a_sequential_order_and_not_the_protocols() -> None:
    bias, alarms = verdicts(sequential=False)
    # Mean of 400 campaigns: standard error 0.005 sqrt(2 / 20) / 20 = 0.00008.
    assert abs(bias) < 0.0004
    assert alarms < 0.08
    bias, alarms = verdicts(sequential=True)
    assert bias == pytest.approx(DRIFT / 2, rel=0.1)
    assert alarms > 0.95


def test_detectable_effect_shrinks_with_blocks_and_grows_with_noise() -> None:
    assert minimum_detectable_effect(20, 0.01) < minimum_detectable_effect(5, 0.01) < minimum_detectable_effect(5, 0.02)
    assert minimum_detectable_effect(5, 0.01) == stats.minimum_detectable_effect(0.01 * math.sqrt(2), 5)
    assert math.isnan(minimum_detectable_effect(1, 0.01))


def test_estimate_counts_runs_and_grows_with_work() -> None:
    found = estimate(FULL)
    # 220 cells and a twin; 5 blocks to 30.
    assert (found.runs, found.most_runs) == (221 * 5, 221 * 30)
    assert found.low_s < found.seconds < found.high_s
    assert found.seconds < found.most_seconds
    assert found.bytes < found.most_bytes
    assert found.measured == 0
    assert estimate(scaled(FULL, 0.1)).seconds < found.seconds / 5
    assert estimate(replace(FULL, order="original", repeats=3)).runs == 693


def test_estimate_prefers_what_was_measured() -> None:
    study = make(2, blocks=5, aa=False, max_blocks=5)
    measured = {cell.id: [9.0, 10.0, 12.0] for cell in study.cells}
    found = estimate(study, measured)
    canary_s = 5 * plan.CANARY_S
    assert (found.low_s, found.seconds, found.high_s) == (90 + canary_s, 100 + canary_s, 120 + canary_s)
    assert found.measured == 2
    assert found.most_seconds == found.seconds


@pytest.mark.parametrize("name", names())
def test_every_cell_has_an_estimate(name: str) -> None:
    for cell in load(name).cells:
        assert cost.START_S < plan.seconds_per_run(cell) < math.inf


def test_estimate_counts_the_canaries_of_every_group() -> None:
    study = make(2, envs=3, blocks=5, aa=False, max_blocks=15)
    found = estimate(study, {cell.id: [10.0] for cell in study.cells})
    blocks = 3 * 5
    assert found.runs == 2 * blocks
    assert found.seconds == found.low_s == found.high_s == 2 * blocks * 10 + blocks * plan.CANARY_S
    assert found.most_seconds == 3 * found.seconds


def test_a_program_of_many_iterations_stores_a_value_a_call() -> None:
    fixed = {"num_iterations": 100, "chunk": 10}
    found = {}
    for unit in ("iteration", "chunk"):
        product = Product({"backend": ["linen"]}, fixed=fixed | {"unit": unit})
        found[unit] = estimate(Study("made", (product,), min_blocks=1, max_blocks=1, aa=False)).bytes
    assert found["iteration"] == plan.RUN_BYTES + 100 * plan.CALL_BYTES
    assert found["chunk"] == plan.RUN_BYTES + 10 * plan.CALL_BYTES
