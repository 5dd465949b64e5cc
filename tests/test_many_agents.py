"""The report of many agents: what it says is what was put in; numbers of agents never mix."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from synthetic import ADDED_BYTES, COLD, SLOWER, Shape, build, together

from benchback import stats
from benchback.analysis import many
from benchback.analysis.claims import all_claims
from benchback.analysis.groups import by_setting, setting_of
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.wording import even_text, setting_text
from benchback.cli.outcomes import print_outcome
from benchback.measure.store import Store, open_store
from benchback.report import charts_many, prose, prose_many
from benchback.report.answers import answers
from benchback.report.chart import rows_of, specification, unfiltered
from benchback.report.naming import plain_names
from benchback.report.page import choices
from benchback.report.render import charts_of, render, tables_of
from benchback.stats import Together, Verdict, together_break_even

AGENTS = (4, 64)
BACKENDS = ("linen", "purejax", "pytorch")
SHAPE = Shape(("CartPole-v1",), ("small",), BACKENDS, 40, 3, sync=False, agents=AGENTS)
STEADY_S = 0.02 * 2
"""Of Linen with one agent."""


# The break-even as a function of times


def test_one_program_pays_from_where_the_lines_cross() -> None:
    """10 + n against 3 n: equal at 5."""
    together_s = {1: 11.0, 4: 14.0, 64: 74.0}
    assert together_break_even(together_s, 3.0) == Together(5, 64)
    assert together_break_even(together_s, 3.1) == Together(5, 64)
    assert together_break_even(together_s, 2.9) == Together(6, 64)


def test_several_at_once_are_done_in_whole_turns() -> None:
    """10 + n against 3 ceil(n / 2): 12 agents take 22 s and 18 s, 20 both, and 21 31 s and 33 s."""
    together_s = {1: 11.0, 64: 74.0}
    found = together_break_even(together_s, 3.0, at_once=2)
    slower = [n for n in range(1, 65) if 10 + n > 3 * math.ceil(n / 2)]
    assert found == Together(max(slower) + 1, 64)


@pytest.mark.parametrize(
    ("together_s", "alone_s", "agents"),
    [
        ({1: 10.0, 8: 80.0}, 10.0, 1),
        ({1: 10.0, 8: 81.0}, 10.0, None),
        ({2: 30.0, 8: 60.0}, 10.0, 4),
        ({4: 20.0}, 10.0, 4),
        ({1: 20.0, 4: 20.0, 8: 90.0, 16: 100.0}, 10.0, 10),
    ],
)
def test_one_program_may_pay_always_never_or_only_with_many(
    together_s: dict[int, float], alone_s: float, agents: int | None
) -> None:
    """In the last case it is ahead with 4 agents, behind with 8, and stays ahead from 10 on."""
    found = together_break_even(together_s, alone_s)
    if agents == 4 and 2 in together_s:
        assert found.agents == 4, "30 + 5 (n - 2) = 10 n at n = 4"
    assert found == Together(agents, max(together_s))


def test_fewer_agents_than_the_least_do_not_count() -> None:
    assert together_break_even({1: 10.0, 8: 40.0}, 10.0, least=2) == Together(2, 8)
    assert together_break_even({4: 20.0, 8: 40.0}, 10.0, least=2) == Together(4, 8)


def test_break_even_refuses_what_means_nothing() -> None:
    for together_s, alone_s, at_once in (({}, 1.0, 1), ({1: 1.0}, 0.0, 1), ({1: 1.0}, 1.0, 0), ({0: 1.0}, 1.0, 1)):
        with pytest.raises(ValueError, match="no break-even"):
            together_break_even(together_s, alone_s, at_once)


def test_memory_is_per_agent_beyond_the_first() -> None:
    assert stats.per_added_agent(100.0, 130.0, 4) == 10.0
    assert math.isnan(stats.per_added_agent(100.0, 100.0, 1))


def test_break_even_in_words() -> None:
    assert even_text(Together(1, 64)) == "from 1 agent on"
    assert even_text(Together(12, 64)) == "from 12 agents on"
    assert even_text(Together(None, 1024)) == "not up to 1,024 agents"


# A store with many agents


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("many") / "many.sqlite"
    build(path, SHAPE).close()
    with open_store(path, readonly=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(store: Store) -> Source:
    return read(store)


@pytest.fixture(scope="module")
def tables(source: Source) -> dict[str, pl.DataFrame]:
    return tables_of(source, all_claims(source))


@pytest.fixture(scope="module")
def work(source: Source) -> many.Work:
    (found,) = many.works(source)
    return found


def test_numbers_of_agents_are_never_pooled(source: Source) -> None:
    settings = by_setting(source.groups)
    assert [setting.agents for setting in settings] == [1, *AGENTS]
    assert all(
        cell.members == setting.agents for setting, groups in settings.items() for x in groups for cell in x.cells
    )
    assert {setting_of(claim.subject) == setting_of(claim.rival) for claim in all_claims(source)} == {True}
    assert [setting_text(x).endswith(", 64 agents") for x in settings] == [False, False, True]
    assert len({group.title for group in source.groups}) == len(source.groups)


def test_a_filter_chooses_the_number_of_agents(source: Source, tables: dict[str, pl.DataFrame]) -> None:
    assert choices(source)["agents"] == ["1", "4", "64"]
    for name in ("claims", "runs", "overheads", "timeline", "curves", "pairs", "memory"):
        assert set(tables[name]["agents"]) <= {"1", "4", "64"}, name
    found = answers(source, all_claims(source))
    assert {answer.setting.agents for answer in found} == {1, *AGENTS}


def test_figures_of_other_sections_show_one_number_of_agents_at_first(
    source: Source, tables: dict[str, pl.DataFrame]
) -> None:
    for figure in charts_of(source):
        rows = unfiltered(figure, rows_of(figure, tables[figure.data]))
        if figure.section != charts_many.SECTION and "agents" in figure.one and not rows.is_empty():
            assert rows["agents"].n_unique() == 1, figure.id


def test_curves_have_the_times_that_were_put_in(work: many.Work) -> None:
    by_backend = {curve.cell.run["backend"]: curve for curve in work.curves}
    assert {name: list(curve.sizes) for name, curve in by_backend.items()} == {
        "linen": [1, 4, 64],
        "purejax": [1, 4, 64],
        "pytorch": [1],
    }
    for name, curve in by_backend.items():
        for agents, size in curve.sizes.items():
            expected = STEADY_S * SLOWER[name] * together(agents)
            assert size.steady_s == pytest.approx(expected, rel=0.05)
            assert size.each_s == pytest.approx(expected / agents, rel=0.05)
            assert size.steps_per_s == pytest.approx(agents * 32 * 256 / expected, rel=0.05)
            assert size.start_s == pytest.approx(COLD[name] * (2 if agents > 1 else 1), rel=0.1)
            assert size.total_s == pytest.approx((size.start_s or 0.0) + 39 * size.steady_s)


def test_an_agent_in_one_program_is_compared_with_one_alone(work: many.Work) -> None:
    found = {(claim.size.cell.run["backend"], claim.size.agents): claim.overall for claim in work.claims}
    assert set(found) == {(name, agents) for name in ("linen", "purejax") for agents in AGENTS}
    for (_, agents), row in found.items():
        assert row.ratio == pytest.approx(together(agents) / agents, rel=0.03)
        assert row.verdict is Verdict.FASTER


def test_agents_whose_members_were_not_proven_have_no_ratio(source: Source) -> None:
    unproven = {cell.proof: "pass" if cell.members == 1 else "fail: L4 weight" for cell in source.cells.values()}
    (found,) = many.works(replace(source, parity=unproven))
    assert {claim.overall.ratio for claim in found.claims} == {None}
    assert "fail: L4 weight" in " ".join(prose_many.sentences(found))


def test_memory_per_added_agent_is_what_was_put_in(tables: dict[str, pl.DataFrame]) -> None:
    rows = tables["agents"].filter(pl.col("count") > 1)
    assert rows["added_kb"].to_list() == pytest.approx([ADDED_BYTES / 1e3] * len(rows), rel=0.01)
    assert tables["agents"].filter(pl.col("count") == 1)["added_kb"].is_null().all()


def test_reference_lines_repeat_one_agent(work: many.Work, tables: dict[str, pl.DataFrame]) -> None:
    fastest = work.fastest_alone
    assert fastest is not None
    rows = tables["many"].filter(pl.col("count") == 64)
    kinds = {(row["backend"], row["kind"]): row for row in rows.iter_rows(named=True)}
    name = fastest.cell.run["backend"]
    assert kinds[name, many.AFTER]["total_s"] == pytest.approx(64 * (fastest.total_s or 0.0), rel=1e-5)
    assert kinds[name, many.BESIDE]["total_s"] == pytest.approx(32 * (fastest.total_s or 0.0), rel=1e-5)
    assert kinds["pytorch", many.AFTER]["steady_s"] == pytest.approx(64 * STEADY_S * 3, rel=0.05)
    assert ("pytorch", many.TOGETHER) not in kinds
    assert kinds[name, many.BESIDE]["steps_per_s"] == pytest.approx(2 * kinds[name, many.AFTER]["steps_per_s"])


def test_break_even_is_that_of_the_totals(work: many.Work) -> None:
    for claim in work.even:
        curve = next(x for x in work.curves if x.cell.variant == claim.subject.variant)
        alone = next(x for x in work.alone if x.cell.variant == claim.rival.variant).total_s
        assert alone is not None
        own = claim.rival.variant == claim.subject.variant
        assert claim.after == together_break_even(curve.totals, alone, least=2 if own else 1)
        assert claim.after.agents != 1 or not own, "one agent is the same program"
        assert claim.after.agents is not None
    assert len(work.even) == 2 * 3


def test_the_section_is_there_only_with_many_agents(source: Source, tables: dict[str, pl.DataFrame]) -> None:
    figures = charts_many.section(source)
    assert {figure.section for figure in figures} == {charts_many.SECTION}
    for figure in figures:
        rows = unfiltered(figure, rows_of(figure, tables[figure.data]))
        assert set(figure.columns) <= set(rows.columns), figure.id
        assert "agents" not in rows.columns, "a filter of agents would leave a point of a curve"
        assert figure.id == "many_even" or rows["count"].n_unique() > 1
        if figure.chart is not None:
            specification(figure, source.orders, plain_names(source))


def test_page_and_terminal_say_the_same(
    store: Store, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (said,) = prose_many.paragraphs(source)
    assert "An agent costs least in plain JAX with 64 of them in one program" in said
    assert "64 agents of 328 thousand steps each take" in said
    assert "one after another" in said
    page = render(store, tmp_path / "out", images=False)[0].read_text()
    assert "Many agents</h2>" in page
    assert said.replace("'", "&#x27;") in page
    assert page.count('data-filter="agents"') == 1
    print_outcome(store, as_json=False)
    assert " ".join(said.split()) in " ".join(capsys.readouterr().out.split())


def test_settings_that_agree_are_named_together(source: Source) -> None:
    text = prose.verdict(source, all_claims(source)).recommendation
    assert re.search(r" With 4 and 64 agents the choice is the same\.| With (4|64) agents not so: ", text)
