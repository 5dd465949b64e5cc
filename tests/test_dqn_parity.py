"""DQN: every backend computes what the oracle computes; the oracle computes what it should; mistakes are caught."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import jax
import numpy as np
import pytest
from representatives import measured, quickest

from benchback.agent import start
from benchback.algorithms.dqn.config import Config
from benchback.algorithms.dqn.loss import Minibatch
from benchback.parity import Row, deviation, measure
from benchback.parity.dqn import cases, levels, oracle
from benchback.parity.execution import best, executions
from benchback.parity.oracle import parameters, widened
from benchback.parity.subject import Subject, computing
from benchback.parity.tolerance import TOLERANCE
from benchback.registry import BACKENDS

JAX_FAMILY = [name for name, spec in BACKENDS.items() if spec.family == "jax"]
LOSS = {"loss", "value", "target", "grad_norm"}
EPISODES = {"episode_return", "episode_length", "episodes"}


# Parity.


@cache
def rows(backend: str, dtype: str) -> list[Row]:
    """One measurement for all tests of a backend and a precision."""
    wanted = ["L0", "L1", "L2", "L3"] if dtype == "float32" else LOW
    return list(measure("dqn", [backend], [dtype], wanted, mode=quickest(backend)))


LOW = ["L0", "L1", "L2"]
STATE = {"weight", "mean", "variance", "count", "names"}
EXPECTED = {
    "L0": {"greedy", "final_obs", "initial_spread", "initial_bias", "initial_target"},
    "L1": {f"metric/{name}" for name in LOSS} | STATE | {"gradient", "dtype"},
    "L2": {f"metric/{name}" for name in LOSS} | STATE,
    "L3": {f"metric/{name}" for name in LOSS | {"epsilon"}}
    | {f"episode/{n}" for n in EPISODES}
    | STATE
    | {"replay", "action"},
}
"""What a backend cannot leave out."""


@pytest.mark.parametrize(("backend", "dtype", "level"), measured({"float32": list(EXPECTED), "float64": LOW}))
def test_backend_is_within_tolerance_in_every_quantity(backend: str, level: str, dtype: str) -> None:
    found = [row for row in rows(backend, dtype) if row.level == level]
    assert {row.quantity for row in found} >= EXPECTED[level]
    assert [row for row in found if not row.ok] == []


def executed(backend: str, wanted: list[tuple[str, str]] | None) -> list[tuple[str, float]]:
    """What is off in the wanted executions, without LLVM's optimiser."""
    with computing("float64", optimised=False):
        found = list(executions(Subject("dqn", backend, "float64", {}), cases.TINY, chosen=wanted))
    assert any(name.endswith("/population") for name, _ in found) == (wanted is None)
    allowed = TOLERANCE["float64"]["L4"]
    return [(name, off) for name, off in found if not off <= allowed[name.partition("/")[0]]] if found else [("", 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize("backend", JAX_FAMILY)
def test_the_best_mode_in_the_widest_unit_changes_no_number(backend: str) -> None:
    assert executed(backend, [best(BACKENDS[backend])]) == []


@pytest.mark.slow
def test_no_mode_and_no_unit_changes_a_number() -> None:
    assert executed("purejax", None) == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", JAX_FAMILY)
def test_no_mode_of_any_backend_changes_a_number(backend: str) -> None:
    assert [row for row in measure("dqn", [backend], ["float32", "float64"], ["L4"]) if not row.ok] == []


# What backends are tried on, and the oracle.


def test_cases_take_every_branch() -> None:
    steps = cases.single_steps()
    for switch in ("double", "anneal", "truncation", "tau"):
        assert len({getattr(case.config, switch) for case in steps}) == 2
    assert {case.minibatch.obs.dtype.name for case in steps} == {"float32", "bool"}
    for case in steps:
        assert 0 < case.minibatch.terminated.mean() < 1
        slow = deviation.section(case.weights, "target/")
        unlike = oracle.greedy(case.weights, case.minibatch.next_obs) != oracle.greedy(slow, case.minibatch.next_obs)
        assert unlike.any()
    assert oracle.learning_rate(13, cases.OTHER) == cases.OTHER.learning_rate * (1 - 6 / 15)
    assert all(np.all(np.float32(x) == x) for config in (cases.BASE, cases.OTHER, cases.TINY) for x in config.hyper)


def test_iterations_of_level_3_wait_learn_wrap_around_and_update_the_target() -> None:
    config = cases.BASE
    inserted = [i * config.batch_size for i in range(1, levels.NUM_ITERATIONS + 1)]
    assert {n >= config.learning_starts for n in inserted} == {False, True}
    assert inserted[-1] > config.replay_capacity
    assert config.replay_capacity % config.batch_size
    assert {oracle.epsilon(n, config) for n in inserted} > {config.last_epsilon}
    knots = {oracle.epsilon(n, cases.OTHER) in cases.OTHER.epsilons for n in inserted}
    assert knots == {False, True}, "on knots, and between them"


@pytest.mark.parametrize("case", cases.single_steps()[:2] + cases.single_steps()[3:4])
def test_oracle_gradient_equals_finite_differences_with_the_target_held(case: cases.Case) -> None:
    minibatch = Minibatch(*map(widened, case.minibatch))
    target = oracle.td_target(case.weights, minibatch, case.config)
    _, found = oracle.objective(case.weights, minibatch, case.config)

    def loss(name: str, index: tuple[int, ...], step: float) -> float:
        moved = case.weights[name].copy()
        moved[index] += step
        value = oracle.values(case.weights | {name: moved}, minibatch.obs)
        return ((value[np.arange(len(target)), minibatch.action] - target) ** 2).mean()

    assert found.keys() == parameters(case.weights).keys()
    for name, gradient in found.items():
        for index in np.ndindex(gradient.shape):
            expected = (loss(name, index, 1e-6) - loss(name, index, -1e-6)) / 2e-6
            assert abs(gradient[index] - expected) < 3e-8


def test_oracle_target_is_the_reward_and_what_follows() -> None:
    weights = {f"{section}critic/0/{kind}": x for section, kind, x in LINEAR}
    batch = Minibatch(np.zeros((3, 1)), np.zeros(3, int), np.array([1.0, 2, 3]), np.ones((3, 1)), np.array([0, 0, 1]))
    half = replace(cases.BASE, gamma=0.5)
    # The target network values the two actions 4 and 8, the online network prefers the first.
    assert oracle.td_target(weights, batch, half).tolist() == [1 + 4, 2 + 4, 3]
    assert oracle.td_target(weights, batch, replace(half, double=True)).tolist() == [1 + 2, 2 + 2, 3]


LINEAR = [
    ("", "kernel", np.array([[2.0, 1.0]])),
    ("", "bias", np.zeros(2)),
    ("target/", "kernel", np.array([[4.0, 8.0]])),
    ("target/", "bias", np.zeros(2)),
]


def test_oracle_explores_less_and_less() -> None:
    config = Config()
    assert [oracle.epsilon(n, config) for n in (0, 125_000, 250_000, 500_000)] == [1.0, 0.525, 0.05, 0.05]


def test_oracle_keeps_the_last_rows() -> None:
    history: list[Any] = [(i,) for i in range(10)]
    assert oracle.ring(history[:3], 4) == [(0,), (1,), (2,)]
    assert oracle.ring(history, 4) == [(8,), (9,), (6,), (7,)]


def test_oracle_shares_no_framework_and_no_maths_with_what_it_checks() -> None:
    code = "import sys, benchback.parity.dqn.oracle; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jax", "torch", "optax", "benchback.math.jax", "benchback.math.torch", "benchback.backends"} & set(
        found
    )


# Known mistakes, made on purpose.

FAMILIES = {"purejax": "jax", "pytorch": "torch"}
Wrong = Callable[[Any], Any]
"""The right function -> one with a mistake."""


def caught(backend: str, level: str) -> set[str]:
    """Quantities that are off; operation by operation, since each mistake would be compiled anew."""
    with jax.disable_jit():
        return {row.quantity for row in measure("dqn", [backend], ["float32"], [level]) if not row.ok}


@cache
def caught_without_mistake(backend: str, level: str) -> set[str]:
    return caught(backend, level)


def online_value(right: Any) -> Any:
    """The online network's value in place of the target network's."""
    return lambda math, next_value, selecting, *rest: right(math, selecting, selecting, *rest)


def choice_by_target(right: Any) -> Any:
    """Double Q-learning whose action is chosen by the network that values it."""
    return lambda math, next_value, selecting, *rest: right(math, next_value, next_value, *rest)


def swapped_networks(right: Any) -> Any:
    """Double Q-learning with both networks in each other's place."""
    return lambda math, next_value, selecting, *rest: right(math, selecting, next_value, *rest)


def through_termination(right: Any) -> Any:
    """Bootstrapping from what follows the end of an episode."""

    def wrong(math: Any, next_value: Any, selecting: Any, minibatch: Minibatch, *rest: Any) -> Any:
        return right(math, next_value, selecting, minibatch._replace(terminated=minibatch.terminated & False), *rest)

    return wrong


def done_for_terminated(right: Any) -> Any:
    """A time limit taken for the end of all reward."""
    return lambda batch, config: right(batch._replace(terminated=batch.terminated | batch.truncated), config)


def where_it_came_from(right: Any) -> Any:
    """What the agent saw before its step in place of what the step led to."""

    class Wrong(right):
        def __new__(cls, *fields: Any, **named: Any) -> Any:
            made = super().__new__(cls, *fields, **named)
            return made._replace(final_obs=made.obs)

    return Wrong


def twice_the_period(right: Any) -> Any:
    """The target network updated half as often."""
    return lambda inserted, config: right(inserted, replace(config, target_every=2 * config.target_every))


def at_once(right: Any) -> Any:
    """The target network updated in every iteration."""
    return lambda inserted, config: right(inserted, replace(config, target_every=1))


def inverted(right: Any) -> Any:
    """The share of the target in place of the online network's."""
    return lambda target, online, tau: right(target, online, 1 - tau)


def over_the_whole_run(right: Any) -> Any:
    """Exploration that falls over the whole run in place of a part of it."""
    return lambda first, last, count, duration: right(first, last, count, 4 * duration)


def never_ending(right: Any) -> Any:
    """Exploration that goes on falling."""
    return lambda first, last, count, duration: first + (last - first) * (count / duration)


def stairs(right: Any) -> Any:
    """The knot before, in place of what lies between two."""
    return lambda knot, count, duration: right(knot, count // 32 * 32, duration)


def knots_of_half_the_run(right: Any) -> Any:
    """All knots in the first half of the run."""
    return lambda knot, count, duration: right(knot, count, duration // 2)


def one_place_on(right: Any) -> Any:
    """Rows written one place too far."""
    return lambda replay, inserted, rows: right(replay, inserted + 1, rows)


def first_rows(right: Any) -> Any:
    """The rows of the first gradient step in every gradient step."""

    def wrong(random: Any, replay: Any, inserted: Any, shape: Any) -> Any:
        return right(random, replay, inserted, shape)[np.zeros(shape[0], int)]

    return wrong


def all_places(right: Any) -> Any:
    """Rows drawn also from where none was written."""
    return lambda random, replay, inserted, shape: right(random, replay, inserted + 10**6, shape)


OWN, MATH = "benchback.algorithms.dqn.{backend}", "benchback.math.{family}"
MISTAKES = {
    "online_value": ("L1", OWN, "td_target", online_value, "gradient"),
    "choice_by_target": ("L1", OWN, "td_target", choice_by_target, "gradient"),
    "swapped_networks": ("L1", OWN, "td_target", swapped_networks, "gradient"),
    "through_termination": ("L1", OWN, "td_target", through_termination, "gradient"),
    "done_for_terminated": ("L3", OWN, "to_experience", done_for_terminated, "replay"),
    "twice_the_period": ("L3", OWN, "updates_target", twice_the_period, "weight"),
    "at_once": ("L3", OWN, "updates_target", at_once, "weight"),
    "inverted": ("L3", MATH, "polyak", inverted, "weight"),
    "over_the_whole_run": ("L3", MATH, "linear_ramp", over_the_whole_run, "metric/epsilon"),
    "stairs": ("L3", MATH, "piecewise_linear", stairs, "metric/epsilon"),
    "knots_of_half_the_run": ("L3", MATH, "piecewise_linear", knots_of_half_the_run, "metric/epsilon"),
    "never_ending": ("L3", MATH, "linear_ramp", never_ending, "metric/epsilon"),
    "one_place_on": ("L3", MATH, "insert", one_place_on, "replay"),
    "first_rows": ("L3", MATH, "sample_indices", first_rows, "weight"),
    "all_places": ("L3", MATH, "sample_indices", all_places, "weight"),
}


ONCE = ("done_for_terminated", "twice_the_period", "at_once", "over_the_whole_run", "knots_of_half_the_run")
"""Made in code that both families share, or much like another: in one family, the one that compiles nothing."""


@pytest.mark.parametrize(
    ("mistake", "backend"), [(m, b) for m in MISTAKES for b in FAMILIES if b == "pytorch" or m not in ONCE]
)
def test_mistake_is_caught(mistake: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    level, module, name, wrong, quantity = MISTAKES[mistake]
    assert caught_without_mistake(backend, level) == set()
    target = import_module(module.format(backend=backend, family=FAMILIES[backend]))
    monkeypatch.setattr(target, name, wrong(getattr(target, name)))
    assert quantity in caught(backend, level)


@pytest.mark.parametrize(
    ("backend", "module"),
    [("purejax", "benchback.algorithms.offpolicy"), ("pytorch", "benchback.algorithms.dqn.pytorch")],
)
def test_a_successor_seen_before_the_step_is_caught(backend: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_without_mistake(backend, "L0") == set()
    packing = import_module(module)
    monkeypatch.setattr(packing, "Transition", where_it_came_from(packing.Transition))
    assert "final_obs" in caught(backend, "L0")


@pytest.mark.parametrize("backend", FAMILIES)
def test_a_gradient_through_the_target_is_caught(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Residual gradients: the target's values come from the network that learns, and nothing stops their gradient."""
    math = import_module(f"benchback.math.{FAMILIES[backend]}")
    own = import_module(OWN.format(backend=backend))
    monkeypatch.setattr(own, "td_target", online_value(own.td_target))
    case = cases.single_steps()[3]
    semi = _mean(backend, case)
    monkeypatch.setattr(math, "stop_gradient", lambda x: x)
    residual = _mean(backend, case)
    assert np.abs(semi - residual).max() > 1e-2
    assert "gradient" in caught(backend, "L1")


def _mean(backend: str, case: cases.Case) -> np.ndarray:
    """Adam's mean of a kernel after one step: its gradient, but for a factor."""
    subject = Subject("dqn", backend, "float32", {})
    agent = subject.agent(case.config)
    with jax.disable_jit():
        state, _ = agent.learn(start(agent, 0, case.weights), subject.place_all(case.minibatch))
    return agent.export(state)["adam/mean/critic/0/kernel"]


def orthogonal_layers(right: Any) -> Any:
    """Initial weights as PPO has them."""
    return lambda *arguments, **_: right(*arguments)


@pytest.mark.parametrize("backend", FAMILIES)
def test_orthogonal_weights_are_caught(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_without_mistake(backend, "L0") == set()
    module = import_module(f"benchback.algorithms.dqn.{backend}")
    if backend == "pytorch":
        monkeypatch.setattr(module.LecunMLP, "lecun", False)
    else:
        monkeypatch.setattr(module, "init_mlp", orthogonal_layers(module.init_mlp))
    assert caught(backend, "L0") == {"initial_spread"}


def tanh_layers(right: Any) -> Any:
    """tanh for relu."""
    return lambda layers, x, activation, *rest: right(layers, x, "tanh", *rest)


def tanh_module(right: Any) -> Any:
    """The same, as a module of PyTorch."""
    return lambda *arguments: right(*arguments[:-1], "tanh")


@pytest.mark.parametrize(
    ("backend", "name", "wrong"), [("purejax", "mlp", tanh_layers), ("pytorch", "tower", tanh_module)]
)
def test_another_activation_is_caught(backend: str, name: str, wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_without_mistake(backend, "L1") == set()
    module = import_module(f"benchback.algorithms.dqn.{backend}")
    owner = module.QNetwork if name == "tower" else module
    monkeypatch.setattr(owner, name, staticmethod(wrong(getattr(owner, name))))
    assert {"metric/value", "gradient", "weight"} <= caught(backend, "L1")
