"""Ratios over machines: by hand, on simulated machines whose truth is known, and in report, terminal and JSON."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines_model import Fleet, campaigns, rates
from scipy import stats as reference
from synthetic import Shape, build, fill, study_of

from benchback import stats
from benchback.analysis import compare
from benchback.analysis.claims import ALL
from benchback.analysis.machines import FleetClaim, fleet_claims, fleet_of
from benchback.cli import reporting
from benchback.errors import InputError
from benchback.measure import plan
from benchback.measure.store import Store, open_store
from benchback.report.prose_machines import paragraphs
from benchback.report.render import render
from benchback.stats import Estimate

SHAPE = Shape(("CartPole-v1", "Acrobot-v1"), ("small",), ("linen", "nnx", "pytorch"), 30, 3, sync=False)
SPEEDS = (1.0, 1.1, 1.3)
"""Factors on PyTorch's time on each machine: it differs between them, NNX does not."""


def test_the_interval_over_machines_is_students_t_over_their_ratios() -> None:
    machines = [Estimate(0.01, 0.002, 4.0), Estimate(0.05, 0.02, 4.0), Estimate(0.03, 0.01, 4.0)]
    found = stats.random_effects(machines)
    expected = reference.t.interval(0.95, 2, 0.03, 0.02 / math.sqrt(3))
    assert stats.bounds(found.estimate) == pytest.approx(expected)
    error = (0.002**2 + 0.02**2 + 0.01**2) / 3
    assert found.between == pytest.approx(math.sqrt(0.02**2 - error))
    assert found.q == pytest.approx(2 * 0.02**2 / error)
    assert found.i_squared == pytest.approx(1 - error / 0.02**2)


def test_equal_errors_are_tested_as_in_a_one_way_analysis_of_variance() -> None:
    """With two machines of equal errors the freedom is that of the F test."""
    blocks = np.random.default_rng(3).normal(size=(2, 6))
    centred = blocks - blocks.mean(axis=1, keepdims=True)
    alike = centred[0] + np.array([[0.0], [0.4]])
    found = stats.random_effects([stats.estimate(x) for x in alike])
    assert found.p == pytest.approx(reference.f_oneway(*alike).pvalue)


