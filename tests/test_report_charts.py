"""Charts of a fixed synthetic store: six that somebody has looked at, and properties that hold for every chart.

Of the six the chart as Vega-Lite and some of its rows are compared, before any library draws them: pixels differ
between versions of fonts, these do not. After a change that is meant, renew and look at the difference:

    BENCHBACK_RENEW_GOLDEN=1 python -m pytest tests/test_report_charts.py && git diff tests/golden
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from synthetic import Shape, build

from benchback.analysis.claims import ALL, Claim, all_claims
from benchback.analysis.reader import accepted_attempts, read
from benchback.analysis.source import Source
from benchback.report.chart import Figure, rows_of, specification, unfiltered, with_data
from benchback.report.drawing import draw
from benchback.report.naming import plain_names
from benchback.report.page import rounded_table
from benchback.report.render import charts_of, tables_of

GOLDEN = Path(__file__).parent / "golden"
RENEW = bool(os.environ.get("BENCHBACK_RENEW_GOLDEN"))
REVIEWED = ("forest_steady", "overhead_ratio", "timeline", "breakeven", "curves_env_steps", "ledger")
"""One of each kind: intervals, spread, lines, open intervals, bands, a table."""
SHAPE = Shape(("CartPole-v1", "Asterix-MinAtar"), ("small", "large"), ("linen", "equinox", "haiku", "pytorch"), 40, 3)
MOST_ROWS = 12
"""Kept of each golden chart, evenly spread: enough to see a column or a number change, and few enough to read."""
RATIO = ("x", "ratio", "times as long as the reference")
AXES: dict[str, tuple[tuple[str, str, str], ...]] = {
    **{f"forest_{name}": (RATIO,) for name in ("total", "cold_start", "steady", "rollout", "update")},
    "aa": (RATIO,),
    "aa_total": (RATIO,),
    "total": (("x", "total_s", "seconds, total"),),
    "overhead_seconds": (("x", "seconds", "seconds"),),
    "overhead_ratio": (RATIO,),
    "overhead_difference_s": (("x", "difference_s", "seconds more than the reference"),),
    "phases_seconds": (("x", "seconds", "seconds in steady state"),),
    "phases_ratio": (RATIO,),
    "modes_steady": (("x", "seconds", "seconds, steady iteration"),),
    "modes_total": (("x", "seconds", "seconds, total"),),
    "machines": (("x", "ratio", "times as long in the other store"),),
    "timeline": (("x", "iteration", "iteration (1 is the first)"), ("y", "seconds", "seconds")),
    "cumulative": (("x", "env_steps", "environment steps"), ("y", "elapsed_s", "seconds since start")),
    "breakeven": (("x", "env_steps", "environment steps until overtaken"),),
    "curves_env_steps": (("x", "env_steps", "environment steps"), ("y", "mean", "return")),
    "curves_elapsed_s": (("x", "elapsed_s", "seconds since start"), ("y", "mean", "return")),
    "thresholds": (("x", "seconds", "seconds to the threshold"),),
    "profiles": (("x", "score", "share of the way to the group's best"), ("y", "fraction", "runs beyond it")),
    "memory_host": (("x", "peak_mb", "peak MB"),),
    "memory_device": (("x", "device_mb", "peak MB"),),
    "memory_slope": (("x", "slope", "MB per 1000 iterations"),),
    "noise": (("x", "order", "place in the schedule"), ("y", "value", "share")),
    "canary": (("x", "order", "measurement"), ("y", "relative", "times the median")),
    "failures": (("x", "count", "attempts"),),
    "code_size": (("x", "lines", "lines of code"),),
    "first_step": (("x", "first_step_s", "seconds to the end of the first iteration"),),
}
"""What every chart shows on its axes: channel, column and title."""


@dataclass(frozen=True)
class Shown:
    """A chart with the rows it is given before anything is chosen."""

    figure: Figure
    specification: Any
    rows: pl.DataFrame


@dataclass(frozen=True)
class Report:
    """All that the tests look at."""

    source: Source
    claims: list[Claim]
    tables: dict[str, pl.DataFrame]
    charts: dict[str, Shown]
    finished_s: dict[str, float]
    """Slot -> seconds from the start of the process to the end, as recorded."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    with build(tmp_path_factory.mktemp("charts") / "charts.sqlite", SHAPE) as store:
        source = read(store)
        claims = all_claims(source)
        tables = tables_of(source, claims)
        found = accepted_attempts(store, 0)
        finished = {x.slot.id: x.attempt.record.marks["finished"] for x in found if x.attempt.record}
        charts = {
            figure.id: Shown(
                figure,
                None if figure.chart is None else specification(figure, source.orders, plain_names(source)),
                unfiltered(figure, rows_of(figure, tables[figure.data])),
            )
            for figure in charts_of(source)
        }
    return Report(source, claims, tables, charts, finished)


