"""`advise`: predictions from known durations, ranks, ties and crossings; what is printed; the budget."""

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest
from rich.console import Console

from benchback.analysis.advice import (
    Answer,
    NoSize,
    SizeCrossing,
    Skipped,
    rank,
    size_crossing,
    steps_crossing,
    steps_crossings,
)
from benchback.analysis.advice_wording import record_of, remarks, seconds_text, sentence, table_rows
from benchback.analysis.prediction import Forecast, Measured, Quantity, forecasts, pooled, timing_of
from benchback.cli.advising import AdviseFlags, answer_table, question_of
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.budget import seconds_of
from benchback.measure.candidates import Question, candidates, cell_of, resized, with_hidden
from benchback.measure.cost import iteration_flops
from benchback.measure.process import Ended
from benchback.measure.record import Cell, Record
from benchback.measure.trials import Outcome, Trial, trials
from benchback.measure.wire import parse_record
from benchback.report.advice import chart_rows, page
from benchback.tools.advise import Hooks, advise

FIELDS = {"algorithm": "ppo", "env": "gymnax/CartPole-v1", "num_envs": 4, "num_steps": 25, "num_minibatches": 2}
QUESTION = Question(FIELDS, steps=100_000, seeds=4)
"""1000 iterations of 100 steps."""


def relay_record(
    first_call_s: float,
    steady_s: float,
    *,
    warm: Sequence[float] = (0.5, 0.25),
    rounds: int = 12,
    noise: Callable[[int], float] = lambda number: 1.0,
    per_call: int = 1,
    cached: int = 0,
) -> Record:
    """A relay's record: a warm-up, then turns of three calls whose first is slow."""
    totals: list[float | None] = [first_call_s / 2, *warm]
    places: list[float | None] = [0.0] * len(totals)
    for number in range(1, rounds + 1):
        call_s = per_call * steady_s * noise(number)
        totals += [3 * call_s, call_s, call_s]
        places += [float(number)] * 3
    ledger = {"iterations_per_call": per_call, "cached_files_before": cached}
    samples = {"total_s": totals, "round": places, "position": places}
    return Record(
        samples, {"first_call": first_call_s, "finished": first_call_s + 1.0}, ledger, {"peak_rss_bytes": 5e8}
    )


def measured(cell: Cell, *records: Record) -> Measured:
    timings = [timing_of(record) for record in records]
    return Measured(cell, {i: timing for i, timing in enumerate(timings) if timing is not None})


def cell(backend: str, unit: str = "phase", question: Question = QUESTION) -> Cell:
    return cell_of(question, backend, unit)


def test_the_time_of_a_project_is_recomputed_from_known_durations() -> None:
    forecast = forecasts([measured(cell("linen"), relay_record(10.0, 0.02))], seeds=4)[0]
    # 10 s to the end of the first iteration, 0.75 s for two more, then 997 of 20 ms.
    assert forecast.training(1000).value == pytest.approx(10.0 + 0.75 + 997 * 0.02, rel=1e-12)
    assert forecast.total(1000, 4).value == pytest.approx(4 * (10.0 + 0.75 + 997 * 0.02), rel=1e-12)
    assert forecast.start_s == pytest.approx(10.0 - 0.02, rel=1e-12)
    assert forecast.peak_bytes == 5e8


def test_a_slow_start_is_not_a_slow_iteration() -> None:
    """With start and steady time swapped, the slow starter would be the slow runner."""
    slow_start = measured(cell("linen"), relay_record(60.0, 0.01))
    slow_steps = measured(cell("pytorch"), relay_record(2.0, 0.10))
    short, long = (replace(QUESTION, steps=steps, seeds=1) for steps in (10_000, 1_000_000))
    assert [x.forecast.cell.run["backend"] for x in rank([slow_start, slow_steps], short)] == ["pytorch", "linen"]
    assert [x.forecast.cell.run["backend"] for x in rank([slow_start, slow_steps], long)] == ["linen", "pytorch"]
    first = rank([slow_start, slow_steps], long)[0].forecast
    assert (first.first_call.value, first.steady.value) == pytest.approx((60.0, 0.01))


