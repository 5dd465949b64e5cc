"""The figures of a fixed synthetic store are those that somebody has looked at.

Compared are the charts as Vega-Lite and the rows they are given at first, before any library draws them: pixels differ
between versions of fonts, these do not. After a change that is meant, renew and look at the difference:

    BENCHBACK_RENEW_GOLDEN=1 python -m pytest tests/test_report_golden.py && git diff tests/golden
"""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import Shape, build

from benchback.analysis.claims import all_claims
from benchback.analysis.reader import read
from benchback.report.chart import rows_of, specification, unfiltered
from benchback.report.page import rounded_table
from benchback.report.render import charts_of, tables_of

GOLDEN = Path(__file__).parent / "golden"
RENEW = bool(os.environ.get("BENCHBACK_RENEW_GOLDEN"))
SHAPE = Shape(("CartPole-v1", "Asterix-MinAtar"), ("small", "large"), ("linen", "equinox", "haiku", "pytorch"), 40, 3)
MOST_ROWS = 12
"""Kept of each figure, evenly spread: enough to see a column or a number change, and few enough to read."""
BY_MACHINE = {"ease", "provenance"}
"""Tables that follow from the source tree, not from the store: only their charts are compared."""


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """Every figure as it would be drawn."""
    with build(tmp_path_factory.mktemp("golden") / "golden.sqlite", SHAPE) as store:
        source = read(store)
        tables = {name: rounded_table(table) for name, table in tables_of(source, all_claims(source)).items()}
        yield {
            figure.id: {
                "title": figure.title,
                "caption": figure.caption,
                "chart": None if figure.chart is None else specification(figure, source.orders),
                "rows": some_rows(figure, tables),
            }
            for figure in charts_of(source)
            if figure.data != "machines"
        }


def some_rows(figure: Any, tables: Any) -> dict[str, Any]:
    if figure.data in BY_MACHINE:
        return {}
    rows = unfiltered(figure, rows_of(figure, tables[figure.data])).select(
        name for name in figure.columns if name in tables[figure.data].columns
    )
    step = max(1, math.ceil(len(rows) / MOST_ROWS))
    return {"count": len(rows), "some": rows.gather_every(step).to_dicts()}


def test_every_figure_is_as_it_was_looked_at(figures: dict[str, dict[str, Any]]) -> None:
    if RENEW:
        for path in GOLDEN.glob("*.json"):
            path.unlink()
        for name, found in figures.items():
            text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
            (GOLDEN / f"{name}.json").write_text(text + "\n")
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(figures)
    for name, found in figures.items():
        golden = json.loads((GOLDEN / f"{name}.json").read_text())
        wrong = list(differences(golden, json.loads(json.dumps(found)), name))
        assert not wrong, wrong[:5]


def differences(golden: Any, found: Any, where: str) -> Iterator[str]:
    """Places in which two trees differ; numbers may differ in their last digits, which depend on the processor."""
    if isinstance(golden, dict) and isinstance(found, dict):
        if golden.keys() != found.keys():
            yield f"{where}: {sorted(golden.keys() ^ found.keys())}"
        for name in golden.keys() & found.keys():
            yield from differences(golden[name], found[name], f"{where}.{name}")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for at, pair in enumerate(zip(golden, found, strict=True)):
            yield from differences(*pair, f"{where}[{at}]")
    elif isinstance(golden, float) and isinstance(found, int | float):
        if not math.isclose(golden, found, rel_tol=1e-4, abs_tol=1e-9):
            yield f"{where}: {golden} became {found}"
    elif golden != found:
        yield f"{where}: {golden!r} became {found!r}"


def test_a_changed_figure_is_noticed(figures: dict[str, dict[str, Any]]) -> None:
    changed = json.loads(json.dumps(figures["forest_steady"]))
    changed["rows"]["some"][0]["ratio"] *= 1.01
    changed["chart"]["layer"][0]["mark"]["opacity"] = 0.5
    assert len(list(differences(figures["forest_steady"], changed, ""))) == 2


def test_every_chart_is_valid_vega_lite(tmp_path: Path) -> None:
    shape = Shape(("CartPole-v1",), ("small",), ("linen", "nnx"), 12, 2)
    with build(tmp_path / "valid.sqlite", shape) as store:
        for figure in charts_of(read(store)):
            if figure.chart is not None:
                figure.chart.to_dict(validate=True)
