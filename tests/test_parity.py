"""Every backend computes what the oracle computes; and the oracle computes what it should."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from representatives import measured, quickest

from benchback.agent import Agent, Weights
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.loss import Minibatch
from benchback.backends import xla
from benchback.parity import DTYPES, LEVELS, Row, deviation, measure
from benchback.parity.execution import best, plan
from benchback.parity.oracle import parameters
from benchback.parity.ppo import cases, levels, oracle
from benchback.parity.subject import Subject, computing
from benchback.parity.tolerance import TOLERANCE
from benchback.registry import BACKENDS, Spec

# The backends.


EXECUTIONS = LEVELS[-1]
"""The level that compares modes and units."""


@cache
def rows(backend: str, dtype: str, executions: bool) -> list[Row]:
    """One measurement for all tests of a backend and a precision."""
    if executions and backend == "pytorch":
        return measured_elsewhere(backend, dtype, EXECUTIONS)
    return list(measure("ppo", [backend], [dtype], [EXECUTIONS] if executions else LEVELS[:-1], mode=quickest(backend)))


def measured_elsewhere(backend: str, dtype: str, level: str) -> list[Row]:
    """In a process without annotation checks, which torch.compile cannot see through."""
    code = f"""
import json
from dataclasses import asdict
from benchback.parity import measure
print(json.dumps([asdict(row) for row in measure("ppo", [{backend!r}], [{dtype!r}], [{level!r}])]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


LOSS = {
    f"metric/{name}"
    for name in (
        "loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "approximate_kl",
        "clip_fraction",
        "grad_norm",
    )
}
EPISODES = {"episode/episode_return", "episode/episode_length", "episode/episodes"}
STATE = {"weight", "mean", "variance", "count", "names"}
FORWARD = {"greedy", "log_prob", "value", "final_value", "initial_kernel", "initial_bias"}


def expected_quantities(backend: str, level: str, dtype: str) -> set[str]:
    """What a backend cannot leave out."""
    spec = BACKENDS[backend]
    whole = LOSS | EPISODES | STATE
    apart = {f"{quantity}/iteration" for quantity in whole | {"action", "real_action/obs"}}
    beside = {f"{quantity}/jax" for quantity in whole | {"action"}} if spec.family == "torch" else set()
    executions = ["/".join(execution) for execution in plan(spec) if execution[0] != "cudagraphs"]
    executions += [f"{'/'.join(best(spec))}/population"] if spec.family == "jax" else []
    discrete = {
        "L0": FORWARD,
        "L1": LOSS | STATE | {"gradient", "dtype"},
        "L2": LOSS | STATE,
        "L3": whole | apart,
        "L4": {f"{q}/{execution}" for q in STATE | {"metric", "episode", "greedy"} for execution in executions}
        | beside,
    }[level]
    if level == "L1":
        steps = LOSS | STATE | {"gradient", "dtype"}
        discrete = discrete | {f"{quantity}/{surrogate}" for quantity in steps for surrogate in ("drift", "learned")}
    boxed = set() if (level, dtype) == ("L4", "float64") else of_real_actions(spec, level)
    return discrete | {f"{quantity}/box" for quantity in boxed}


def of_real_actions(spec: Spec, level: str) -> set[str]:
    """What no backend can leave out where actions are real-valued and observations and rewards normalised."""
    whole = LOSS | EPISODES | STATE | {"normaliser"}
    mode, unit = best(spec)
    return {
        "L0": (FORWARD - {"greedy"}) | {"real_action", "initial_log_std"},
        "L1": LOSS | STATE | {"gradient", "dtype"},
        "L2": LOSS | STATE,
        "L3": whole | {f"{q}/iteration" for q in whole | {"real_action"}},
        "L4": {f"{q}/{mode}/{unit}" for q in STATE | {"metric", "episode", "greedy", "normaliser"}},
    }[level]


@pytest.mark.parametrize(("backend", "dtype", "level"), measured(dict.fromkeys(DTYPES, LEVELS[:-1])))
def test_backend_is_within_tolerance_in_every_quantity(backend: str, level: str, dtype: str) -> None:
    check_rows(backend, level, dtype)


# Slow, because the levels above are in the best mode of the JAX family, and the fast suite has the rest elsewhere: the
# modes of NNX, Equinox and torch in test_nnx_modes.py, test_contract.py and test_torch_modes.py, chunks below,
# populations in test_population.py, torch beside JAX in test_mutations.py.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_modes_and_units_are_within_tolerance_in_every_quantity(backend: str, dtype: str) -> None:
    check_rows(backend, EXECUTIONS, dtype)


def check_rows(backend: str, level: str, dtype: str) -> None:
    found = [row for row in rows(backend, dtype, level == EXECUTIONS) if row.level == level]
    assert {row.quantity for row in found} >= expected_quantities(backend, level, dtype)
    assert [row for row in found if not row.ok] == []


TIMED = """
import json
from benchback.parity import prove
rows = list(prove({proof!r}))
print(json.dumps([len(rows), *(f"{{row.quantity}}: {{row.deviation}}" for row in rows if not row.ok)]))
"""
PROVEN = [
    f"ppo/{name}/{spec.best}/{unit}/mlp/float32/framework" for name, spec in BACKENDS.items() for unit in spec.units
]


@pytest.mark.slow
@pytest.mark.parametrize("proof", PROVEN)
def test_a_program_compiled_as_it_is_timed_is_proven(proof: str) -> None:
    """In a process of its own: XLA takes its flags once, and these tests ask for programs that compile quickly."""
    quick = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
    usual = {name: value for name, value in os.environ.items() if name not in quick}
    command = [sys.executable, "-c", TIMED.format(proof=proof)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=usual)
    assert done.returncode == 0, done.stderr
    count, *off = json.loads(done.stdout.splitlines()[-1])
    assert count > 0
    assert off == []


@cache
def whole_programs(unit: str) -> set[str]:
    """Quantities of whole iterations of a compiled program that are off."""
    with computing("float32", optimised=False):
        found = list(levels.update(Subject("ppo", "purejax", "float32", {}, "jit", unit, thorough=False)))
    assert {quantity for quantity, _ in found} >= {"weight/iteration", "metric/loss/iteration", "action/iteration"}
    return {quantity for quantity, off in found if not off <= TOLERANCE["float32"]["L3"][quantity.split("/")[0]]}


def one_iteration_short(right: Any) -> Any:
    """A chunk that leaves out its last iteration and reports the one before twice."""

    def wrong(agent: Agent, length: int) -> Agent:
        short: Any = right(agent, length - 1).iterate

        def iterate(state: Any) -> Any:
            state, metrics = short(state)
            return state, {name: x[jnp.array([*range(length - 1), -1])] for name, x in metrics.items()}

        return replace(agent, iterate=iterate)

    return wrong


def test_a_chunk_is_compared_with_the_oracle_iteration_by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole_programs("chunk") == set()
    monkeypatch.setitem(xla.UNITS, "chunk", one_iteration_short(xla.chunk))
    assert {"weight/iteration", "metric/loss/iteration"} <= whole_programs.__wrapped__("chunk")


@pytest.mark.parametrize("name", BACKENDS)
def test_every_mode_and_unit_is_compared(name: str) -> None:
    spec = BACKENDS[name]
    compared = {("none", "phase"), *plan(spec)}
    assert {mode for mode, _ in compared} == set(spec.modes)
    assert {unit for _, unit in compared} == set(spec.units)


@pytest.mark.parametrize("off", [1e-3, np.nan, np.inf])
def test_a_deviation_that_is_large_or_no_number_is_not_ok(off: float) -> None:
    assert not Row("ppo", "linen", "L1", "weight", "float32", off, 1e-6).ok
    assert dict(deviation.worst([("weight", off), ("weight", 0.0)]))["weight"] != 0


def test_a_missing_or_misshapen_array_is_not_near() -> None:
    random = np.random.default_rng(0)
    weights = cases.midway(cases.network(random), random)
    missing = {name: x for name, x in weights.items() if name != "actor/1/bias"}
    assert dict(deviation.worst(deviation.of_weights(missing, weights)))["names"] == 1
    turned = weights | {"actor/0/kernel": weights["actor/0/kernel"].T}
    assert dict(deviation.worst(deviation.of_weights(turned, weights)))["weight"] == np.inf
    assert np.isnan(dict(deviation.of_metrics({}, {"loss": 1.0}))["metric/loss"])


# What they are tried on.


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_minibatches_take_every_branch(kind: cases.Kind) -> None:
    random = np.random.default_rng(0)
    weights = cases.network(random, kind)
    near, far = cases.near(weights, random), cases.far(weights, random)
    change = oracle.log_prob(weights, far.obs, far.action) - far.log_prob
    for side in (change > np.log(1 + cases.BASE.clip), change < np.log(1 - cases.BASE.clip)):
        for sign in (1, -1):
            assert (sign * (far.advantage - far.advantage.mean())[side] > 0).any()
    assert np.exp(change).max() > 3
    moved = np.abs(oracle.value(weights, far.obs) - far.value) > cases.BASE.clip
    assert moved.any()
    assert not moved.all()
    assert oracle.learn(weights, near, cases.BASE)[1]["grad_norm"] < 0.8 * cases.BASE.max_grad_norm
    assert oracle.learn(weights, far, cases.BASE)[1]["grad_norm"] > 1.2 * cases.BASE.max_grad_norm
    assert len(np.unique(near.action)) > 2


def test_single_steps_start_fresh_and_midway_with_every_switch_both_ways() -> None:
    steps = cases.single_steps()
    assert {oracle.learning_rate(int(c.weights["adam/count"]), c.config) / c.config.learning_rate for c in steps} == {
        0.5,
        1.0,
    }
    for switch in ("clip_value", "anneal", "truncation"):
        assert len({getattr(case.config, switch) for case in steps}) == 2
    assert {case.minibatch.obs.dtype.name for case in steps} == {"float32", "bool"}


def test_rollout_ends_episodes_in_every_way() -> None:
    random = np.random.default_rng(3)
    batch = cases.transitions(cases.network(random), cases.BASE, random)
    for steps in (slice(None, -1), slice(-1, None)):
        ways = set(zip(batch.terminated[steps].ravel(), batch.truncated[steps].ravel(), strict=True))
        assert len(ways) == 4


def test_float32_holds_every_number_of_the_cases() -> None:
    configs = (cases.BASE, cases.PLAIN, cases.MINIBATCHES, cases.TINY, cases.NORMALISED, cases.DRIFT, cases.LEARNED)
    for config in configs:
        assert all(np.array_equal(np.float32(x), x) for x in config.hyper)
    for case in cases.single_steps() + cases.single_steps("box"):
        assert all(np.array_equal(x, x.astype(np.float32)) for x in case.weights.values())


# The oracle.


DIFFERENCES = 12
"""Entries of an array whose gradient is compared."""


def numerical_gradient(case: cases.Case, minibatch: Minibatch) -> Weights:
    """Central differences of the loss by some weights of every array, drawn at random; NaN elsewhere."""
    random = np.random.default_rng(0)

    def loss(name: str, index: tuple[int, ...], step: float) -> float:
        moved = case.weights[name].copy()
        moved[index] += step
        return oracle.objective(case.weights | {name: moved}, minibatch, case.config)[0]["loss"]

    result = {name: np.full_like(x, np.nan) for name, x in parameters(case.weights).items()}
    for name, gradient in result.items():
        chosen = random.choice(gradient.size, min(gradient.size, DIFFERENCES), replace=False)
        for index in zip(*np.unravel_index(chosen, gradient.shape), strict=True):
            gradient[index] = (loss(name, index, 1e-6) - loss(name, index, -1e-6)) / 2e-6
    return result


@pytest.mark.parametrize("case", [*cases.single_steps()[:3], cases.single_steps()[5], *cases.single_steps("box")[:2]])
def test_oracle_gradient_equals_finite_differences(case: cases.Case) -> None:
    minibatch = Minibatch(*(x.astype(float) if x.dtype == np.float32 else x for x in case.minibatch))
    _, found = oracle.objective(case.weights, minibatch, case.config)
    expected = numerical_gradient(case, minibatch)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        compared = ~np.isnan(gradient)
        assert compared.sum() == min(gradient.size, DIFFERENCES)
        np.testing.assert_allclose(found[name][compared], gradient[compared], atol=3e-9)


def rollout(**fields: Any) -> Transition:
    """Four steps of one environment: reward 1, value 0, nothing ends."""
    column = {name: np.zeros((4, 1)) for name in Transition._fields}
    flags = {name: np.zeros((4, 1), bool) for name in ("terminated", "truncated")}
    given = {name: np.reshape(x, (4, 1)) for name, x in fields.items()}
    return Transition(**column | flags | {"reward": np.ones((4, 1))} | given)


HALVES = replace(cases.BASE, gamma=0.5, gae_lambda=1.0)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        # With lambda 1 and no values an advantage is the discounted return, 16 standing for what follows.
        (rollout(), [1 + 0.5 + 0.25 + 0.125 + 1, 1.75 + 2, 1.5 + 4, 1 + 8]),
        (rollout(terminated=[0, 1, 0, 0]), [1.5, 1, 1.5 + 4, 1 + 8]),
        (rollout(truncated=[0, 1, 0, 0], final_value=[0, 8, 0, 0]), [1.5 + 2, 1 + 4, 1.5 + 4, 1 + 8]),
        (
            rollout(truncated=[0, 1, 0, 0], terminated=[0, 1, 0, 0], final_value=[0, 8, 0, 0]),
            [1.5, 1, 5.5, 9],
        ),
        (rollout(truncated=[0, 0, 0, 1], final_value=[0, 0, 0, 8]), [1.875 + 0.5, 1.75 + 1, 1.5 + 2, 1 + 4]),
    ],
)
def test_oracle_advantage_is_the_discounted_return(batch: Transition, expected: list[float]) -> None:
    batch = batch._replace(terminated=batch.terminated > 0, truncated=batch.truncated > 0)
    np.testing.assert_allclose(oracle.advantage(batch, np.array([16.0]), HALVES)[:, 0], expected)