def test_a_training_within_the_warm_up_takes_what_the_warm_up_took() -> None:
    forecast = forecasts([measured(cell("linen"), relay_record(10.0, 0.02))], seeds=1)[0]
    assert [forecast.training(n).value for n in (1, 2, 3, 4)] == pytest.approx([10.0, 10.5, 10.75, 10.77])


def test_a_chunk_takes_whole_calls() -> None:
    record = relay_record(12.0, 0.002, warm=(0.02, 0.02), per_call=10)
    forecast = forecasts([measured(cell("linen", "chunk"), record)], seeds=1)[0]
    assert forecast.warm_iterations == 30
    assert forecast.training(1000).value == pytest.approx(12.04 + 970 * 0.002)
    assert forecast.training(991).value == forecast.training(1000).value
    assert forecast.start_s == pytest.approx(12.0 - 0.02)


def test_the_interval_adds_start_and_steady_errors_of_all_seeds() -> None:
    forecast = forecasts([measured(cell("linen"), relay_record(10.0, 0.02))], seeds=4)[0]
    start, steady = 10.0 * 0.10 * math.sqrt(1 + 1 / 4), 997 * 0.02 * 0.01 * math.sqrt(1 + 1 / 4)
    assert forecast.total(1000, 4).error == pytest.approx(4 * math.hypot(start, steady))


def test_more_relays_narrow_the_interval_and_their_spread_widens_it() -> None:
    one, three = (pooled([[0.0] * 9] * count, 0.01, 1000).error for count in (1, 3))
    assert three < 0.6 * one
    assert pooled([[-0.1] * 9, [0.0] * 9, [0.1] * 9], 0.01, 1000).error > 5 * three


def busy(number: int) -> float:
    return 1.0 + 2.0 * (number % 3 == 0)


def test_noise_that_all_share_cancels_in_differences() -> None:
    """Times jump threefold between rounds, and 5 % are still told apart."""
    a, b = (measured(cell(x), relay_record(5.0, s, noise=busy, rounds=24)) for x, s in (("linen", 1.0), ("nnx", 1.05)))
    ranked = rank([a, b], replace(QUESTION, seeds=100))
    assert [(x.place, x.forecast.cell.run["backend"]) for x in ranked] == [(1, "linen"), (2, "nnx")]
    assert ranked[1].forecast.steady.value / ranked[0].forecast.steady.value == pytest.approx(1.05)


def test_what_disturbs_now_and_then_is_part_of_the_whole_time() -> None:
    """Both counted calls of three turns of twelve take ten times as long: on average a call takes 39/12."""

    def seldom(number: int) -> float:
        return 10.0 if number in (3, 7, 11) else 1.0

    found = [measured(cell(x), relay_record(5.0, s, noise=seldom)) for x, s in (("linen", 0.02), ("nnx", 0.03))]
    steady = [forecast.steady.value for forecast in forecasts(found, 1)]
    assert steady == pytest.approx([0.02 * 39 / 12, 0.03 * 39 / 12])


def test_candidates_whose_difference_may_be_zero_are_tied() -> None:
    rows = [("linen", 10.0, 0.0200), ("nnx", 10.0, 0.0201), ("pytorch", 10.0, 0.04)]
    ranked = rank([measured(cell(x), relay_record(start, steady)) for x, start, steady in rows], QUESTION)
    assert [(x.forecast.cell.run["backend"], x.place) for x in ranked] == [("linen", 1), ("nnx", 1), ("pytorch", 3)]
    assert ranked[1].slower.low < 0 < ranked[1].slower.value
    assert ranked[2].slower.low > 0


def line(backend: str, first_call_s: float, steady_s: float, error: float = 0.0) -> Forecast:
    start, steady = Quantity(first_call_s, error), Quantity(steady_s, error * steady_s)
    return Forecast(cell(backend), start, (), steady, 1, 5e8, None, 1, 12)


def test_break_even_is_where_the_lines_cross() -> None:
    """10 + 0.02 (n - 1) = 4 + 0.05 (n - 1) at n = 201."""
    first, other = line("linen", 10.0, 0.02), line("pytorch", 4.0, 0.05)
    crossing = steps_crossing(first, other, 100)
    assert crossing.steps is not None
    assert crossing.steps == pytest.approx(20_100)
    assert (crossing.other_ahead, crossing.certain) == ("below", True)
    before, after = (f.training(round(crossing.steps / 100)).value for f in (first, other))
    assert before == pytest.approx(after)
    assert other.training(100).value < first.training(100).value


