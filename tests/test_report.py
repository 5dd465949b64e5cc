"""The report of a synthetic store: what it says is what was put in, in the same bytes every time."""

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from synthetic import HOSTILE, SLOWER, Shape, build, fill, study_of

from benchback import stats
from benchback.analysis import code_size, compare, imported, progress
from benchback.analysis.claims import ALL, all_claims
from benchback.analysis.costs import read_env_times
from benchback.analysis.groups import Group
from benchback.analysis.progress import places, timeline_table
from benchback.analysis.ranges import axis_range
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.errors import InputError
from benchback.measure import plan
from benchback.measure.store import Store, open_store
from benchback.registry import ALGORITHMS, BACKENDS
from benchback.report import charts_speed, prose
from benchback.report.answers import answers, families
from benchback.report.chart import has_value, rows_of, unfiltered
from benchback.report.naming import plain_names
from benchback.report.page import SECTIONS, columnar, rounded_table
from benchback.report.render import charts_of, markdown, render, tables_of
from benchback.report.work import work_text

SMALL = Shape(("CartPole-v1", "Asterix-MinAtar"), ("small", "large"), ("linen", "nnx", "haiku", "pytorch"), 30, 4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("report") / "small.sqlite"
    build(path, SMALL).close()
    with open_store(path, readonly=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(store: Store) -> Source:
    return read(store)


@pytest.fixture(scope="module")
def tables(source: Source) -> dict[str, pl.DataFrame]:
    return tables_of(source, all_claims(source))


@pytest.fixture(scope="module")
def folder(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "out"
    render(store, out)
    return out


@pytest.mark.parametrize(
    "module", ["report.render", "report.prose", "analysis.compare", "analysis.imported", "analysis.code_size"]
)
def test_a_report_imports_no_framework(module: str) -> None:
    code = f"import sys, benchback.{module}; assert not {{'jax', 'torch', 'flax', 'gymnax'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def whole(tables: dict[str, pl.DataFrame], figure: str, backend: str) -> dict:
    claims = tables["claims"].filter(
        (pl.col("figure") == figure) & (pl.col("backend") == backend) & (pl.col("timing") == "async") & ~pl.col("twin")
    )
    return claims.filter((pl.col("env") == ALL) & (pl.col("model") == ALL)).to_dicts()[0]


def test_claims_find_the_effect_that_was_put_in(tables: dict[str, pl.DataFrame]) -> None:
    row = whole(tables, "steady", "nnx")
    assert row["low"] < SLOWER["nnx"] < row["high"]
    assert row["verdict"] == "slower"
    # Haiku has no result in one of the four cells, and averages are over cells that all have.
    assert (row["cells"], row["blocks"], row["reason"]) == (3, 12, "1 left out")


def test_a_cell_that_only_fails_is_named_not_dropped(tables: dict[str, pl.DataFrame]) -> None:
    row = whole(tables, "steady", "haiku")
    assert row["cells"] == 3
    assert row["reason"] == "1 left out"
    failed = tables["failures"].filter(pl.col("outcome") == "signal")
    assert set(failed["backend"]) == {"haiku"}
    alone = tables["claims"].filter(
        (pl.col("env") == "Asterix-MinAtar") & (pl.col("model") == "large") & (pl.col("backend") == "haiku")
    )
    assert set(alone["verdict"]) == {"no verdict"}
    assert alone["reason"].str.contains("no cell has two complete blocks").all()


def test_figures_without_phases_are_not_claimed_in_async(tables: dict[str, pl.DataFrame]) -> None:
    phases = tables["claims"].filter(pl.col("figure").is_in(["rollout", "update"]))
    assert set(phases["timing"]) == {"sync"}


def test_published_table_is_the_mean_over_all_pairs(source: Source, tables: dict[str, pl.DataFrame]) -> None:
    row = tables["published"].filter(
        (pl.col("pair") == "nnx/split : linen/jit")
        & (pl.col("figure") == "total")
        & (pl.col("model") == "small")
        & (pl.col("timing") == "async")
    )
    logs = []
    runs = tables["runs"].filter(~pl.col("twin") & (pl.col("timing") == "async") & (pl.col("model") == "small"))
    for env in SMALL.envs:
        sides = [runs.filter((pl.col("env") == env) & (pl.col("backend") == x))["total_s"] for x in ("nnx", "linen")]
        logs += [np.log(a / b) for a in sides[0] for b in sides[1]]
    assert row["pairs"].item() == len(logs) == 32
    np.testing.assert_allclose(row["geometric_mean"].item(), np.exp(np.mean(logs)))


def test_break_even_is_where_the_lines_cross(tables: dict[str, pl.DataFrame]) -> None:
    row = tables["breakeven"].filter(
        (pl.col("backend") == "pytorch") & (pl.col("env") == "CartPole-v1") & (pl.col("model") == "small")
    )
    row = row.filter(pl.col("timing") == "async").to_dicts()[0]
    # Linen starts 3.5 s later and gains 0.08 s in each iteration of 8192 steps.
    assert row["overtakes"] == "linen/jit/phase"
    assert row["low"] < 3.5 / 0.08 * 8192 < row["high"]


def test_the_verdict_says_who_by_how_much_and_on_what_it_depends(source: Source) -> None:
    found = prose.verdict(source, all_claims(source))
    assert found.recommendation.startswith("Use Flax Linen: it is faster than every other; Flax NNX takes 1.028x")
    assert "1 of 4 cells are left out, in which Haiku has no result." in found.recommendation
    asynchronous, _ = found.settings
    nnx = next(text for text in asynchronous.comparisons if text.startswith("Flax NNX"))
    assert "as long as Flax Linen, jit per iteration (3 cells, 12 blocks)." in nnx
    model, env, length = asynchronous.depends
    assert re.search(
        "model size: the choice is the same throughout; PyTorch takes .*large.* to .*small.* as long", model
    )
    assert "environment: the choice is the same throughout" in env
    assert "PyTorch, compile starts sooner" in length
    assert "Flax Linen, jit overtakes it after" in length
    assert any(text.startswith("Haiku, jit in ppo gymnax/Asterix-MinAtar large") for text in asynchronous.missing)


def test_unlike_ratios_at_one_model_size_are_not_averaged_in_what_the_choice_depends_on() -> None:
    def group(env: str, model: str) -> Group:
        run = {"env": f"gymnax/{env}", "model": model, "hidden_sizes": ()}
        return cast(Group, SimpleNamespace(title=f"{env} {model}", cells=(SimpleNamespace(run=run, network="mlp"),)))

    def row(ratio: float, title: str) -> stats.Comparison:
        return stats.compare(title, [ratio, 1.001 * ratio, 0.999 * ratio], [1.0, 1.0, 1.0])

    groups = [group(env, model) for env in ("Dear", "Cheap") for model in ("small", "large")]
    alike = {x.title: row(1.5 if "large" in x.title else 8.0, x.title) for x in groups}
    unlike = alike | {"Dear small": row(2.75, "Dear small")}
    texts = []
    for rows in (alike, unlike):
        found = axis_range(rows, groups, "model")
        assert found is not None
        texts.append(re.sub(r"(\d\.\d)\d*", r"\1", prose.ratios_along(found, rows, groups)))
    assert texts == ["1.5x (large) to 8.0x (small)", "2.7x to 8.0x (small) and 1.5x (large)"]


def test_what_was_learnt_is_compared_as_far_as_all_of_a_group_were_trained() -> None:
    def cell(name: str, calls: int, iterations_per_call: int, unknown: int = 0) -> Any:
        curves = np.tile(np.arange(1.0, calls + 1), (2, 1))
        curves[:, :unknown] = np.nan
        sampled = SimpleNamespace(ledger={"iterations_per_call": iterations_per_call})
        return name, [SimpleNamespace(sampled=sampled)], curves

    found = progress.in_common(
        [cell("long", 40, 1), cell("chunks", 8, 5), cell("short", 12, 1), cell("late", 40, 1, 20)]
    )
    assert [(name, curves.shape[1]) for name, _, curves in found] == [("long", 12), ("chunks", 2), ("short", 12)]


def test_a_chart_in_which_nothing_would_be_seen_is_not_drawn() -> None:
    figure = next(x for x in charts_speed.heat() if x.value)
    empty = pl.DataFrame({name: [None, None] for name in figure.value}, schema=dict.fromkeys(figure.value, pl.Float64))
    some = empty.with_columns(pl.Series(figure.value[-1], [None, 1.5]))
    assert [has_value(figure, table) for table in (empty.clear(), empty, some)] == [False, False, True]


def test_every_section_has_something_and_every_figure_a_caption(source: Source) -> None:
    figures = charts_of(source)
    # Many agents, and machines, have a section only where there are many.
    assert {figure.section for figure in figures} == set(SECTIONS) - {12, 13}
    assert len({figure.id for figure in figures}) == len(figures)
    assert all(len(figure.caption) > 30 and figure.columns for figure in figures)


def test_the_ledger_says_who_evaluates_more_rows(tables: dict[str, pl.DataFrame]) -> None:
    """Ten gradient steps of two to three passes each, and one evaluation, which PyTorch does twice."""
    rows = tables["ledger"].filter(pl.col("env").str.contains("CartPole") & (pl.col("model") == "small"))
    extra = {row["variant"].split("/")[0]: row["extra_work"] for row in rows.iter_rows(named=True)}
    assert extra["linen"] == "none"
    assert extra["pytorch"] == f"{32 * 256} more rows (3.3 % more FLOPs)"
    final = {row["variant"].split("/")[0]: row["final_value_rows"] for row in rows.iter_rows(named=True)}
    assert (final["linen"], final["pytorch"]) == (f"{32 * 256} when truncated", f"{32 * 256} always")


def test_columns_of_tables_are_there(source: Source, tables: dict[str, pl.DataFrame]) -> None:
    for figure in charts_of(source):
        table = rows_of(figure, tables[figure.data])
        if not table.is_empty():
            assert set(figure.columns) <= set(table.columns), figure.id


@pytest.mark.slow
def test_the_same_store_gives_the_same_bytes(store: Store, folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    # In a process of its own, with another hash seed: sets and counters may not matter.
    command = [sys.executable, "-m", "benchback.cli", "report", str(store.path), "--out", str(again), "--json"]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = os.environ | {"PYTHONHASHSEED": seed, "BENCHBACK_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    files = [Path(name).relative_to(again) for name in json.loads(done.stdout)["files"]]
    assert len(files) > 60
    assert {path.suffix for path in files} == {".html", ".png", ".svg", ".md", ".csv", ".json"}
    for path in files:
        assert (again / path).read_bytes() == (folder / path).read_bytes(), path


def with_work(source: Source, counts: dict[str, float]) -> Source:
    """The source with ledgers that count the work of some backends."""
    runs = []
    for run in source.runs:
        backend = run.cell.run["backend"]
        if run.sampled and backend in counts:
            ledger = {**run.sampled.ledger, "forward_flops": counts[backend], "gradient_flops": 3e9}
            run = replace(run, sampled=replace(run.sampled, ledger=ledger))
        runs.append(run)
    return replace(source, runs=tuple(runs))


def without_work(source: Source) -> Source:
    """The source with ledgers from before work was counted."""
    runs = []
    for run in source.runs:
        if run.sampled:
            ledger = {name: x for name, x in run.sampled.ledger.items() if "flops" not in name}
            run = replace(run, sampled=replace(run.sampled, ledger=ledger))
        runs.append(run)
    return replace(source, runs=tuple(runs))


def test_where_work_differs_is_said(source: Source) -> None:
    names = plain_names(source)
    assert work_text(without_work(source), names) == ""
    alike = dict.fromkeys(("linen", "nnx", "haiku"), 1e9)
    same = work_text(with_work(source, alike | {"pytorch": 1e9}), names)
    assert same.startswith("All backends compute the same")
    unlike = work_text(with_work(source, alike | {"pytorch": 1.25e9}), names)
    assert re.match(r"PyTorch, compile evaluates \d+ more rows \(6.2 % more FLOPs\) than the leanest", unlike)


def test_a_family_alone_is_summarised_as_if_nothing_else_had_been_measured(source: Source) -> None:
    found = answers(source, all_claims(source))
    assert (found[0].env, found[0].model, found[0].setting.timing) == (ALL, ALL, "async")
    assert families(source) == {"JAX": ("linen", "nnx", "haiku")}
    alone = [answer for answer in found if answer.backends == families(source)["JAX"]]
    assert len(alone) == len(found) / 2
    for answer in alone:
        assert "PyTorch" not in answer.recommendation
        assert not any("PyTorch" in text for text in answer.said.comparisons)


def test_hostile_text_stays_text(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert "window.hacked=1</script>" not in page.replace("&lt;/script&gt;", "")
    assert "<img" not in page.split("<script")[0]
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in data
    table = json.loads(data)["tables"]["provenance"]
    assert HOSTILE in table["value"]["levels"]
    shown = markdown_cells((folder / "tables" / "provenance.md").read_text())
    assert all("<img" not in cell.replace("\\<", "") for cell in shown)


def markdown_cells(text: str) -> list[str]:
    return [cell for line in text.splitlines() if line.startswith("|") for cell in line.strip("|").split(" | ")]


def test_tables_as_files_agree(folder: Path, tables: dict[str, pl.DataFrame]) -> None:
    rows = json.loads((folder / "tables" / "claims.json").read_text())
    with (folder / "tables" / "claims.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert len(rows) == len(listed) == len(tables["claims"])
    for row, line in zip(rows, listed, strict=True):
        assert line["variant"] == row["variant"]
        assert line["ratio"] == ("" if row["ratio"] is None else str(row["ratio"]))


def test_markdown_shows_what_the_chart_shows_at_first(source: Source, tables: dict[str, pl.DataFrame]) -> None:
    figure = next(figure for figure in charts_of(source) if figure.id == "forest_steady")
    shown = unfiltered(figure, rows_of(figure, tables["claims"]))
    assert set(shown["env"]) == {ALL}
    text = markdown(figure, shown)
    assert text.count("\n| ") == 1 + len(shown)


def test_nothing_measured_is_said_not_drawn(folder: Path) -> None:
    assert "do not tell their memory" in (folder / "tables" / "memory_device.md").read_text()
    assert not (folder / "figures" / "memory_device.svg").exists()
    assert "one mode only" in (folder / "tables" / "modes_steady.md").read_text()


def test_a_store_without_results_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    with build(path, Shape(("CartPole-v1",), ("small",), ("linen", "nnx"), 12, 1, sync=False)) as full:
        campaign, cells, slots = full.campaign(), list(full.cells().values()), full.slots()
    from benchback.measure.store import create

    with (
        create(tmp_path / "open.sqlite", campaign, cells, slots) as store,
        pytest.raises(InputError, match="no result"),
    ):
        render(store, tmp_path / "out")


@pytest.mark.slow
def test_a_campaign_is_reported_wherever_it_stands(tmp_path: Path) -> None:
    shape = Shape(("CartPole-v1",), ("small",), ("linen", "nnx", "haiku"), 12, 2, sync=False)
    for done in range(1, 8):
        with build(tmp_path / f"{done}.sqlite", shape, done) as store:
            render(store, tmp_path / f"out{done}", images=False)


def test_one_block_gives_ratios_without_intervals(tmp_path: Path) -> None:
    shape = Shape(("CartPole-v1",), ("small",), ("linen", "nnx"), 12, 1, sync=False)
    with build(tmp_path / "one.sqlite", shape) as store:
        source = read(store)
        found = prose.verdict(source, all_claims(source))
        text = found.settings[0].comparisons[0]
        assert "without a verdict: one block gives a ratio without an interval" in text
        assert found.recommendation.startswith("No recommendation")
        render(store, tmp_path / "out", images=False)


@pytest.mark.slow
def test_a_page_of_many_runs_stays_small(tmp_path: Path) -> None:
    shape = Shape(iterations=60, blocks=5)
    with build(tmp_path / "many.sqlite", shape) as store:
        assert len(store.slots()) > 480
        page, *_ = render(store, tmp_path / "out", images=False)
    assert page.stat().st_size < 6e6


def test_places_keep_the_beginning_and_the_end() -> None:
    assert places(10).tolist() == list(range(10))
    found = places(1000)
    assert found[0] == 0
    assert found[-1] == 999
    assert found[:5].tolist() == [0, 1, 2, 3, 4]
    assert len(found) <= 48


def test_all_change_points_are_marked_and_a_restless_cell_says_so(tmp_path: Path) -> None:
    shape = Shape(("CartPole-v1", "Acrobot-v1"), ("small",), ("linen", "equinox"), 120, 2, sync=False)
    with build(tmp_path / "rich.sqlite", shape) as store:
        timeline = timeline_table(read(store))
    calm = timeline.filter((pl.col("env") == "CartPole-v1") & (pl.col("backend") == "linen"))
    # Slower by 1.3 until iteration 8 and by 1.1 until 20, counted from 0; the table counts from 1.
    changes = calm.filter(pl.col("change") != "").select("iteration", "change").rows()
    assert [words for _, words in changes] == ["change point", "steady from here"]
    assert [at for at, _ in changes] == pytest.approx([10, 22], abs=2)
    assert calm["steady_from"].unique().to_list() == [changes[-1][0]]
    restless = timeline.filter((pl.col("env") == "Acrobot-v1") & (pl.col("backend") == "equinox"))
    assert restless["steady_from"].null_count() == len(restless)
    (note,) = restless.filter(pl.col("note") != "")["note"]
    assert note.startswith("no steady state: ")


def test_variants_of_few_cells_wait_until_they_are_asked_for(tmp_path: Path) -> None:
    shape = Shape(("CartPole-v1", "Acrobot-v1"), ("small", "large"), ("linen", "nnx"), 200, 2, modes=True, sync=False)
    with build(tmp_path / "modes.sqlite", shape) as store:
        source = read(store)
        tables = tables_of(source, all_claims(source))
    assert source.main == {"linen/jit/phase", "linen/jit/phase'", "nnx/split/phase"}
    figure = next(figure for figure in charts_of(source) if figure.id == "forest_steady")
    assert set(unfiltered(figure, rows_of(figure, tables["claims"]))["variant"]) == {"nnx/split/phase"}
    steady = tables["claims"].filter((pl.col("figure") == "steady") & (pl.col("env") == ALL) & (pl.col("model") == ALL))
    chunked = steady.filter(pl.col("variant") == "linen/jit/chunk(10)")
    # A call of ten iterations does the same work in other pieces: it is compared.
    assert chunked["ratio"].item() == pytest.approx(1.0, rel=0.05)


def test_timings_never_mix_in_a_chart_that_does_not_name_them(source: Source, tables: dict[str, pl.DataFrame]) -> None:
    for figure in charts_of(source):
        shown = unfiltered(figure, rows_of(figure, tables[figure.data]))
        if "timing" in shown.columns and "timing" not in figure.columns and figure.chart is not None:
            assert shown["timing"].n_unique() <= 1 or figure.data == "noise", figure.id


def test_costs_of_environments_are_timed_or_a_stand_in(store: Store, tmp_path: Path) -> None:
    stand_in = read(store)
    assert list(stand_in.complexity) == ["CartPole-v1", "Asterix-MinAtar"]
    assert stand_in.complexity["Asterix-MinAtar"] > 1
    assert "stand-in" in stand_in.complexity_from
    rows = [{"env": "gymnax/CartPole-v1", "num_envs": 64, "step_s": 9e-6}]
    rows += [
        {"env": f"gymnax/{env}", "num_envs": 4096, "step_s": s} for env, s in zip(SMALL.envs, (2e-6, 6e-5), strict=True)
    ]
    (tmp_path / "times.json").write_text(json.dumps(rows))
    timed = read(store, env_times=read_env_times(tmp_path / "times.json"))
    assert timed.complexity == pytest.approx({"CartPole-v1": 1.0, "Asterix-MinAtar": 30.0})
    assert "benchback envs time" in timed.complexity_from
    (tmp_path / "junk.json").write_text('{"a": 1}')
    for name, words in (("none.json", "not there"), ("junk.json", "does not hold")):
        with pytest.raises(InputError, match=words):
            read_env_times(tmp_path / name)


def test_costs_that_were_kept_with_a_campaign_are_used(tmp_path: Path) -> None:
    shape = Shape(("CartPole-v1", "Asterix-MinAtar"), ("small",), ("linen", "nnx"), 12, 1, sync=False)
    with build(tmp_path / "kept.sqlite", shape) as store:
        for costly in (7e-5, 3e-5):  # the last time counts
            times = {"gymnax/CartPole-v1": 1e-6, "gymnax/Asterix-MinAtar": costly}
            rows = [{"env": env, "num_envs": 4096, "step_s": x, "relative": 1.0} for env, x in times.items()]
            store.add_event("complexity", {"stratum": 0, "rows": rows})
        found = read(store)
    assert found.complexity == pytest.approx({"CartPole-v1": 1.0, "Asterix-MinAtar": 30.0})
    assert "benchback envs time" in found.complexity_from


def test_columns_number_texts_that_repeat() -> None:
    table = pl.DataFrame({"a": ["x", "y", "x", None], "b": [1.23456789, float("inf"), None, 2.0]})
    made = columnar(rounded_table(table))
    assert made == {"a": {"levels": ["x", "y", None], "at": [0, 1, 0, 2]}, "b": [1.23457, None, None, 2.0]}


CODE = '''"""Doc."""
import jax
import jax.numpy as jnp
from flax import nnx  # a comment

# only a comment
def f(x):
    """Doc
    of two lines."""
    return jnp.sum(jax.lax.scan(x)) + jnp.sum(nnx.Module.y) + len(x).real
'''


def test_code_size_counts_lines_and_concepts() -> None:
    assert code_size.code_lines(CODE) == 5
    assert code_size.concepts(CODE) == {"jnp.sum", "jax.lax.scan", "nnx.Module.y"}


def test_code_size_covers_every_implementation() -> None:
    rows = code_size.code_size_rows()
    assert {(row["algorithm"], row["backend"]) for row in rows} == {(a, b) for a in ALGORITHMS for b in BACKENDS}
    assert all(50 < row["lines"] < 250 and row["concepts"] > 3 for row in rows)


def test_compare_finds_a_regression_and_names_it_first(tmp_path: Path, benchback: Callable) -> None:
    shape = Shape(("CartPole-v1",), ("small",), ("linen", "pytorch"), 30, 5, sync=False)
    paths = [tmp_path / "before.sqlite", tmp_path / "after.sqlite"]
    build(paths[0], shape).close()
    build(paths[1], Shape(**{**vars(shape), "speed": 1.2, "seed": 1})).close()
    found = compare.compare(compare.Side(paths[0]), compare.Side(paths[1]))
    first = found.rows.to_dicts()[0]
    assert first["regression"]
    assert first["backend"] == "pytorch"
    steady = found.rows.filter(pl.col("figure") == "steady")
    ratios = dict(zip(steady["backend"], steady["ratio"], strict=True))
    assert ratios["pytorch"] == pytest.approx(1.2, rel=0.03)
    assert ratios["linen"] == pytest.approx(1.0, rel=0.03)
    done = benchback("compare", str(paths[0]), str(paths[1]), "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["regressions"] == found.regressions
    assert benchback("compare", str(paths[1]), str(paths[0])).returncode == 0
    assert benchback("compare", str(paths[0]), str(paths[0])).returncode == 0


def test_compare_takes_two_variants_of_a_store_block_by_block(store: Store) -> None:
    linen, nnx = (f"{store.path}:{name}" for name in ("linen/jit/phase", "nnx/split/phase"))
    found = compare.compare(compare.side(linen), compare.side(nnx))
    steady = found.rows.filter((pl.col("figure") == "steady") & (pl.col("timing") == "async"))
    assert len(steady) == 4
    assert steady["ratio"].to_numpy() == pytest.approx(SLOWER["nnx"], rel=0.02)
    with pytest.raises(InputError, match="no variant linen/jut/phase"):
        compare.compare(compare.side(linen), compare.side(f"{store.path}:linen/jut/phase"))


def test_compare_takes_two_strata_of_a_store(tmp_path: Path, benchback: Callable) -> None:
    shape = Shape(("CartPole-v1",), ("small",), ("linen", "pytorch"), 30, 4, sync=False)
    path = tmp_path / "strata.sqlite"
    with build(path, shape) as store:
        store.add_stratum({"cpu": "another"}, plan.again(study_of(shape), store.slots(), 1, 1))
        fill(store, Shape(**{**vars(shape), "speed": 1.2, "seed": 1}))
    found = compare.compare(compare.side(f"{path}@0"), compare.side(f"{path}@1"))
    steady = found.rows.filter(pl.col("figure") == "steady")
    ratios = dict(zip(steady["backend"], steady["ratio"], strict=True))
    assert ratios == pytest.approx({"linen": 1.0, "pytorch": 1.2}, rel=0.03)
    assert found.changed["cpu"] == (HOSTILE, "another")
    done = benchback("compare", f"{path}@0", f"{path}@1")
    assert done.returncode == 1, done.stderr
    assert "PyTorch, compile, steady: 1.2" in done.stdout


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("{0}", "none.sqlite", "there is no such store; give STORE"),
        ("{0}@7", "{0}", "has no stratum 7; give @0 only"),
        ("{0}@x", "{0}", "there is no such store"),
        ("{0}:linen/jut/phase", "{0}", "has no variant linen/jut/phase; it has 5, e.g. linen/jit/phase"),
    ],
)
def test_a_side_that_cannot_be_compared_names_the_remedy(store: Store, first: str, second: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        compare.compare(compare.side(first.format(store.path)), compare.side(second.format(store.path)))


def test_a_report_is_refused_where_it_cannot_be_made(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with build(other, Shape(("Acrobot-v1",), ("medium",), ("linen", "nnx"), 12, 2, sync=False)) as strange:
        with pytest.raises(InputError, match="no cell in common; compare stores of the same study"):
            render(store, tmp_path / "out", against=strange, images=False)
        with pytest.raises(InputError, match="is not a folder"):
            render(strange, other, images=False)


def test_stores_without_common_cells_are_refused(store: Store, tmp_path: Path) -> None:
    build(tmp_path / "other.sqlite", Shape(("Acrobot-v1",), ("medium",), ("linen", "nnx"), 12, 2, sync=False)).close()
    with pytest.raises(InputError, match="no cell in common"):
        compare.compare(compare.Side(store.path), compare.Side(tmp_path / "other.sqlite"))


def cache(path: Path) -> Path:
    """A results cache of eight runs whose ratios are powers of two."""
    totals = [
        ("linen", "jax.jit", "CartPole-v1", [64, 64], [1.0, 2.0]),
        ("nnx", "nnx.cached_partial", "CartPole-v1", [64, 64], [2.0, 4.0]),
        ("linen", "jax.jit", "Acrobot-v1", [64, 64], [4.0]),
        ("nnx", "nnx.cached_partial", "Acrobot-v1", [64, 64], [4.0]),
        ("linen", "none", "CartPole-v1", [64, 64], [100.0]),
        ("torch", "torch.compile", "CartPole-v1", [1024] * 6, [8.0]),
        ("linen", "jax.jit", "CartPole-v1", [1024] * 6, [2.0]),
    ]
    rows = []
    for framework, compile, env, hidden, values in totals:
        for value in values:
            row = {"name": "run", "config.framework": framework, "config.compile": compile, "config.env_name": env}
            row |= {"config.hidden_sizes": hidden, "config.sync_for_timing": False, "config.notes_user": "linux"}
            row |= {"config.notes_config": "V2 Exp1: async", "summary.duration_total": value}
            rows.append(row | {"summary.duration_iteration_avg_7:": None if framework == "torch" else value / 100})
    rows.append(rows[0] | {"config.notes_config": "warmup", "summary.duration_total": 1e9})
    rows.append(rows[0] | {"config.notes_user": "windows", "summary.duration_total": 3.0})
    pl.DataFrame(rows).write_parquet(path)
    return path


def test_import_gives_the_published_formulas(tmp_path: Path) -> None:
    rows = imported.speedups(imported.read_cache(cache(tmp_path / "cache.parquet")))
    found = {(r["figure"], r["pair"], r["model"]): r for r in rows if r["machine"] == "linux"}
    # CartPole: 2/1, 2/2, 4/1, 4/2; Acrobot: 4/4. Logarithms to base 2: 1, 0, 2, 1, 0.
    small = found["total", "nnx → linen", "small"]
    assert small["geometric_mean"] == pytest.approx(2 ** (4 / 5))
    assert (small["median"], small["pairs"]) == (2.0, 5)
    assert found["total", "torch → linen", "large"]["geometric_mean"] == pytest.approx(4.0)
    assert found["steady iteration", "nnx → linen", "small"]["median"] == pytest.approx(2.0)
    assert ("steady iteration", "torch → linen", "large") not in found


def test_import_compares_machines(tmp_path: Path) -> None:
    (row,) = imported.machines(imported.read_cache(cache(tmp_path / "cache.parquet")))
    # Windows 3 s against 1 s and 2 s, and against the uncompiled run of 100 s nothing: modes are not mixed.
    assert (row["framework"], row["pairs"]) == ("linen", 2)
    assert row["geometric_mean"] == pytest.approx(3 / 2**0.5)


def test_import_on_the_command_line(tmp_path: Path, benchback: Callable) -> None:
    path = cache(tmp_path / "cache.parquet")
    before = path.read_bytes()
    done = benchback("import", str(path), "--format", "benchback-rl", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"] == 10
    assert path.read_bytes() == before
    assert "nnx → linen" in benchback("import", str(path), COLUMNS="200").stdout
    assert benchback("import", str(tmp_path / "none.parquet")).returncode == 2
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    assert "cannot be read" in benchback("import", str(tmp_path / "junk.parquet")).stderr
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    assert "no column config.framework" in benchback("import", str(tmp_path / "other.parquet")).stderr
