"""Operation by operation: the right work is timed, dispatch is told from compute, and samples are interleaved."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_double import MACHINE, quiet
from test_process import is_gone

from benchback import registry
from benchback.agent import start
from benchback.errors import InputError
from benchback.measure import coordinator, machine
from benchback.measure.coordinator import Hooks, open_campaign
from benchback.measure.micro import launch, study_for, summarise
from benchback.measure.micro.launch import limit_name, programs_of
from benchback.measure.micro.operations import HOLLOW, OPERATIONS, Program, hollow, operations, sample_name
from benchback.measure.micro.summary import rows
from benchback.measure.micro.work import matmul_flops, update_flops
from benchback.measure.process import ask as ask_process
from benchback.measure.process import isolated
from benchback.measure.record import Slot
from benchback.measure.store import open_store
from benchback.measure.verify import verify

PROGRAM = Program("purejax", "jit", 4, (8, 8))


def test_flops_are_those_of_the_products_counted_one_by_one() -> None:
    def products(sizes: list[int], rows: int) -> int:
        multiplications = 0
        for layer, (i, o) in enumerate(itertools.pairwise(sizes)):
            for left, inner, right in ((rows, i, o), (i, rows, o), *([(rows, o, i)] if layer else [])):
                multiplications += left * inner * right
        return 2 * multiplications

    naive = products([7, 5, 3, 2], 11) + products([7, 5, 3, 1], 11)
    assert update_flops(11, (5, 3), inputs=7, actions=2) == naive
    assert matmul_flops(11, 5) == 2 * 11 * 5 * 5


def test_every_operation_does_its_work_and_can_be_repeated() -> None:
    ready = operations(PROGRAM)
    assert list(ready) == list(OPERATIONS)
    for call in ready.values():
        call()
        call()


def test_an_update_changes_the_weights() -> None:
    make, backend = registry.load("ppo", "purejax")
    from benchback import envs
    from benchback.algorithms.ppo.config import Config
    from benchback.measure.micro.operations import learning

    config = Config(num_envs=4, num_steps=1, num_epochs=1, num_minibatches=1, hidden_sizes=(8, 8))
    agent = backend.modes["jit"](make(config, envs.make("gymnax/CartPole-v1", 4, "jax")))
    before = agent.export(start(agent, 0))
    state, metrics = learning(agent, 0)(start(agent, 0))
    after = agent.export(state)
    assert any(not np.array_equal(before[name], after[name]) for name in before if name.startswith("actor/"))
    assert backend.fetch(metrics)["grad_norm"] > 0


def test_a_hollow_twin_has_as_many_arrays() -> None:
    make, _ = registry.load("ppo", "purejax")
    from benchback import envs
    from benchback.algorithms.ppo.config import Config

    def names(hidden: tuple[int, ...]) -> set[str]:
        config = Config(num_envs=1, num_steps=1, num_epochs=1, num_minibatches=1, hidden_sizes=hidden)
        agent = make(config, envs.make("gymnax/CartPole-v1", 1, "jax"))
        return set(agent.export(start(agent, 0)))

    assert names(HOLLOW) == names((64, 64))
    assert hollow(PROGRAM) == replace(PROGRAM, batch=1, hidden=HOLLOW)


def programs(**choice: Any) -> tuple[Program, ...]:
    (cell,) = study_for(**choice).cells
    return programs_of(cell)


def test_every_backend_and_idiom_is_asked_by_default() -> None:
    everything = programs()
    assert {program.backend for program in everything} == set(registry.BACKENDS)
    assert {program.batch for program in everything} == {1, 32, 1024}
    idioms = {program.mode for program in everything}
    assert {"jit", "filter_jit", "flatten", "split", "cached_partial", "jit_partial", "compile"} <= idioms
    quick = programs(quick=True)
    assert {(p.backend, p.mode) for p in quick} == {(n, s.best) for n, s in registry.BACKENDS.items()}


@pytest.mark.parametrize(
    ("choice", "message"),
    [({"backends": ["torch"]}, "did you mean"), ({"batches": [0]}, "at least 1"), ({"rounds": 1}, "at least 2")],
)
def test_nonsense_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_for(**choice)


def samples_for(seconds: dict[Program, float], rounds: int) -> dict[str, list[float]]:
    """Samples with the same disturbance for all in each round."""
    disturbance = np.exp(np.random.default_rng(0).normal(0, 0.3, rounds))
    taken = {limit_name(program.batch): [1e-6] * rounds for program in seconds}
    for program, value in seconds.items():
        for name in OPERATIONS:
            taken[sample_name(program, name)] = [float(value * x) for x in disturbance]
            taken[sample_name(program, name, first=True)] = [1.0] * rounds
    return taken


def test_ratios_are_taken_within_rounds_and_dispatch_from_the_twin() -> None:
    linen, haiku = Program("linen", "jit", 32, (64, 64)), Program("haiku", "jit", 32, (64, 64))
    seconds = {linen: 100e-6, haiku: 150e-6, hollow(linen): 40e-6, hollow(haiku): 60e-6}
    found = rows((linen, haiku), samples_for(seconds, 12))
    assert len(found) == 2 * len(OPERATIONS)
    row = next(r for r in found if (r["operation"], r["backend"]) == ("update", "haiku"))
    assert row["ratio"]["ratio"] == pytest.approx(1.5)
    assert row["ratio"]["low"] == pytest.approx(1.5), "what disturbs a round disturbs all of it"
    assert row["dispatch_s"] / row["call_s"] == pytest.approx(60 / 150)
    assert row["compute_s"] == pytest.approx(row["call_s"] - row["dispatch_s"])
    assert row["call_low_s"] < row["call_s"] < row["call_high_s"]
    assert row["flops_per_s"] == pytest.approx(update_flops(32, (64, 64)) / row["call_s"])
    assert json.loads(json.dumps(found)) == found


def test_the_limit_is_the_rate_of_the_last_layers_product() -> None:
    program = Program("linen", "jit", 16, (32, 128))
    taken = samples_for({program: 100e-6, hollow(program): 40e-6}, 5)
    row = next(r for r in rows((program,), taken) if r["operation"] == "update")
    assert row["limit_flops_per_s"] == pytest.approx(2 * 16 * 128 * 128 / 1e-6)
    assert row["fraction_of_limit"] == pytest.approx(row["flops_per_s"] / row["limit_flops_per_s"])


# Rounds, with processes that answer without computing anything.

DOUBLE = """
import json, os, sys
sys.path.insert(0, {tests!r})
from benchback.measure.wire import write_frame
with os.fdopen(int(sys.argv[-1]), "wb") as stream:
    for line in sys.stdin:
        request = json.loads(line)
        with open({log!r}, "a") as log:
            log.write(json.dumps(request | {{"pid": os.getpid()}}) + chr(10))
        {fault}
        first = {{"compile_s": dict.fromkeys({operations!r}, 1.0)}}
        numbered = {{"kind": "answer", "number": request["number"], "seconds": 1e-4}}
        write_frame(stream, numbered | (first if request["do"] == "prepare" else {{}}))