def test_another_candidate_can_win_beyond_the_steps_asked_about() -> None:
    crossing = steps_crossing(line("pytorch", 4.0, 0.05), line("linen", 10.0, 0.02), 100)
    assert (crossing.steps, crossing.other_ahead) == (pytest.approx(20_100), "above")


@pytest.mark.parametrize("other", [(12.0, 0.03), (10.0, 0.02), (11.0, 0.02)])
def test_one_that_starts_later_and_runs_slower_never_wins(other: tuple[float, float]) -> None:
    crossing = steps_crossing(line("linen", 10.0, 0.02), line("nnx", *other), 100)
    assert (crossing.steps, crossing.other_ahead) == (None, "never")


def test_a_break_even_of_uncertain_lines_says_so() -> None:
    assert not steps_crossing(line("linen", 10.0, 0.02, 9.0), line("pytorch", 4.0, 0.05, 9.0), 100).certain


def sized(backend: str, overhead_s: float, flops_per_s: float, first_call_s: float) -> tuple[Measured, tuple]:
    here = cell(backend)
    other = resized(here)
    steady, wider = (overhead_s + iteration_flops(x) / flops_per_s for x in (here, other))
    return measured(here, relay_record(first_call_s, steady, warm=())), (other, wider)


def test_the_size_at_which_the_choice_changes_is_that_of_equal_totals() -> None:
    question = replace(QUESTION, seeds=1)
    rates = {"linen": (0.001, 1e11, 10.0), "pytorch": (0.011, 2e11, 10.0)}
    made = {backend: sized(backend, *values) for backend, values in rates.items()}
    ranked = rank([x for x, _ in made.values()], question)
    found = size_crossing(ranked, {x.cell.id: other for x, other in made.values()}, question)
    assert isinstance(found, SizeCrossing)
    assert (found.first.run["backend"], found.other.run["backend"], found.ahead) == ("linen", "pytorch", "above")
    # 10 ms more overhead are made up for at half the time per operation; the first call is in the start of both.
    wanted = 0.010 * 2e11
    assert found.width is not None
    narrow, wide = (iteration_flops(with_hidden(cell("linen"), [w] * 2)) for w in (found.width - 1, found.width))
    assert narrow < wanted * 1.01
    assert wide > wanted * 0.99


def test_a_size_that_no_framework_needs_is_not_invented() -> None:
    rates = {"linen": (0.001, 2e11, 10.0), "pytorch": (0.011, 1e11, 10.0)}
    made = {backend: sized(backend, *values) for backend, values in rates.items()}
    ranked = rank([x for x, _ in made.values()], QUESTION)
    sizes = {x.cell.id: other for x, other in made.values()}
    found = size_crossing(ranked, sizes, QUESTION)
    assert isinstance(found, SizeCrossing)
    assert (found.width, found.ahead) == (None, "never")
    assert size_crossing(ranked, {}, QUESTION) is NoSize.NOT_MEASURED
    assert size_crossing(ranked[:1], sizes, QUESTION) is NoSize.ONE_FAMILY


def example() -> Answer:
    rows = [("linen", 10.0, 0.02), ("nnx", 10.1, 0.0201), ("pytorch", 3.0, 0.05)]
    ranked = rank([measured(cell(x), relay_record(start, steady)) for x, start, steady in rows], QUESTION)
    left_out = {"equinox": "equinox is not installed", "linen/jit/chunk(10)": Skipped.NO_TIME}
    return Answer(QUESTION, ranked, steps_crossings(ranked, QUESTION), NoSize.NOT_MEASURED, left_out, 2, 61.0)


def test_the_table_fits_and_its_order_is_that_of_the_times() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(answer_table(example()))
    shown = console.export_text().splitlines()
    rows = [row for row in shown if "GB" in row]
    assert all(len(row.rstrip()) <= 80 for row in shown)
    assert [row.split(",")[0].strip() for row in rows] == ["Flax Linen", "Flax NNX", "PyTorch"]
    assert [row.split()[-1] for row in rows] == ["shortest", "tied", "1.75x"]


