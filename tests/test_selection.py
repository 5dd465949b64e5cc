"""No selection: a summary compares variants in the same cells, and unlike ratios are not pooled."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from known import ENVS, Known, build

from benchback.analysis.choices import Summary, summaries
from benchback.analysis.claims import ALL, Claim, all_claims
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.measure.record import Cell
from benchback.stats import NoVerdict, Unsteady, Verdict


def source_of(path: Path, known: Known) -> Source:
    with build(path / "known.sqlite", known) as store:
        return read(store)


def steady(source: Source, env: str = ALL, model: str = ALL) -> dict[str, Claim]:
    """Claims about steady state by backend."""
    found = [c for c in all_claims(source) if (c.metric, c.env, c.model) == ("steady", env, model)]
    return {claim.subject.run["backend"]: claim for claim in found if not claim.subject.twin}


SMALL_RATIO = {"linen": 1.0, "nnx": 3.0, "pytorch": 8.0}
LARGE_RATIO = {"linen": 1.0, "nnx": 1.0, "pytorch": 1.3}


def restless(backend: str, env: str, model: str) -> float | None:
    """PyTorch is slower than NNX in every cell, and its small cells, where it is slowest, do not settle."""
    if backend == "pytorch" and model == "small":
        return None
    return 0.1 * SMALL_RATIO[backend] if model == "small" else LARGE_RATIO[backend]


def test_cells_that_do_not_settle_do_not_make_a_slow_variant_look_fast(tmp_path: Path) -> None:
    """Each averaged over cells of its own, PyTorch (1.3x, large ones only) would beat NNX (1.7x, all)."""
    source = source_of(tmp_path, Known(tuple(SMALL_RATIO), restless, noise=0.002))
    found = steady(source)
    assert {claim.overall.cells for claim in found.values()} == {2}
    assert found["pytorch"].ratio == pytest.approx(1.3, rel=0.02)
    assert found["nnx"].ratio == pytest.approx(1.0, rel=0.02)
    missing = {row.name for row in found["nnx"].overall.left_out}
    assert missing == {f"ppo gymnax/{env} small, async" for env in source.envs}


def whole(source: Source) -> Summary:
    return next(each for each in summaries(source) if each.env == each.model == ALL)


def backends(cells: Sequence[Cell]) -> list[str]:
    return [cell.run["backend"] for cell in cells]


def test_a_summary_names_the_cells_that_are_missing_and_why(tmp_path: Path) -> None:
    found = whole(source_of(tmp_path, Known(tuple(SMALL_RATIO), restless, noise=0.002)))
    assert len(found.cells) == 2
    assert all("large" in title for title in found.cells)
    assert [hole.title for hole in found.holes] == [f"ppo gymnax/{env} small, async" for env in ENVS]
    assert set(backends([hole.cell for hole in found.holes])) == {"pytorch"}
    causes = {type(c) for hole in found.holes for gap in hole.comparison.gaps for c in gap.causes}
    assert causes == {Unsteady}


def test_without_a_common_cell_there_is_no_summary(tmp_path: Path) -> None:
    def crossed(backend: str, env: str, model: str) -> float | None:
        return None if (backend, model) in {("nnx", "small"), ("pytorch", "large")} else 1.0

    source = source_of(tmp_path, Known(("linen", "nnx", "pytorch"), crossed, noise=0.002))
    assert {claim.overall.reason for claim in steady(source).values()} == {NoVerdict.NO_COMMON_CELL}
    found = whole(source)
    assert (found.cells, found.choice, len(found.holes)) == ((), None, 4)


def test_a_variant_without_any_result_does_not_take_the_summary_from_the_others(tmp_path: Path) -> None:
    def broken(backend: str, env: str, model: str) -> float | None:
        return {"linen": 1.0, "nnx": 1.5, "haiku": None}[backend]

    source = source_of(tmp_path, Known(("linen", "nnx", "haiku"), broken, noise=0.002))
    found = whole(source)
    assert len(found.cells) == 4
    assert backends([claim.subject for claim in found.unknown]) == ["haiku"]
    assert steady(source)["nnx"].ratio == pytest.approx(1.5, rel=0.01)


def test_ratios_that_differ_along_an_axis_are_a_range_and_no_number(tmp_path: Path) -> None:
    def shrinking(backend: str, env: str, model: str) -> float:
        return {"linen": 1.0, "nnx": 1.1, "pytorch": 8.0 if model == "small" else 1.3}[backend]

    source = source_of(tmp_path, Known(("linen", "nnx", "pytorch"), shrinking, noise=0.005))
    found = steady(source)
    assert found["nnx"].along is None
    assert found["nnx"].ratio == pytest.approx(1.1, rel=0.02)
    pytorch = found["pytorch"]
    assert (pytorch.ratio, pytorch.overall.reason, pytorch.verdict) == (None, NoVerdict.DIFFERS, Verdict.SLOWER)
    assert pytorch.along is not None
    assert pytorch.along.axis == "model"
    ratios = {point.value: point.comparison.ratio for point in pytorch.along.points}
    assert ratios == pytest.approx({"small": 8.0, "large": 1.3}, rel=0.02)
    assert (pytorch.along.lowest.value, pytorch.along.highest.value) == ("large", "small")
    assert steady(source, model="small")["pytorch"].ratio == pytest.approx(8.0, rel=0.02)


def test_missing_cells_do_not_pass_for_a_difference_along_an_axis(tmp_path: Path) -> None:
    """All environments are alike; one of them lacks the small model, in which ratios are large."""

    def lacking(backend: str, env: str, model: str) -> float | None:
        if (backend, env, model) == ("pytorch", "Acrobot-v1", "small"):
            return None
        return 1.0 if backend == "linen" else 4.0 if model == "small" else 1.3

    found = steady(source_of(tmp_path, Known(("linen", "pytorch"), lacking, noise=0.002)))["pytorch"]
    assert found.along is not None
    assert found.along.axis == "model"
    assert {point.comparison.cells for point in found.along.points} == {1}


def test_nothing_decided_is_a_tie_and_not_the_reference(tmp_path: Path) -> None:
    def alike(backend: str, env: str, model: str) -> float:
        return 3.0 if backend == "pytorch" else 1.0

    found = whole(source_of(tmp_path, Known(("linen", "nnx", "haiku", "pytorch"), alike, noise=0.05)))
    assert found.choice is not None
    assert backends(found.choice.best) == ["linen", "nnx", "haiku"]
    assert found.choice.at_most is not None
    widest = max(claim.overall.at_most or 0 for claim in found.claims if claim.subject.run["backend"] != "pytorch")
    assert widest <= found.choice.at_most < 0.3
    assert backends([claim.subject for claim in found.slower]) == ["pytorch"]
    assert found.slower[0].ratio == pytest.approx(3.0, rel=0.1)


def test_one_is_chosen_only_if_it_is_faster_than_every_other(tmp_path: Path) -> None:
    speeds = {"linen": 1.0, "nnx": 0.9, "haiku": 1.2}
    known = Known(tuple(speeds), lambda backend, env, model: speeds[backend], noise=0.002)
    found = whole(source_of(tmp_path, known))
    assert found.choice is not None
    assert found.choice.at_most is None
    assert backends(found.choice.best) == ["nnx"]
    ratios = {claim.subject.run["backend"]: claim.ratio for claim in found.slower}
    assert ratios == pytest.approx({"linen": 1 / 0.9, "haiku": 1.2 / 0.9}, rel=0.01)
    for claim in found.slower:
        assert [row.ratio for row in claim.cells] == pytest.approx([claim.ratio] * 4, rel=0.02)
    assert not found.turns


def test_the_choice_is_given_along_the_axis_where_it_changes(tmp_path: Path) -> None:
    def turning(backend: str, env: str, model: str) -> float:
        return 1.0 if backend == "linen" else 2.0 if model == "small" else 0.5

    found = whole(source_of(tmp_path, Known(("linen", "nnx"), turning, noise=0.002)))
    (turn,) = found.turns
    assert turn.axis == "model"
    assert {value: backends(choice.best) for value, choice in turn.choices} == {"small": ["linen"], "large": ["nnx"]}