"""
CHOICE = {"quick": True, "backends": ["linen", "haiku"], "rounds": 3}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """The rows of a comparison after at most so many rounds, when the workers have the fault."""

    def measure(fault: str = "pass", most: int = 99, **choice: Any) -> list[dict[str, Any]]:
        words = {"tests": str(Path(__file__).parent), "log": str(tmp_path / "log"), "operations": list(OPERATIONS)}
        code = DOUBLE.format(fault=fault, **words)
        monkeypatch.setattr(launch, "COMMAND", (sys.executable, "-c", code))
        study = study_for(**CHOICE | choice)
        done: list[Slot] = []
        stop = {"finished": lambda slot, cell, attempt: done.append(slot), "asked_to_stop": lambda: len(done) >= most}
        hooks = Hooks(prove=None, sample=quiet, canary=None, **stop)
        with open_campaign(tmp_path / "micro.sqlite", study, fingerprint=MACHINE) as store:
            assert coordinator.work(store, study, hooks) == (len(done) < most)
            return summarise(store)

    return measure


def requests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_rounds_are_interleaved_between_processes_that_stay(
    tmp_path: Path, measured: Callable[..., list[dict[str, Any]]]
) -> None:
    found = measured()
    assert {row["rounds"] for row in found} == {3}
    asked = requests(tmp_path)
    assert len({request["pid"] for request in asked}) == 2
    prepared = [request for request in asked if request["do"] == "prepare"]
    assert prepared == asked[: len(prepared)], "everything is compiled before the first sample"
    sampled = [request for request in asked if request["do"] == "sample"]
    each = 4 * len(OPERATIONS)
    orders = [
        [(r["program"]["backend"], r["program"]["batch"], r["operation"]) for r in sampled[i * each : (i + 1) * each]]
        for i in range(3)
    ]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    changes = sum(a[0] != b[0] for a, b in itertools.pairwise(orders[0]))
    assert changes > 2, "backends take turns within a round"
    assert verify(tmp_path / "micro.sqlite") == []
    with open_store(tmp_path / "micro.sqlite", readonly=True) as store:
        assert all(is_gone(request["pid"]) for request in asked)
        assert store.progress().ok == 3


def test_a_comparison_that_is_stopped_continues_with_the_next_round(
    tmp_path: Path, measured: Callable[..., list[dict[str, Any]]]
) -> None:
    assert {row["rounds"] for row in measured(most=2)} == {2}
    assert {row["rounds"] for row in measured()} == {3}
    assert {row["rounds"] for row in measured(rounds=5)} == {5}
    with open_store(tmp_path / "micro.sqlite", readonly=True) as store:
        assert [(slot.block, slot.id) for slot in store.slots()] == [
            (block, attempt.slot) for block, attempt in enumerate(store.attempts())
        ]


def test_a_process_that_dies_is_started_anew_and_its_round_made_again(
    tmp_path: Path, measured: Callable[..., list[dict[str, Any]]]
) -> None:
    once = tmp_path / "once"
    fault = (
        f"import pathlib; once = pathlib.Path({str(once)!r}); once.exists() or (once.touch(), os.kill(os.getpid(), 9))"
    )
    assert {row["rounds"] for row in measured(fault)} == {3}
    with open_store(tmp_path / "micro.sqlite", readonly=True) as store:
        first, *others = store.attempts()
        assert (first.outcome, first.detail) == ("signal", "linen: ended by SIGKILL")
        assert [attempt.outcome for attempt in others] == ["ok"] * 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise KeyError('why')", "error: linen: exit code 1: KeyError: 'why'"),
        ("sys.exit()", "garbled: linen: the worker ended without an answer"),
        ("os.write(stream.fileno(), b'nonsense')", "garbled: linen: b'nons' is not the beginning of a message"),
    ],
)
def test_processes_that_never_answer_are_given_up_with_the_reason(
    fault: str, reason: str, tmp_path: Path, measured: Callable[..., list[dict[str, Any]]]
) -> None:
    with pytest.raises(InputError, match="no round has a result") as caught:
        measured(fault)
    assert reason in str(caught.value)
    assert len(requests(tmp_path)) == 2, "everything would be compiled again for every round"


@pytest.mark.slow
def test_a_real_process_prepares_samples_and_tells_the_limit() -> None:
    program = asdict(Program("purejax", "jit", 2, (4,)))
    with isolated(launch.COMMAND, machine.variables(1, "/tmp")) as listener:

        def ask(**request: Any) -> dict[str, Any]:
            return ask_process(listener, request | {"program": program}, 300.0, lambda: True)

        assert set(ask(do="prepare")["compile_s"]) == set(OPERATIONS)
        assert ask(do="sample", operation="forward", duration_s=0.001)["seconds"] > 0
        assert ask(do="limit", duration_s=0.001)["seconds"] > 0


def test_importing_the_package_imports_no_framework() -> None:
    code = "import sys, benchback.measure.micro; assert not {'jax', 'torch', 'flax', 'gymnax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