def test_the_longest_names_fit_as_well() -> None:
    question = Question({"algorithm": "dqn"}, steps=10**9, seeds=10_000)
    units = candidates(question).all
    assert len(units) == 6 + 5 + 5
    records = [relay_record(800.0 + i, 0.9, warm=(3.0,)) for i in range(len(units))]
    found = [measured(unit, record) for unit, record in zip(units, records, strict=True)]
    ranked = rank(found, question)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(answer_table(Answer(question, ranked, (), NoSize.NOT_MEASURED, {}, 1, 60.0)))
    rows = [row for row in console.export_text().splitlines() if "GB" in row]
    assert len(rows) == len(units)
    assert all(len(row.rstrip()) <= 80 for row in rows)


def test_json_says_what_the_table_says() -> None:
    answer = example()
    record = json.loads(json.dumps(record_of(answer)))
    assert record["sentence"] == sentence(answer)
    for row, shown in zip(record["candidates"], table_rows(answer), strict=True):
        total = row["total_s"]
        half = round(100 * (total["high"] - total["value"]) / total["value"])
        assert shown == (
            row["name"],
            seconds_text(row["start_s"]),
            seconds_text(row["million_steps_s"]),
            f"{seconds_text(total['value'])} +-{half}%",
            f"{row['peak_bytes'] / 1e9:.2f} GB",
            row["verdict"],
        )
    linen, _, torch = record["candidates"]
    assert linen["million_steps_s"] == pytest.approx(1e6 / 100 * 0.02)
    assert torch["ratio"] == pytest.approx(torch["total_s"]["value"] / linen["total_s"]["value"])
    assert torch["ratio"] > 1.5


def test_the_sentence_names_the_shortest_and_those_tied_with_it() -> None:
    said = sentence(example())
    assert said.startswith("Use Flax Linen, jit or, as fast as can be told, Flax NNX, split: about 2.0 min")
    assert "PyTorch" not in said


def test_what_would_change_the_answer_has_the_direction_of_the_times() -> None:
    answer = example()
    said = "\n".join(remarks(answer))
    crossing = next(x for x in answer.crossings if x.other.run["backend"] == "pytorch")
    assert crossing.steps is not None
    assert crossing.steps < QUESTION.steps
    assert "below about 23.6 thousand steps PyTorch, compile is faster than Flax Linen, jit" in said
    assert "Left out: equinox: equinox is not installed." in said
    assert "no time for a second size" in said
    assert "benchback parity" in said


def test_the_page_has_the_table_the_chart_and_nothing_from_elsewhere() -> None:
    answer = example()
    made = page(replace(answer, left_out={"x": "</script><b>"}))
    assert all(text in made for row in table_rows(answer) for text in row[:4])
    assert "<svg" in made
    assert "</script><b>" not in made
    assert "<script" not in made
    lines = [row for row in chart_rows(answer) if row["kind"] == "line"]
    asked = min(lines, key=lambda row: (row["backend"] != "linen", abs(row["steps"] - QUESTION.steps)))
    forecast = answer.best.forecast.total(round(asked["steps"] / 100), 4)
    assert (asked["total_s"], asked["high_s"]) == (forecast.value, forecast.high)


@dataclass
class Machine:
    """Relays that take no time: the clock goes on as if they did."""

    starts: Mapping[str, float]
    steady: Mapping[str, float]
    broken: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    stop_after: float = math.inf
    added: float = 1.0
    """What another agent in one program costs, relative to the first."""

    def run(self, trial: Trial, tick: Callable[[], bool], show: Callable[[str], None]) -> Outcome:
        self.trials.append(trial)
        began, ended = self.now, {}
        for cell in trial.cells:
            backend = cell.run["backend"]
            if len(ended) >= 2 and self.now - began > trial.start_by_s:
                break
            show(f"{cell.variant} starts")
            if backend in self.broken:
                self.now += 1.0
                ended[cell.id] = Ended("memory", self.broken[backend])
                continue
            cached = int(cell.id in self.seen)
            self.seen.add(cell.id)
            start_s = 3.0 if cached else self.starts[backend]
            self.now += start_s
            per_call = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
            steady_s = self.steady[backend] * (1 + self.added * (cell.members - 1))
            found = relay_record(start_s, steady_s, warm=(), per_call=per_call, cached=cached)
            ended[cell.id] = Ended("ok", messages=[{"kind": "record", "record": asdict(found)}])
            if self.now >= self.stop_after:
                return Outcome(ended, interrupted=True)
        self.now += trial.rounds_s
        return Outcome(ended)

    @property
    def hooks(self) -> Hooks:
        return Hooks(self.run, clock=lambda: self.now, sample=lambda: {"time_s": self.now, "own_s": 0.0})