# Golden charts


def golden(shown: Shown) -> dict[str, Any]:
    """What is kept of a chart that was looked at."""
    rows = rounded_table(shown.rows).select(name for name in shown.figure.columns if name in shown.rows.columns)
    some = rows.gather_every(max(1, math.ceil(len(rows) / MOST_ROWS))).to_dicts()
    texts = {"title": shown.figure.title, "caption": shown.figure.caption}
    return texts | {"chart": shown.specification, "rows": {"count": len(rows), "some": some}}


@pytest.mark.parametrize("name", REVIEWED)
def test_a_reviewed_chart_is_as_it_was_looked_at(report: Report, name: str) -> None:
    found, path = golden(report.charts[name]), GOLDEN / f"{name}.json"
    if RENEW:
        path.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    wrong = list(differences(json.loads(path.read_text()), json.loads(json.dumps(found)), name))
    assert not wrong, wrong[:5]


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(REVIEWED)


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


# Every chart: its axes, and whether its data can be drawn on them


def test_every_chart_shows_what_its_axes_say(report: Report) -> None:
    assert {name for name, shown in report.charts.items() if shown.specification} == set(AXES)
    for shown in report.charts.values():
        assert not list(faults(shown)), shown.figure.id


def faults(shown: Shown) -> Iterator[str]:
    """What is wrong with a chart and its rows."""
    if not shown.figure.title or not shown.figure.caption:
        yield "no title or caption"
    if shown.specification is None:
        return
    axes = dict.fromkeys(axis for encoding in encodings(shown.specification) for axis in titled(encoding))
    if set(axes) != set(AXES[shown.figure.id]):
        yield f"axes are {list(axes)}"
    if not shown.rows.is_empty():
        yield from unknown_fields(shown)
        yield from undrawable(shown)
        yield from wrong_intervals(shown)


def encodings(part: Any) -> Iterator[dict[str, Any]]:
    """The encodings of all layers and panels."""
    if isinstance(part, list):
        for x in part:
            yield from encodings(x)
    elif isinstance(part, dict):
        if "encoding" in part:
            yield part["encoding"]
        for x in part.values():
            yield from encodings(x)


