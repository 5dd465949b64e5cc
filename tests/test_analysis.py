"""What follows from a store: one reader, typed claims, and words for every reason."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import SLOWER, Shape, build

from benchback.analysis import wording
from benchback.analysis.claims import all_claims, claims_of
from benchback.analysis.diagnostics import code_size_table, parity_table
from benchback.analysis.export import export
from benchback.analysis.overheads import overheads_table
from benchback.analysis.progress import starts_s
from benchback.analysis.proofs import parity_verdict
from benchback.analysis.reader import accepted_attempts, read, stored_attempts
from benchback.analysis.reasons import Deviates, LedgersDiffer, ParityNotProven
from benchback.analysis.summary import variant_rows
from benchback.measure.metrics import METRICS, CachesNotEmpty, Failed, NotRun, PhasesNotTimed
from benchback.measure.store import Store, open_store
from benchback.measure.verify import disagreements
from benchback.stats import (
    Comparison,
    Gap,
    Missing,
    NoBreakEven,
    NoCommonRound,
    NoFall,
    NotPositive,
    NoVerdict,
    StillRising,
    TooFewPoints,
    TooFewValues,
    Unsteady,
    UnsteadyCause,
    Verdict,
)

SMALL = Shape(("CartPole-v1", "Acrobot-v1"), ("small",), ("linen", "nnx", "haiku"), 20, 3, sync=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("analysis") / "small.sqlite"
    build(path, SMALL, 22).close()  # haiku fails on Acrobot, and the last runs have not been made
    with open_store(path, readonly=True) as opened:
        yield opened


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.02, 1.01, 1.03, "1.02x [1.01, 1.03]"),
        (1.0204, 1.0191, 1.0217, "1.020x [1.019, 1.022]"),
        (2.0, None, None, "2.00x"),
        (2.0, 0.5, 8.0, "2x [?]"),
    ],
)
def test_ratios_have_the_digits_their_interval_deserves(
    ratio: float, low: float | None, high: float | None, text: str
) -> None:
    assert wording.ratio_text(ratio, low, high, widest=10.0) == text


WORDS: dict[Missing, str] = {
    NotRun(): "not run yet",
    Failed("signal", "ended by SIGSEGV"): "signal: ended by SIGSEGV",
    PhasesNotTimed(): "phases are timed in unit phase with sync timing only",
    ParityNotProven("ppo/nnx/split", "fail"): "parity of ppo/nnx/split: fail",
    NoCommonRound(2): "2 common rounds are too few for a ratio",
    CachesNotEmpty(7): "compiled programs were loaded, so that this start is no cold one",
    Deviates("value_loss", 1, 0.25): "did not compute the same: value loss of iteration 2 deviates by 25.0%",
    LedgersDiffer(("dtype", "parameters")): "ledgers differ in dtype, parameters",
    NotPositive(0.0): "0.0 is no positive number",
    TooFewValues(3): "3 values are too few for a slope",
    TooFewPoints(2): "too few points (2)",
    StillRising(16384.0): "still rising at 16,384",
    NoFall(8.0): "none up to 8",
    Unsteady(UnsteadyCause.TOO_SHORT, 4): "no steady state: 4 iterations are too few; at least 6 are needed",
    Unsteady(UnsteadyCause.NOT_POSITIVE, 9): "no steady state: not every duration is a positive number",
    Unsteady(UnsteadyCause.LAST_LEVEL, 90, 9.0): "no steady state: the last level holds for 9 of 90 iterations only",
    Unsteady(UnsteadyCause.DRIFT, 30, 0.0412): "no steady state: drifts by +4.1 % over 30 iterations",
    Unsteady(UnsteadyCause.WANDER, 30, 0.05): "no steady state: wanders by 5.0 %",
}


@pytest.mark.parametrize("reason", WORDS, ids=lambda reason: type(reason).__name__)
def test_every_reason_has_its_words(reason: Missing) -> None:
    assert wording.missing_text(reason) == WORDS[reason]


def test_no_reason_is_without_words() -> None:
    def subclasses(kind: type) -> Iterator[type]:
        for sub in kind.__subclasses__():
            yield sub
            yield from subclasses(sub)

    assert {type(reason) for reason in WORDS} == set(subclasses(Missing))
    assert {reason.cause for reason in WORDS if isinstance(reason, Unsteady)} == set(UnsteadyCause)


def test_a_comparison_without_a_verdict_says_why_in_words() -> None:
    gap = Gap(3, (NotRun(), NotPositive(-1.0)))
    empty = Comparison("a cell", 0, gaps=(gap,), reason=NoVerdict.NO_COMPLETE_BLOCK)
    loaded = Comparison("", 0, gaps=(Gap(1, (CachesNotEmpty(3), CachesNotEmpty(51))),))
    words = {
        empty: "no complete block: block 3: not run yet; -1.0 is no positive number",
        Comparison("", 1, ratio=2.0, reason=NoVerdict.ONE_BLOCK): "one block gives a ratio without an interval",
        Comparison("", 0, left_out=(empty,), reason=NoVerdict.NO_CELL): "no cell has two complete blocks: not run yet; "
        "-1.0 is no positive number",
        Comparison("", 0, left_out=(loaded,), reason=NoVerdict.NO_CELL): "no cell has two complete blocks: "
        + WORDS[CachesNotEmpty(7)],
        Comparison("", 0, reason=NoVerdict.NO_COMMON_CELL): "no cell has two complete blocks of every variant",
        Comparison("", 9, reason=NoVerdict.DIFFERS): "the ratio differs between cells by more than their intervals",
        Comparison("", 0, reason=NoVerdict.NO_RUN): "no run has a result",
        Comparison("", 1, ratio=2.0, reason=NoVerdict.ONE_RUN): "one run gives no interval",
        Comparison("", 5, ratio=2.0, verdict=Verdict.SLOWER): "",
    }
    assert {row: wording.reason_text(row) for row in words} == words
    assert {row.reason for row in words} == {None, *NoVerdict}
    (_, _, no_cell, *_) = words
    assert wording.remarks_text(no_cell).endswith("; 1 left out")
    assert wording.comparison_record(no_cell)["missing"] == [f"a cell: {words[empty]}"]


def test_who_is_never_overtaken_is_named(store: Store) -> None:
    linen, nnx, *_ = read(store).groups[0].cells
    assert wording.no_break_even_text(NoBreakEven.A_AHEAD, linen, nnx).startswith("linen/jit/phase is ahead")
    assert wording.no_break_even_text(NoBreakEven.B_AHEAD, linen, nnx).startswith("nnx/split/phase is ahead")
    assert len({wording.no_break_even_text(reason, linen, nnx) for reason in (None, *NoBreakEven)}) == 5


def test_every_slot_has_metrics_or_the_reason_why_not(store: Store) -> None:
    source = read(store)
    assert [run.slot for run in source.runs] == store.slots()
    kinds = set()
    for run in source.runs:
        assert set(run.outcome.metrics) == set(METRICS)
        steady = run.outcome.metrics["steady"]
        kinds.add(type(steady))
        assert isinstance(run.outcome.metrics["total"], float) == (run.sampled is not None)
    assert kinds == {float, Failed, NotRun, Unsteady}


def test_the_reader_joins_attempts_with_their_slots_and_cells(store: Store) -> None:
    found = list(stored_attempts(store))
    assert [stored.attempt for stored in found] == list(store.attempts())
    assert all(stored.attempt.slot == stored.slot.id and stored.slot.cell == stored.cell.id for stored in found)
    accepted = [stored.slot.id for stored in accepted_attempts(store, 0)]
    assert accepted == [run.slot.id for run in read(store).runs if run.sampled]
    assert not list(accepted_attempts(store, 1))


def test_a_claim_names_its_variants_and_metric(store: Store) -> None:
    source = read(store)
    found = {claim.subject.run["backend"]: claim for claim in claims_of(source.parity, source.groups, "cold_start")}
    nnx = found["nnx"]
    assert (nnx.variant, nnx.reference, nnx.metric) == ("nnx/split/phase", "linen/jit/phase", "cold_start")
    assert (nnx.setting.algorithm, nnx.setting.timing) == ("ppo", "async")
    assert nnx.ratio is not None
    assert nnx.ratio == pytest.approx(8 / 6, rel=0.1)
    twin = next(claim for claim in claims_of(source.parity, source.groups, "total") if claim.subject.twin)
    assert (twin.variant, twin.reference) == (f"{twin.reference}'", twin.rival.variant)


def test_metrics_that_a_timing_does_not_take_are_not_claimed(store: Store) -> None:
    assert {claim.metric for claim in all_claims(read(store))} == {"total", "cold_start", "steady"}


def test_without_parity_no_speed_is_claimed(store: Store) -> None:
    source = read(store)
    proven = {cell.proof: "pass" for cell in source.cells.values() if cell.run["backend"] == "linen"}
    for claim in claims_of(proven, source.groups, "steady"):
        if claim.subject.run["backend"] != "linen":
            assert claim.overall.reason is NoVerdict.NO_CELL
            causes = {cause for row in claim.cells for gap in row.gaps for cause in gap.causes[:1]}
            assert causes == {ParityNotProven(claim.subject.proof, "not measured")}


def test_the_proof_of_a_program_says_nothing_about_another_mode_or_unit(store: Store) -> None:
    cell = next(iter(read(store).cells.values()))
    other = [replace(cell, run={**cell.run, name: "none"}) for name in ("mode", "unit", "dtype", "gradients")]
    assert [parity_verdict(each, {cell.proof: "pass"}) for each in other] == ["not measured"] * 4
    chunk = replace(cell, run={**cell.run, "unit": "chunk", "chunk": 7})
    assert chunk.proof == replace(chunk, run={**chunk.run, "chunk": 9}).proof


def test_claims_of_a_store_whose_backends_were_proven_in_mode_none_stay(store: Store) -> None:
    source = read(store)
    of_backends = {f"ppo/{cell.run['backend']}": "pass" for cell in source.cells.values()}
    claims = claims_of(of_backends, source.groups, "steady")
    assert [claim.overall for claim in claims] == [x.overall for x in claims_of(source.parity, source.groups, "steady")]
    older = replace(source, parity=of_backends)
    assert set(parity_table(older)["verdict"]) == {"pass (mode none)"}
    assert set(parity_table(source)["verdict"]) == {"pass"}


def test_medians_of_a_group_are_those_of_its_runs(store: Store) -> None:
    group = read(store).groups[0]
    rows = {row["backend"]: row for row in variant_rows(group) if not row["variant"].endswith("'")}
    assert rows["linen"]["steps_per_s"] / rows["nnx"]["steps_per_s"] == pytest.approx(SLOWER["nnx"], rel=0.05)
    # The first call is 0.6 of a cold start of 6 s, and steady ones are of milliseconds.
    assert rows["linen"]["compile_s"] == pytest.approx(3.6, rel=0.1)


def test_an_export_and_a_report_count_the_same_runs(store: Store, tmp_path: Path) -> None:
    runs, *_ = export(store, tmp_path, "csv")
    assert len(runs.read_text().splitlines()) == 1 + len(read(store).attempts)


def test_whether_there_were_cached_programs_counts_and_not_how_many() -> None:
    assert not disagreements({"a": {"cached_files_before": 3}, "b": {"cached_files_before": 63}})
    (found,) = disagreements({"a": {"cached_files_before": 0}, "b": {"cached_files_before": 63}})
    assert found.field == "caches_empty"


def test_a_start_that_loaded_its_programs_is_no_start(store: Store) -> None:
    """Of three runs of a cell two load what the first compiled: only the first tells how long a start takes."""
    source = read(store)
    compiled = next(run for run in source.runs if run.sampled and run.cell.run["mode"] != "none")
    assert compiled.sampled is not None
    ledger = {**compiled.sampled.ledger, "cached_files_before": 7}
    loaded = replace(compiled.sampled, marks={**compiled.sampled.marks, "first_call": 0.1}, ledger=ledger)
    runs = (compiled, *(replace(compiled, sampled=loaded) for _ in range(2)))
    start_s = compiled.sampled.marks["first_call"]
    assert starts_s([run.sampled for run in runs if run.sampled]) == [start_s] * 3
    alone, mixed = (replace(source, runs=chosen) for chosen in (runs[:1], runs))
    for table, column in ((overheads_table, "seconds"), (code_size_table, "first_step_s")):
        assert table(mixed)[column].to_list() == table(alone)[column].to_list()
    assert starts_s([loaded]) == [0.1], "where nobody compiled there is nothing else to show"