def usual(**changes: Any) -> Machine:
    starts = {name: 12.0 + i for i, name in enumerate(QUESTION.backends)}
    steady = {name: 0.02 * (1 + 0.3 * i) for i, name in enumerate(QUESTION.backends)}
    return Machine(starts, steady, **changes)


@pytest.mark.parametrize("budget_s", [90.0, 150.0, 300.0, 900.0])
def test_the_budget_is_kept_and_used(budget_s: float) -> None:
    found = usual()
    answer = advise(QUESTION, budget_s, found.hooks)
    assert answer.spent_s == found.now
    assert 0.6 * budget_s <= answer.spent_s <= 1.15 * budget_s
    assert answer.best.forecast.cell.run["backend"] == "linen"


def test_a_longer_budget_adds_chunks_sizes_and_repeats() -> None:
    found = usual()
    answer = advise(QUESTION, 600.0, found.hooks)
    units = {row.forecast.cell.run["unit"] for row in answer.ranked}
    assert units == {"phase", "iteration", "chunk"}
    assert isinstance(answer.size, SizeCrossing | NoSize)
    assert answer.size is not NoSize.NOT_MEASURED
    assert answer.best.forecast.relays > 2
    assert answer.best.loaded_s is not None
    assert answer.best.forecast.first_call.value == pytest.approx(12.0), "only cold starts count"
    assert found.trials[0].cells == list(candidates(QUESTION).phases)


def test_a_candidate_that_fails_is_left_out_with_its_reason() -> None:
    answer = advise(QUESTION, 300.0, usual(broken={"pytorch": "killed by the system"}).hooks)
    assert "pytorch" not in {row.forecast.cell.run["backend"] for row in answer.ranked}
    assert answer.left_out["pytorch/compile/phase"] == "memory: killed by the system"
    assert "Left out: pytorch/compile/phase: memory: killed by the system." in remarks(answer)
    assert answer.size is NoSize.ONE_FAMILY


def test_when_all_fail_the_error_says_why() -> None:
    broken = dict.fromkeys(QUESTION.backends, "no memory")
    with pytest.raises(InputError, match="linen/jit/phase: memory: no memory"):
        advise(QUESTION, 300.0, usual(broken=broken).hooks)


def test_an_interrupt_keeps_what_is_known() -> None:
    answer = advise(QUESTION, 900.0, usual(stop_after=130.0).hooks)
    assert answer.interrupted
    assert len(answer.ranked) >= 6
    assert "interrupted" in " ".join(remarks(answer))


def test_an_interrupt_before_anything_is_known_is_an_interrupt() -> None:
    hooks = replace(usual().hooks, asked_to_stop=lambda: True)
    with pytest.raises(KeyboardInterrupt):
        advise(QUESTION, 900.0, hooks)


def test_long_iterations_are_not_called_in_chunks() -> None:
    found = replace(usual(), steady=dict.fromkeys(QUESTION.backends, 2.0))
    answer = advise(QUESTION, 900.0, found.hooks)
    assert answer.left_out[f"linen/jit/chunk({QUESTION.chunk})"] is Skipped.LONG_ITERATIONS