def test_machines_that_agree_have_no_variance_between_them() -> None:
    found = stats.random_effects([Estimate(0.5, 0.01, 4.0)] * 4)
    assert (found.between, found.q, found.i_squared, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_machines_without_any_error_differ_by_the_least_difference() -> None:
    found = stats.random_effects([Estimate(0.0, 0.0, 4.0), Estimate(0.1, 0.0, 4.0)])
    assert (found.q, found.p) == (math.inf, 0.0)
    with pytest.raises(ValueError, match="two machines"):
        stats.random_effects([Estimate(0.0, 0.1, 4.0)])


@pytest.mark.parametrize(("machines", "between", "noisier"), [(2, 0.0, 2.0), (3, 0.03, 1.0), (8, 0.03, 2.0)])
def test_intervals_over_machines_cover_the_truth(machines: int, between: float, noisier: float) -> None:
    found = rates(campaigns(Fleet(machines, between, noisier), 600))
    assert 0.93 <= found.covered <= 0.98
    if not between:
        assert found.differing <= 0.07
    else:
        assert found.differing >= 0.85


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("machines") / "fleet.sqlite"
    fleet(path).close()
    with open_store(path, readonly=True) as opened:
        yield opened


def fleet(path: Path, speeds: tuple[float, ...] = SPEEDS, **changed: Any) -> Store:
    """A store of as many strata, equal in their software unless `changed` is part of the last one's."""
    store = build(path, replace(SHAPE, speed=speeds[0]))
    first = store.strata()[0]
    for number, speed in enumerate(speeds[1:], 1):
        print_ = first | {"cpu": f"machine {number}"} | (changed if number == len(speeds) - 1 else {})
        store.add_stratum(print_, plan.again(study_of(SHAPE), store.slots(), 0, number))
        fill(store, replace(SHAPE, speed=speed, seed=number))
    return store


def steady(claims: list[FleetClaim], backend: str) -> FleetClaim:
    (found,) = [
        x
        for x in claims
        if (x.claim.subject.run["backend"], x.claim.metric, x.claim.env, x.claim.model) == (backend, "steady", ALL, ALL)
    ]
    return found


def test_each_machine_keeps_its_ratio_and_their_spread_is_found(store: Store) -> None:
    claims = fleet_claims(fleet_of(store))
    torch, nnx = steady(claims, "pytorch"), steady(claims, "nnx")
    ratios = [claim.overall.ratio or 0.0 for claim in torch.claims.values()]
    assert np.array(ratios) / ratios[0] == pytest.approx(SPEEDS, rel=0.02)
    assert torch.effects is not None
    assert nnx.effects is not None
    assert torch.effects.p < 0.01
    assert torch.effects.between == pytest.approx(float(np.std(np.log(SPEEDS), ddof=1)), rel=0.1)
    assert torch.overall.ratio == pytest.approx(stats.geometric_mean(ratios))
    assert torch.overall.n == len(SPEEDS)
    assert nnx.effects.between < 0.02
    # The interval over machines is of machines: it is far wider than that of any of them.
    assert (torch.overall.half_width or 0.0) > 0.2


def test_a_cell_that_one_machine_lacks_is_summed_up_on_none(tmp_path: Path) -> None:
    with fleet(tmp_path / "some.sqlite", (1.0,)) as store:
        machine = store.strata()[0] | {"cpu": "other"}
        few = replace(SHAPE, envs=SHAPE.envs[:1])
        groups = {cell.group for cell in study_of(few).cells}
        cells = store.cells()
        slots = [s for s in plan.again(study_of(SHAPE), store.slots(), 0, 1) if cells[s.cell].group in groups]
        store.add_stratum(machine, slots)
        fill(store, replace(SHAPE, seed=1))
        found = steady(fleet_claims(fleet_of(store)), "nnx")
        assert {claim.overall.cells for claim in found.claims.values()} == {1}


def test_machines_of_other_software_are_left_out_and_named(tmp_path: Path) -> None:
    with fleet(tmp_path / "other.sqlite", (1.0, 1.0, 1.0), code="another") as store:
        found = fleet_of(store)
        assert [machine.name.partition(":")[0] for machine in found.machines] == ["stratum 2"]
        assert {name.partition(":")[0] for name in found.left_out} == {"stratum 0", "stratum 1"}
        assert all("code: another -> 0123456789abcdef" in why for why in found.left_out.values())
        assert fleet_claims(found) == []
    with pytest.raises(InputError, match=r"machines with the same software to sum up; stratum 0: .*code: another"):
        compare.fleet([compare.side(str(tmp_path / "other.sqlite"))])


def test_report_page_terminal_and_json_say_the_same(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fleet_of(store)
    page = render(store, tmp_path / "out", images=False, fleet=found)[0].read_text()
    said = paragraphs(found, fleet_claims(found))
    assert ">Machines</a>" in page
    assert f"<p>{escape(said[1])}</p>" in page
    assert "Over 3 machines" in said[1]
    assert reporting.compare([str(store.path)]) == 0
    assert capsys.readouterr().out.strip() == "\n".join(said)
    assert reporting.compare([str(store.path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["over_machines"]
    written = json.loads((tmp_path / "out/tables/fleet.json").read_text())
    assert [row["text"] for row in rows] == [row["text"] for row in written]
    places = {row["machine"].partition(":")[0] for row in rows}
    assert places == {"stratum 0", "stratum 1", "stratum 2", "over machines"}


def test_stores_and_strata_can_be_machines(store: Store) -> None:
    sides = [compare.side(f"{store.path}@{number}") for number in (0, 2)]
    found = compare.fleet(sides)
    assert [machine.name.partition(":")[0] for machine in found.machines] == ["fleet@0", "fleet@2"]
    assert steady(fleet_claims(found), "pytorch").overall.n == 2
    with pytest.raises(InputError, match="leave out the variant"):
        compare.fleet([compare.side(f"{store.path}:linen/jit/phase")])