def titled(encoding: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for channel in ("x", "y"):
        about = encoding.get(channel, {})
        if about.get("title"):
            yield channel, about.get("field") or about.get("aggregate"), about["title"]


def unknown_fields(shown: Shown) -> Iterator[str]:
    """Fields that are drawn and neither in the rows nor computed by the chart."""
    text = json.dumps(shown.specification)
    for encoding in encodings(shown.specification):
        for about in encoding.values():
            for name in [x.get("field") for x in (about if isinstance(about, list) else [about])]:
                if name and name not in shown.rows.columns and f'"as": "{name}"' not in text:
                    yield f"{name} is not there"


def undrawable(shown: Shown) -> Iterator[str]:
    """Panels without a point, and values that a logarithm cannot show."""
    fields = [field for _, field, _ in AXES[shown.figure.id] if field in shown.rows.columns]
    facet = shown.specification.get("facet", {}).get("field")
    drawn = shown.rows.drop_nulls(fields)
    panels = set(shown.rows[facet]) if facet else {None}
    if panels - (set(drawn[facet]) if facet else ({None} if len(drawn) else set())):
        yield "a panel has no point"
    for encoding in encodings(shown.specification):
        for about in (encoding.get(channel, {}) for channel in ("x", "y")):
            logarithmic = (about.get("scale") or {}).get("type") == "log"
            if logarithmic and about.get("field") in fields and (drawn[about["field"]] <= 0).any():
                yield f"{about['field']} is not positive"


def wrong_intervals(shown: Shown) -> Iterator[str]:
    """Intervals that do not hold their value, or are drawn from the wrong end."""
    field = AXES[shown.figure.id][-1][1]
    if {"low", "high", field} <= set(shown.rows.columns):
        known = shown.rows.drop_nulls([field, "low", "high"]).select(field, "low", "high").rows()
        if any(not low - 1e-9 <= value <= high + 1e-9 for value, low, high in known):
            yield "an interval does not hold its value"
    for encoding in encodings(shown.specification):
        for first, second in (("x", "x2"), ("y", "y2")):
            ends = encoding.get(first, {}).get("field"), encoding.get(second, {}).get("field")
            if all(ends) and "high" in ends and ends != ("low", "high"):
                yield f"an interval goes from {ends[0]} to {ends[1]}"


def test_every_chart_is_valid_vega_lite(report: Report) -> None:
    for shown in report.charts.values():
        if shown.figure.chart is not None:
            shown.figure.chart.to_dict(validate=True)


@pytest.mark.parametrize("name", ["forest_steady", "timeline", "failures"])
def test_a_chart_is_drawn(report: Report, name: str) -> None:
    shown = report.charts[name]
    svg, png = draw(with_data(shown.specification, shown.figure.data, shown.rows))
    assert svg.count(b"<path") > len(shown.rows)
    assert png.startswith(b"\x89PNG")


# Every number of a chart: computed again from the runs


def test_the_runs_of_a_chart_are_those_of_the_store(report: Report) -> None:
    runs = report.tables["runs"].drop_nulls("total_s")
    assert dict(zip(runs["run"], runs["total_s"], strict=True)) == report.finished_s


NAMES = ("total", "cold_start", "steady", "rollout", "update")
FOREST = [f"forest_{name}" for name in NAMES] + ["aa", "aa_total"]
MATRICES = [f"{kind}_{name}" for kind in ("heat", "pairs") for name in NAMES]


@pytest.mark.parametrize("name", FOREST + MATRICES)
def test_ratios_are_those_of_the_runs(report: Report, name: str) -> None:
    shown = report.charts[name]
    assert not shown.rows.is_empty()
    assert not list(wrong_ratios(shown, report.tables["runs"]))


def test_some_ratios_are_one_number_and_some_are_a_range(report: Report) -> None:
    rows = report.charts["forest_steady"].rows
    assert 0 < rows["ratio"].null_count() < len(rows)
    assert (rows["lowest"].is_null() != rows["ratio"].is_null()).all()


def wrong_ratios(shown: Shown, runs: pl.DataFrame) -> Iterator[str]:
    """Rows whose ratio is not the geometric mean, over cells and blocks, of the first's seconds over the second's; and
    ranges whose ends are not the smallest and the largest of these along their axis."""
    for row in shown.rows.to_dicts():
        if row["ratio"] is not None:
            found = {"ratio": (row["ratio"], ratio_of(runs, row))}
        elif row["lowest"] is not None:
            values = runs[row["along"]].unique().to_list()
            along = [ratio_of(runs, row | {row["along"]: value}, values) for value in values]
            found = {"lowest": (row["lowest"], min(along)), "highest": (row["highest"], max(along))}
        else:
            continue
        for name, (value, expected) in found.items():
            if not math.isclose(value, expected, rel_tol=1e-9):
                yield f"{row['variant']}: {name} is {value} and not {expected}"


def ratio_of(runs: pl.DataFrame, row: dict[str, Any], balanced: Sequence[str] = ()) -> float:
    """Over the cells in which all variants have two runs; of values of an axis, over what all of them have."""
    column, other = f"{row['figure']}_s", row.get("other") or row["reference"]
    part = runs.filter(pl.col("timing") == row["timing"])
    cells = common_cells(part, column) if not row["twin"] else set(part.select("env", "model").unique().rows())
    if balanced:
        across = 1 if row["along"] == "env" else 0
        shared = [{cell[across] for cell in cells if cell[1 - across] == value} for value in balanced]
        cells = {cell for cell in cells if cell[across] in set.intersection(*shared)}
    means = []
    for env, model in sorted(cells):
        if row["env"] not in (ALL, env) or row["model"] not in (ALL, model):
            continue
        here = part.filter((pl.col("env") == env) & (pl.col("model") == model))
        sides = [here.filter(pl.col("variant") == name) for name in (row["variant"], other)]
        both = sides[0].join(sides[1], on="block", suffix="_other").drop_nulls([column, f"{column}_other"])
        if len(both):
            means.append(np.log(both[column].to_numpy() / both[f"{column}_other"].to_numpy()).mean())
    return float(np.exp(np.mean(means)))


def common_cells(runs: pl.DataFrame, column: str) -> set[tuple[str, str]]:
    """Cells in which every variant has two runs with the metric; copies are no variants."""
    real = runs.filter(~pl.col("twin"))
    known = real.drop_nulls(column).group_by("env", "model", "variant").len().filter(pl.col("len") > 1)
    counts = known.group_by("env", "model").agg(pl.col("variant").n_unique())
    return set(counts.filter(pl.col("variant") == real["variant"].n_unique()).select("env", "model").rows())


def test_a_forest_plot_shows_the_claims_of_one_setting(report: Report) -> None:
    first = report.claims[0].setting
    claims = [x for x in report.claims if x.metric == "steady" and x.setting == first and x.env == x.model == ALL]
    claims = [x for x in claims if not x.subject.twin]
    rows = report.charts["forest_steady"].rows.to_dicts()
    said = [(x.variant, x.reference, x.ratio, x.overall.low, x.overall.high, x.overall.n, x.verdict) for x in claims]
    names = ("variant", "reference", "ratio", "low", "high", "blocks", "verdict")
    assert [tuple(row[name] for name in names) for row in rows] == said


@pytest.mark.parametrize("name", ["overhead_ratio", "overhead_difference_s", "phases_ratio"])
def test_parts_are_set_against_those_of_the_reference(report: Report, name: str) -> None:
    rows = report.charts[name].rows.to_dicts()
    seconds = {(r["variant"], r["env"], r["model"], r["part"]): r["seconds"] for r in rows}
    compared = [row for row in rows if row["ratio"] is not None]
    assert compared
    for row in compared:
        reference = seconds[row["reference"], row["env"], row["model"], row["part"]]
        assert row["ratio"] == pytest.approx(row["seconds"] / reference)
        assert row["difference_s"] == pytest.approx(row["seconds"] - reference)


def test_time_goes_on_along_every_line(report: Report) -> None:
    for _, line in report.charts["cumulative"].rows.group_by("panel", "variant", "timing"):
        ordered = line.sort("env_steps")
        assert (ordered["elapsed_s"].diff().drop_nulls() > 0).all()
        assert ordered["iteration"][0] == 1


# Charts that are wrong


def inverted(shown: Shown) -> Shown:
    names = {"ratio": "ratio", "low": "high", "high": "low", "lowest": "highest", "highest": "lowest"}
    upside_down = shown.rows.with_columns(**{name: 1 / pl.col(other) for name, other in names.items()})
    return Shown(shown.figure, shown.specification, upside_down)


def inverted_ranges(shown: Shown) -> Shown:
    ranges = shown.rows.with_columns(lowest=1 / pl.col("highest"), highest=1 / pl.col("lowest"))
    return Shown(shown.figure, shown.specification, ranges)


def swapped_columns(shown: Shown) -> Shown:
    return Shown(shown.figure, shown.specification, shown.rows.rename({"low": "high", "high": "low"}))


def renamed_field(before: str, after: str) -> Callable[[Shown], Shown]:
    def change(shown: Shown) -> Shown:
        text = json.dumps(shown.specification).replace(f'"field": "{before}"', f'"field": "{after}"')
        return Shown(shown.figure, json.loads(text), shown.rows)

    return change


def empty_panel(shown: Shown) -> Shown:
    gone = pl.when(pl.col("panel") != pl.first("panel")).then(pl.col("seconds"))
    return Shown(shown.figure, shown.specification, shown.rows.with_columns(seconds=gone))


def negative(shown: Shown) -> Shown:
    return Shown(shown.figure, shown.specification, shown.rows.with_columns(total_s=-pl.col("total_s")))


MUTATIONS: dict[str, tuple[str, Callable[[Shown], Shown]]] = {
    "forest inverted": ("forest_steady", inverted),
    "pairs inverted": ("pairs_total", inverted),
    "heat table inverted": ("heat_steady", inverted),
    "a range inverted": ("forest_steady", inverted_ranges),
    "interval swapped": ("forest_total", swapped_columns),
    "another column": ("overhead_ratio", renamed_field("ratio", "seconds")),
    "axes swapped": ("curves_env_steps", renamed_field("env_steps", "elapsed_s")),
    "no such column": ("memory_host", renamed_field("backend", "framework")),
    "interval backwards": ("memory_slope", renamed_field("low", "high")),
    "an empty panel": ("timeline", empty_panel),
    "below nought on a logarithm": ("total", negative),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_chart_is_noticed(report: Report, mutation: str) -> None:
    name, change = MUTATIONS[mutation]
    wrong = change(report.charts[name])
    found = list(faults(wrong))
    if name in FOREST + MATRICES:
        found += wrong_ratios(wrong, report.tables["runs"])
    assert found