def test_too_short_a_budget_is_refused_with_the_least() -> None:
    with pytest.raises(InputError, match=r"budget=20s is too short.*use --budget \dm, or name fewer --backends"):
        advise(QUESTION, 20.0, usual().hooks)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"env": "gymnax/CartPol-v1"}, "did you mean gymnax/CartPole-v1"),
        ({"steps": 100.0}, "less than one iteration of 8192 steps"),
        ({"seeds": 0}, "seeds=0"),
        ({"backends": ("jaxx",)}, "backend=jaxx is unknown"),
        ({"algorithm": "ppoo"}, "algorithm=ppoo is unknown; did you mean ppo"),
        ({"algorithm": "td3", "env": "gymnax/CartPole-v1"}, "takes discrete actions"),
        ({"hidden": (0,)}, "hidden_sizes"),
        ({"threads": 10_000}, "threads=10000"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        question_of(AdviseFlags(**flags))


def test_durations_are_read_with_their_units() -> None:
    assert [seconds_of(text) for text in ("90s", "3m", "1h", "1.5m")] == [90, 180, 3600, 90]
    for text in ("", "3 m", "0s", "m", "-1m", "3d"):
        with pytest.raises(InputError, match="must be a time"):
            seconds_of(text)


def test_a_question_has_one_group_of_candidates_each_backend_in_its_best_mode() -> None:
    found = candidates(QUESTION)
    assert len({x.group for x in (*found.phases, *found.chunks)}) == 1
    assert {x.run["backend"] for x in found.phases} == set(QUESTION.backends)
    assert {x.run["backend"] for x in found.chunks} == set(QUESTION.backends) - {"pytorch"}
    assert all(x.run["num_iterations"] >= 1000 for x in found.phases)


@pytest.mark.parametrize(("steps", "chunk"), [(100, 1), (500, 5), (5_000, 10), (100_000, 20), (10_000_000, 20)])
def test_a_chunk_is_a_part_of_the_training(steps: int, chunk: int) -> None:
    assert replace(QUESTION, steps=steps).chunk == chunk


def test_backends_that_cannot_run_the_environment_are_left_out() -> None:
    found = candidates(Question({**FIELDS, "env": "torch/CartPole-v1"}, steps=100_000))
    assert [x.run["backend"] for x in found.phases] == ["pytorch"]
    assert "native to PyTorch" in found.left_out["linen"]


# Many agents in one program


def together(question: Question = QUESTION, backend: str = "linen") -> Cell:
    return next(x for x in candidates(question).populations if x.run["backend"] == backend)


@pytest.mark.parametrize(("seeds", "agents"), [(2, 2), (10, 10), (64, 64), (65, 33), (100, 50), (1000, 63)])
def test_all_seeds_are_one_program_or_equal_ones(seeds: int, agents: int) -> None:
    question = replace(QUESTION, seeds=seeds)
    found = candidates(question).populations
    assert {x.members for x in found} == {agents}
    assert {x.run["backend"] for x in found} == set(QUESTION.backends) - {"pytorch"}
    assert {x.unit for x in found} == {"iteration"}


def test_one_seed_a_python_environment_and_long_iterations_do_not_ask_for_many_agents() -> None:
    assert candidates(replace(QUESTION, seeds=1)).populations == ()
    assert Question({**FIELDS, "env": "gymnasium/CartPole-v1"}, 100_000, seeds=8, backends=("linen",)).agents == 1
    long = Question({"algorithm": "ppo", "hidden_sizes": [1024, 1024]}, steps=10**7, seeds=64)
    assert 1 < long.agents < 8, "an iteration of all of them would be too long to measure"


def test_many_agents_take_one_start_and_the_iterations_of_all() -> None:
    ten = replace(QUESTION, seeds=10)
    (forecast,) = forecasts([measured(together(ten), relay_record(20.0, 0.1, warm=()))], seeds=10)
    assert forecast.total(1000, 10).value == pytest.approx(20.0 + 999 * 0.1)
    assert forecast.total(1000, 25).value == pytest.approx(3 * (20.0 + 999 * 0.1)), "three programs of ten"


def many_and_few() -> Answer:
    """Four agents together cost as much as two alone."""
    found = [measured(cell("linen"), relay_record(10.0, 0.02)), measured(together(), relay_record(15.0, 0.04))]
    ranked = rank(found, QUESTION)
    return Answer(QUESTION, ranked, steps_crossings(ranked, QUESTION), NoSize.ONE_FAMILY, {}, 1, 60.0)


def test_many_agents_are_ranked_with_the_others_and_named() -> None:
    answer = many_and_few()
    assert [row.forecast.cell.members for row in answer.ranked] == [4, 1]
    assert sentence(answer).startswith("Use Flax Linen, jit, 4 agents in one program: about")
    assert table_rows(answer)[0][0] == "Flax Linen, jit, 4 agents"
    first, second = answer.ranked
    assert first.total.value == pytest.approx(15.0 + 0.75 + 997 * 0.04)
    assert second.slower.value == pytest.approx(second.total.value - first.total.value)
    assert first.at_once_s == pytest.approx(first.total.value), "one process cannot be shared out"
    said = "\n".join(remarks(answer))
    assert "4 agents are trained in one program by `benchback train ppo --seeds 4 --unit iteration`." in said
    assert "at once take" not in said
    assert [x["agents"] for x in record_of(answer)["candidates"]] == [4, 1]
    # A million steps of all four agents: 2500 iterations.
    assert record_of(answer)["candidates"][0]["million_steps_s"] == pytest.approx(2500 * 0.04)


def test_processors_that_one_program_leaves_idle_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four agents together take two thirds of the time of four alone: two at a time, these are done sooner."""
    monkeypatch.setattr(machine, "allowed_processors", lambda: [0, 1])
    found = [measured(cell("linen"), relay_record(10.0, 0.02)), measured(together(), relay_record(15.0, 0.06))]
    ranked = rank(found, QUESTION)
    answer = Answer(QUESTION, ranked, (), NoSize.ONE_FAMILY, {}, 1, 60.0)
    assert answer.best.forecast.cell.members == 4
    other = 2 * (10.0 + 0.75 + 997 * 0.02)
    said = f"Flax Linen, jit takes {seconds_text(other)} at best with 2 at once, one on each processor."
    assert said in remarks(answer)


def test_the_steps_at_which_one_program_pays_are_those_of_the_whole_project() -> None:
    """19 + 0.05 n against 4 (4 + 0.02 n) at n = 100: starts and iterations of all seeds count."""
    first = replace(line("linen", 19.05, 0.05), cell=together())
    crossing = steps_crossing(first, line("linen", 4.02, 0.02), 100, seeds=4)
    assert crossing.steps == pytest.approx(10_000)
    assert crossing.other_ahead == "below"
    assert first.total(100, 4).value == pytest.approx(line("linen", 4.02, 0.02).total(100, 4).value)


@pytest.mark.parametrize(("added", "agents"), [(0.5, 4), (2.0, 1)])
def test_many_agents_are_measured_and_win_where_they_save_time(added: float, agents: int) -> None:
    found = usual(added=added)
    answer = advise(QUESTION, 400.0, found.hooks)
    assert 4 in {row.forecast.cell.members for row in answer.ranked}
    assert answer.best.forecast.cell.members == agents
    assert answer.best.forecast.cell.run["backend"] == "linen"


def test_many_agents_that_do_not_fit_are_left_out_by_name() -> None:
    found = usual()
    real = found.run

    def run(trial: Trial, *given: Any) -> Outcome:
        outcome = real(trial, *given)
        failed = {x.id: Ended("memory", "no room") for x in trial.cells if x.members > 1 and x.id in outcome.ended}
        return Outcome(outcome.ended | failed)

    answer = advise(QUESTION, 400.0, replace(found.hooks, run_trial=run))
    assert answer.left_out["linen/jit/iteration, 4 agents"] == "memory: no room"
    assert {row.forecast.cell.members for row in answer.ranked} == {1}


@pytest.mark.slow
def test_a_real_trial_has_agents_alone_and_together() -> None:
    fields = {**FIELDS, "hidden_sizes": [8, 8], "num_epochs": 1}
    question = Question(fields, steps=3_000, seeds=3, backends=("purejax",))
    chosen = candidates(question)
    cells = [*chosen.phases, *chosen.populations]
    with trials() as run_trial:
        outcome = run_trial(Trial(cells, 0, 600.0, 2.0), lambda: True, lambda text: None)
    assert {id: ended.outcome for id, ended in outcome.ended.items()} == {x.id: "ok" for x in cells}
    records = [parse_record(outcome.ended[x.id].messages[0]["record"]) for x in cells]
    ranked = rank([measured(x, record) for x, record in zip(cells, records, strict=True)], question)
    assert {row.forecast.cell.members for row in ranked} == {1, 3}
    assert records[0].ledger["weights"] == records[1].ledger["weights"]