def test_oracle_advantage_without_lambda_is_the_temporal_difference() -> None:
    batch = rollout(value=[1, 2, 3, 4])
    found = oracle.advantage(batch, np.array([16.0]), replace(HALVES, gae_lambda=0.0))
    np.testing.assert_allclose(found[:, 0], [1 + 1 - 1, 1 + 1.5 - 2, 1 + 2 - 3, 1 + 8 - 4])


def test_a_normalised_rollout_is_clipped_on_both_counts_and_no_environment_is_like_another() -> None:
    random = np.random.default_rng(3)
    weights, before = cases.acquainted(cases.network(random, "box"), cases.NORMALISED, random)
    batch = cases.transitions(weights, cases.NORMALISED, random)
    for x in (oracle.normalise_obs(weights, batch.obs), oracle.scaled(weights, batch.reward)):
        assert 0 < (np.abs(x) == 10).mean() < 0.1
    spread = before[0].obs.mean(0).std(0)
    assert (spread > 0.5).all()
    assert weights["normaliser/discounted_return/mean"] < -1


def test_oracle_remembers_rollouts_as_if_they_were_one() -> None:
    random = np.random.default_rng(6)
    weights = cases.network(random, "box")
    rollouts = [cases.transitions(weights, cases.NORMALISED, random) for _ in range(3)]
    found = oracle.normaliser(rollouts, cases.NORMALISED)
    obs = np.concatenate([batch.obs for batch in rollouts]).astype(float)
    np.testing.assert_allclose(found["normaliser/obs/mean"], obs.mean((0, 1)))
    np.testing.assert_allclose(found["normaliser/obs/variance"], obs.var((0, 1)))
    assert found["normaliser/discounted_return/count"] == 3 * cases.NORMALISED.batch_size


def test_oracle_discounts_within_an_episode_and_across_rollouts() -> None:
    first = rollout(terminated=[0, 1, 0, 0], truncated=np.zeros(4))
    second = rollout(terminated=np.zeros(4), truncated=[1, 0, 0, 0])
    batches = [
        batch._replace(terminated=batch.terminated > 0, truncated=batch.truncated > 0) for batch in (first, second)
    ]
    found, ongoing = oracle.discounted_returns(batches, 0.5)
    np.testing.assert_allclose(found[:, 0], [1, 1.5, 1, 1.5, 1.75, 1, 1.5, 1.75])
    np.testing.assert_allclose(ongoing, [1.75])


def test_oracle_shares_no_framework_and_no_maths_with_what_it_checks() -> None:
    code = "import sys, benchback.parity.ppo.oracle; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jax", "torch", "optax", "benchback.math.jax", "benchback.math.torch", "benchback.backends"} & set(
        found
    )
