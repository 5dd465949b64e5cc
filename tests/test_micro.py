"""Operation by operation: the right work is timed, dispatch is told from compute, and samples are interleaved."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchback import registry
from benchback.agent import start
from benchback.errors import InputError
from benchback.measure import micro
from benchback.measure.micro.campaign import Found, Plan, Sample, WorkerFailed, hollow, plan_for, worker
from benchback.measure.micro.operations import HOLLOW, OPERATIONS, Subject, operations
from benchback.measure.micro.summary import summarise
from benchback.measure.micro.work import matmul_flops, update_flops

SUBJECT = Subject("purejax", "jit", 4, (8, 8))


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
    ready = operations(SUBJECT)
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
    assert hollow(SUBJECT) == replace(SUBJECT, batch=1, hidden=HOLLOW)


def test_every_backend_and_idiom_is_asked_by_default() -> None:
    plan = plan_for(rounds=None)
    assert {subject.backend for subject in plan.subjects} == set(registry.BACKENDS)
    assert {subject.batch for subject in plan.subjects} == {1, 32, 1024}
    idioms = {subject.mode for subject in plan.subjects}
    assert {"jit", "filter_jit", "flatten", "split", "cached_partial", "jit_partial", "compile"} <= idioms
    quick = plan_for(quick=True, rounds=None)
    assert {(s.backend, s.mode) for s in quick.subjects} == {(n, s.best) for n, s in registry.BACKENDS.items()}


@pytest.mark.parametrize(
    ("choice", "message"),
    [({"backends": ["torch"]}, "did you mean"), ({"batches": [0]}, "at least 1"), ({"rounds": 1}, "at least 2")],
)
def test_nonsense_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_for(**{"rounds": None} | choice)


def found_for(plan: Plan, seconds: dict[Subject, float]) -> Found:
    """Samples with the same disturbance for all in each round."""
    random = np.random.default_rng(0)
    samples = []
    for turn in range(plan.rounds):
        disturbance = float(np.exp(random.normal(0, 0.3)))
        for subject, value in seconds.items():
            samples += [Sample(subject, name, turn, value * disturbance) for name in OPERATIONS]
    compile_s = {subject: dict.fromkeys(OPERATIONS, 1.0) for subject in seconds}
    return Found(samples, compile_s, {subject.batch: [1e-6] * plan.rounds for subject in seconds})


def test_ratios_are_taken_within_rounds_and_dispatch_from_the_twin() -> None:
    linen, haiku = Subject("linen", "jit", 32, (64, 64)), Subject("haiku", "jit", 32, (64, 64))
    plan = Plan((linen, haiku), rounds=12, duration_s=0.01, threads=1)
    seconds = {linen: 100e-6, haiku: 150e-6, hollow(linen): 40e-6, hollow(haiku): 60e-6}
    rows = summarise(plan, found_for(plan, seconds))
    assert len(rows) == 2 * len(OPERATIONS)
    row = next(r for r in rows if (r["operation"], r["backend"]) == ("update", "haiku"))
    assert row["ratio"]["ratio"] == pytest.approx(1.5)
    assert row["ratio"]["low"] == pytest.approx(1.5), "what disturbs a round disturbs all of it"
    assert row["dispatch_s"] / row["call_s"] == pytest.approx(60 / 150)
    assert row["compute_s"] == pytest.approx(row["call_s"] - row["dispatch_s"])
    assert row["call_low_s"] < row["call_s"] < row["call_high_s"]
    assert row["flops_per_s"] == pytest.approx(update_flops(32, (64, 64)) / row["call_s"])
    assert json.loads(json.dumps(rows)) == rows


def test_a_process_answers_and_says_why_it_died() -> None:
    with worker("purejax", 1) as ask:
        subject = {"backend": "purejax", "mode": "jit", "batch": 2, "hidden": [4]}
        assert set(ask({"do": "prepare", "subject": subject})["compile_s"]) == set(OPERATIONS)
        sample = {"do": "sample", "subject": subject, "operation": "forward", "duration_s": 0.001}
        assert 0 < ask(sample)["seconds"] < 1
        assert 0 < ask({"do": "limit", "subject": subject, "duration_s": 0.001})["seconds"] < 1
        with pytest.raises(WorkerFailed, match=r"purejax process ended .*KeyError"):
            ask(sample | {"operation": "unheard of"})


def test_importing_the_package_imports_no_framework() -> None:
    code = "import sys, benchback.measure.micro; assert not {'jax', 'torch', 'flax', 'gymnax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert micro.plan_for(rounds=2).rounds == 2
