"""What is printed is what was measured: from known durations to terminal, JSON, files and prose, direction included."""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest
from known import BLOCKS, ENVS, MODELS, Known, build

from benchback import stats
from benchback.analysis import compare
from benchback.analysis.claim_tables import claims_table
from benchback.analysis.claims import ALL, all_claims, claims_of
from benchback.analysis.evidence import LIMIT, Evidence, evidence_of
from benchback.analysis.export import export
from benchback.analysis.reader import read
from benchback.analysis.reasons import Deviates
from benchback.analysis.source import Source
from benchback.analysis.wording import comparison_columns, ratio_text
from benchback.analysis.wording import printed as printed_as
from benchback.cli.outcomes import print_outcome
from benchback.measure.store import Store, open_store
from benchback.report import prose
from benchback.report.page import rounded_table
from benchback.stats import NoVerdict

LINEN_S, NNX_S = 0.1, 0.2
"""NNX takes exactly twice as long as Linen; PyTorch eight times with small models, and four times with large ones."""


def twice(backend: str, env: str, model: str) -> float:
    return {"linen": LINEN_S, "nnx": NNX_S, "pytorch": LINEN_S * (8 if model == "small" else 4)}[backend]


KNOWN = Known(("linen", "nnx", "pytorch"), twice, cold_s={"linen": 4.0, "nnx": 6.0, "pytorch": 3.0})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("printed") / "known.sqlite"
    build(path, KNOWN).close()
    with open_store(path, readonly=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(store: Store) -> Source:
    return read(store)


@pytest.fixture
def printed(store: Store, capsys: pytest.CaptureFixture) -> str:
    print_outcome(store, as_json=False)
    return capsys.readouterr().out


def line(text: str, start: str, after: str = "") -> list[str]:
    """The words of the first line that starts so, after a heading."""
    text = text.partition(after)[2] if after else text
    return next(x for x in text.splitlines() if x.startswith(start)).removeprefix(start).split()


def test_the_terminal_prints_how_many_times_as_long(printed: str) -> None:
    table = "Times as long as Flax Linen, jit"
    assert line(printed, "Flax NNX, split", table) == [
        *("2.000x", "[2.000,", "2.000]", "slower"),
        *("1.50x", "±0%", "1.66x", "±0%"),
    ]
    # Whole runs: 4 s + 19 x 0.1 s of Linen, 6 s + 19 x 0.2 s of NNX; 3 s + 19 x 0.8 s or 0.4 s of PyTorch.
    assert pytest.approx(1.66, abs=0.005) == (6 + 19 * 0.2) / (4 + 19 * 0.1)
    assert line(printed, "PyTorch, compile", table) == [
        *("4.000x", "to", "8.000x", "slower"),
        *("0.75x", "±0%", "1.80-3.08x"),
    ]


def test_the_terminal_prints_speed_compile_time_and_start(printed: str, source: Source) -> None:
    cell = source.groups[0].cells[0]
    steps = cell.run["num_envs"] * cell.run["num_steps"]
    title = f"ppo gymnax/{ENVS[0]} {MODELS[0]}, async"
    # The first call takes 3 s: compile time is that less a steady call.
    assert line(printed, "Flax Linen, jit", title) == [f"{steps / LINEN_S:,.0f}", "2.9", "4.0", "20.0", "3", "pass"]
    assert line(printed, "Flax NNX, split", title) == [f"{steps / NNX_S:,.0f}", "2.8", "6.0", "20.0", "3", "pass"]


def test_the_terminal_ends_with_what_to_use_in_eighty_columns(printed: str) -> None:
    assert max(map(len, printed.splitlines())) <= 80
    words = " ".join(printed.split())
    sentence = (
        "Use Flax Linen: it is faster than every other; Flax NNX takes 2.000x and PyTorch 4.000x (large) to 8.000x "
    )
    assert f"{sentence}(small) as long. results in" in words
    assert "MDE" not in printed


def test_no_name_is_broken_in_a_table(printed: str) -> None:
    for name in ("Flax Linen, jit", "Flax NNX, split", "PyTorch, compile"):
        assert name in printed


def test_json_has_the_same_numbers(store: Store, capsys: pytest.CaptureFixture) -> None:
    print_outcome(store, as_json=True)
    found = json.loads(capsys.readouterr().out)
    nnx, pytorch = (x for x in found["claims"]["steady"] if not x["variant"].endswith("'"))
    assert (nnx["variant"], nnx["reference"]) == ("nnx/split/phase", "linen/jit/phase")
    assert nnx["overall"]["ratio"] == pytest.approx(2.0)
    assert (nnx["verdict"], nnx["along"]) == ("slower", None)
    assert pytorch["overall"]["ratio"] is None
    assert {x["value"]: x["ratio"] for x in pytorch["along"]["points"]} == pytest.approx({"small": 8.0, "large": 4.0})
    (summary,) = found["summaries"]
    assert summary["best"] == ["linen/jit/phase"]
    rows = {row["variant"]: row for row in found["rows"] if row["group"].endswith(f"{ENVS[0]} small, async")}
    assert rows["linen/jit/phase"]["steps_per_s"] / rows["nnx/split/phase"]["steps_per_s"] == pytest.approx(2.0)
    assert rows["nnx/split/phase"]["cold_start_s"] == pytest.approx(6.0)


def test_tables_and_prose_are_made_of_the_same_claims(source: Source) -> None:
    claims = all_claims(source)
    row = next(
        x
        for x in claims_table(claims).to_dicts()
        if (x["variant"], x["figure"], x["env"], x["model"]) == ("nnx/split/phase", "steady", ALL, ALL)
    )
    assert (row["ratio"], row["text"], row["verdict"]) == (pytest.approx(2.0), "2.000x [2.000, 2.000] slower", "slower")
    (said,) = prose.verdict(source, claims).settings
    assert "Flax NNX, split takes 2.000x [2.000, 2.000] as long as Flax Linen, jit per iteration" in said.comparisons[0]
    assert "PyTorch, compile takes 4.000x (large) to 8.000x (small) as long as Flax Linen, jit" in said.comparisons[1]


def test_a_number_is_rounded_once_wherever_it_is_printed() -> None:
    ratio = 1.0005004  # the page's data, with six digits, have 1.0005, of which three decimals are 1.000
    row = stats.compare("a : b", [ratio] * 3, [1.0] * 3)
    assert ratio_text(ratio, row.low, row.high) == "1.001x [1.001, 1.001]"
    shown = rounded_table(pl.DataFrame([comparison_columns(row)])).to_dicts()[0]
    assert f"{shown['ratio']:.3f}" == "1.000", "rounded twice"
    assert (shown["least"], shown["most"], shown["span"]) == ("1.001", "1.001", "[1.001, 1.001]")
    assert printed_as(row, inverse=True)["inverse_least"] == f"{1 / ratio:.3f}"
    matrix = files("benchback.report") / "assets" / "matrix.js"
    assert "toFixed" not in matrix.read_text(), "the page prints what it is given"


def test_what_was_measured_once_is_printed_as_such(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    single = replace(KNOWN, envs=ENVS[:1], models=["small"], blocks=1)
    with build(tmp_path / "once.sqlite", single) as store:
        print_outcome(store, as_json=False)
    words = line(capsys.readouterr().out, "Flax NNX, split", "Times as long as Flax Linen, jit")
    assert words == ["2.00x", "no", "verdict", "1.50x", "once", "1.66x", "once"]


def test_prose_obeys_the_choice_of_a_model(source: Source) -> None:
    found = prose.verdicts(source, all_claims(source))
    assert set(found) == {(env, model) for env in (ALL, *ENVS) for model in (ALL, *MODELS)}
    for model, ratio in {"small": "8.000x", "large": "4.000x"}.items():
        assert f"PyTorch {ratio} as long" in found[ALL, model].recommendation
        assert f"PyTorch {ratio} as long" in found[ENVS[0], model].recommendation


def test_the_export_gives_the_same_ratio(store: Store, tmp_path: Path) -> None:
    runs, samples, _ = export(store, tmp_path, "csv")
    with runs.open(newline="") as file:
        variant = {row["slot"]: row["variant"] for row in csv.DictReader(file)}
    seconds: dict[str, list[float]] = {}
    with samples.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["name"] == "total_s" and row["call"] != "0":
                seconds.setdefault(variant[row["slot"]], []).append(float(row["value"]))
    assert max(seconds["nnx/split/phase"]) / max(seconds["linen/jit/phase"]) == pytest.approx(2.0)


def test_compare_prints_after_over_before(store: Store, benchback: Callable) -> None:
    before, after = (f"{store.path}:{name}" for name in ("linen/jit/phase", "nnx/split/phase"))
    for first, second, ratio, seconds in ((before, after, 2.0, (0.1, 0.2)), (after, before, 0.5, (0.2, 0.1))):
        done = benchback("compare", first, second, "--json", COLUMNS="200")
        rows = [row for row in json.loads(done.stdout)["rows"] if row["figure"] == "steady"]
        assert all((row["before_s"], row["after_s"]) == pytest.approx(seconds) for row in rows)
        assert [row["ratio"] for row in rows] == pytest.approx([ratio] * len(ENVS) * len(MODELS))
        assert done.returncode == (1 if ratio > 1 else 0)


def test_compare_of_two_stores_prints_after_over_before(tmp_path: Path, benchback: Callable) -> None:
    paths = [tmp_path / "before.sqlite", tmp_path / "after.sqlite"]
    for path, factor in zip(paths, (1.0, 2.0), strict=True):

        def steady_s(backend: str, env: str, model: str, factor: float = factor) -> float:
            return factor * twice(backend, env, model)

        build(path, Known(("linen", "nnx"), steady_s, envs=ENVS[:1], models=("small",))).close()
    found = compare.compare(compare.Side(paths[0]), compare.Side(paths[1]))
    rows = [row for row in found.rows.to_dicts() if row["figure"] == "steady"]
    assert {row["variant"]: (row["before_s"], row["after_s"], row["ratio"]) for row in rows} == {
        "linen/jit/phase": pytest.approx((0.1, 0.2, 2.0)),
        "nnx/split/phase": pytest.approx((0.2, 0.4, 2.0)),
    }
    shown = benchback("compare", *map(str, paths), COLUMNS="200").stdout
    words = next(x for x in map(str.split, shown.splitlines()) if x[:2] == ["Flax", "NNX,"] and "steady" in x)
    assert words[-6:] == ["0.2", "0.4", "2.000x", "[2.000,", "2.000]", "slower"]
    assert "Flax NNX, split, steady: 2.000x as long as before (1 cell)" in shown


def evidence(
    path: Path, losses: dict[str, list[float]], ledger: dict[str, dict] | None = None
) -> tuple[Source, Evidence]:
    known = Known(tuple(losses), twice, losses=losses, models=("small",), ledger=ledger or {})
    with build(path / "evidence.sqlite", known) as store:
        found = read(store)
    return found, evidence_of(found.groups)


def test_runs_that_computed_the_same_say_so(tmp_path: Path) -> None:
    source, found = evidence(tmp_path, {"linen": [0.5, 0.4], "nnx": [0.5, 0.4 * (1 + 3e-6)], "pytorch": [9.0, 9.0]})
    assert (found.metric, found.iteration, found.deviating) == ("value_loss", 1, 0)
    assert found.largest == pytest.approx(3e-6, rel=1e-3)
    # NNX in each environment, the A/A copy in one; PyTorch draws other numbers from its keys.
    twins = sum(cell.twin for cell in source.cells.values())
    assert found.pairs == (len(ENVS) + twins) * BLOCKS
    assert found.uncompared == len(ENVS) * BLOCKS
    (said,) = prose.verdict(source, all_claims(source)).settings
    pairs = f"{found.pairs} pairs"
    assert said.evidence == (
        f"These very runs computed the same: largest deviation 3e-06 (value loss, iteration 2, {pairs})."
    )


def test_a_run_that_deviates_loses_its_claim(tmp_path: Path) -> None:
    source, found = evidence(tmp_path, {"linen": [0.5, 0.4], "nnx": [0.5, 0.4 * (1 + 2 * LIMIT)]})
    assert found.deviating == len(ENVS) * BLOCKS
    (claim,) = (x for x in claims_of(source.parity, source.groups, "steady") if not x.subject.twin)
    assert claim.overall.reason is NoVerdict.NO_CELL
    causes = {type(cause) for row in claim.cells for gap in row.gaps for cause in gap.causes}
    assert causes == {Deviates}


@pytest.mark.parametrize("weights", [None, "others"])
def test_runs_from_other_or_unknown_weights_are_no_evidence(tmp_path: Path, weights: str | None) -> None:
    losses = {"linen": [0.5, 0.4], "nnx": [5.0, 4.0]}
    _, found = evidence(tmp_path, losses, ledger={"nnx": {"weights": weights}})
    twins = BLOCKS
    assert (found.pairs, found.uncompared) == (twins, len(ENVS) * BLOCKS)
