"""Populations that choose among their members: halving and evolution, on the device, and resumed bit for bit."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TINY
from shared_programs import share_programs
from test_population_training import check_same, curves_of, stopping_after

from benchback.agent import Agent, Role
from benchback.errors import InputError
from benchback.parity.subject import computing
from benchback.population import evolution, halving
from benchback.population import folder as folders
from benchback.population.evolution import Evolution, train_evolving
from benchback.population.halving import Rung, ladder, survivors, train_halving
from benchback.population.members import population, role_of, view
from benchback.population.ranges import Range
from benchback.population.spec import Members, Population
from benchback.population.training import Trained, plain, train_members, train_population
from benchback.training import checkpoint
from benchback.training.run import Run

RUN = Run(
    replace(TINY, num_steps=16, num_iterations=6, hidden_sizes=(8,), dtype="float64"),
    backend="purejax",
    unit="iteration",
)
RATES = (3e-2, 1e-3, 1e-5)
SEEDS = 2
MEMBERS = Members((0, 1) * 3, {"learning_rate": tuple(x for x in RATES for _ in range(SEEDS))})
RUNGS = (Rung(2, 2), Rung(4, 1))
ASKED = Population(group=4)
"""Six members in groups of four: the last group is filled up, and rungs end within one."""


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with computing("float64", optimised=False):
        yield


@pytest.fixture(autouse=True, scope="module")
def _shared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        share_programs(patch)
        yield


# Rungs


@pytest.mark.parametrize(
    ("points", "iterations", "eta", "length", "expected"),
    [
        (27, 81, 3, 1, [(3, 9), (9, 3), (27, 1)]),
        (16, 100, 4, 1, [(6, 4), (25, 1)]),
        (9, 100, 3, 10, [(10, 3), (30, 1)]),
        (5, 100, 2, 1, [(12, 3), (25, 2), (50, 1)]),
        (27, 20, 3, 1, [(7, 1)]),
        (2, 16, 4, 1, [(4, 1)]),
    ],
)
def test_each_rung_is_eta_times_as_late_and_leaves_one_in_eta(
    points: int, iterations: int, eta: int, length: int, expected: list[tuple[int, int]]
) -> None:
    assert [(rung.iteration, rung.points) for rung in ladder(points, iterations, eta, length)] == expected


def test_ladders_that_choose_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="--eta 1 must be at least 2"):
        ladder(9, 100, 1)
    with pytest.raises(InputError, match="there are 1; choose --points"):
        ladder(1, 100, 3)
    with pytest.raises(InputError, match="8 iterations are too few to halve 2 points"):
        ladder(2, 8, 4)


def test_the_best_points_by_the_mean_over_seeds_go_on() -> None:
    scores = np.array([1.0, 5.0, 9.0, np.nan, np.nan, np.nan, 7.0, 7.0, 2.0, 2.0])
    everyone = np.ones(10, bool)
    chosen = survivors(scores, everyone, 2, seeds=2)
    assert np.flatnonzero(chosen).tolist() == [2, 3, 6, 7]
    assert np.flatnonzero(survivors(scores, everyone, 4, 2)).tolist() == [0, 1, 2, 3, 6, 7, 8, 9]
    assert np.flatnonzero(survivors(np.full(10, np.nan), everyone, 2, 2)).tolist() == [0, 1, 2, 3]
    dropped = everyone.copy()
    dropped[2:4] = False
    assert np.flatnonzero(survivors(scores, dropped, 2, 2)).tolist() == [0, 1, 6, 7]


# Halving


halve = partial(train_halving, rungs=RUNGS, seeds=SEEDS)


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    with computing("float64", optimised=False):
        out = tmp_path_factory.mktemp("halved") / "pop"
        return train_population(RUN, ASKED, members=MEMBERS, trainer=halve, out=out)


@pytest.fixture(scope="module")
def returns() -> np.ndarray:
    """Returns of all members trained to the end, [iterations, members]."""
    with computing("float64", optimised=False):
        return np.concatenate([p.metrics["episode_return"] for p in train_members(RUN, MEMBERS, group=4)])


def halved_returns(trained: Trained) -> np.ndarray:
    curves = curves_of(trained.folder).sort("iteration", "member")
    return curves["episode_return"].to_numpy().reshape(-1, len(MEMBERS))


def expected_rungs(returns: np.ndarray) -> list[np.ndarray]:
    """Members that go on after each rung, by a naive count: the last iteration of a rung judges."""
    first = survivors(returns[1], np.ones(6, bool), 2, SEEDS)
    return [first, survivors(np.where(first, returns[3], np.nan), first, 1, SEEDS)]


def mistakes_of(found: np.ndarray, returns: np.ndarray) -> list[str]:
    """In what a halved training differs from that of all members, of which the best go on."""
    expected = returns.copy()
    for rung, active in zip(RUNGS, expected_rungs(returns), strict=True):
        expected[rung.iteration :, ~active] = np.nan
    wrong = [] if np.array_equal(np.isnan(found), np.isnan(expected)) else ["who goes on"]
    return wrong + ([] if np.allclose(found, expected, rtol=1e-9, equal_nan=True) else ["what they return"])


def test_survivors_train_as_if_nobody_had_been_dropped(halved: Trained, returns: np.ndarray) -> None:
    assert np.isfinite(returns).all()
    assert mistakes_of(halved_returns(halved), returns) == []


def test_all_rungs_are_one_program_and_another_moves_the_members(halved: Trained) -> None:
    compiles = [int(row["compiles"]) for row in halved.folder.rows()]
    assert compiles[0] == 1
    assert sum(compiles) == 2


def test_the_program_runs_only_the_groups_that_are_left() -> None:
    agent, _ = plain(RUN)
    seen: list[int] = []

    def counted(state: Any) -> tuple[Any, Any]:
        jax.debug.callback(lambda _: seen.append(1), 0)
        return state, {"x": jnp.zeros(())}

    many = population(agent, 6, 2)
    step = jax.jit(halving.leading(agent, counted, 6, 2))
    state = many.init(many.key(0), many.hyper)
    for groups in (3, 1):
        seen.clear()
        jax.block_until_ready(step(state, np.int32(groups)))
        jax.effects_barrier()
        assert len(seen) == groups


@pytest.mark.parametrize(
    "calls", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow), 5]
)
def test_halving_stopped_at_any_call_resumes_bit_for_bit(halved: Trained, calls: int, tmp_path: Path) -> None:
    stopped = stopping_after(calls)
    train_population(RUN, ASKED, members=MEMBERS, trainer=halve, out=tmp_path / "pop", asked_to_stop=stopped)
    resumed = train_population(RUN, trainer=halve, origin=folders.open_population(tmp_path / "pop"))
    check_same(resumed.folder, halved.folder)


def keeps_the_worst(scores: np.ndarray, *rest: Any) -> np.ndarray:
    return survivors(-scores, *rest)


def keeps_members_rather_than_points(scores: np.ndarray, active: np.ndarray, points: int, seeds: int) -> np.ndarray:
    return survivors(scores, active, points * seeds, 1)


@pytest.mark.parametrize("mistake", [keeps_the_worst, keeps_members_rather_than_points], ids=lambda x: x.__name__)
def test_a_wrong_choice_is_caught(mistake: Callable, returns: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halving, "survivors", mistake)
    found = np.concatenate([p.metrics["episode_return"] for p in halve(RUN, MEMBERS, group=4)])
    assert "who goes on" in mistakes_of(found, returns)


def test_states_left_in_their_old_slots_are_caught(returns: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halving, "_mover", lambda agent, devices: lambda state, source: state)
    found = np.concatenate([p.metrics["episode_return"] for p in halve(RUN, MEMBERS, group=4)])
    assert "what they return" in mistakes_of(found, returns)


# Evolution

KEY = jax.random.key(0)
SOURCES = {"learning_rate": Range(1e-5, 3e-2, True), "gamma": Range(0.9, 0.999, False), "clip": (0.1, 0.2, 0.3)}
EVOLUTION = Evolution(SOURCES, every=2, share=0.34)
POINTS = Members(
    tuple(range(6)),
    {
        "learning_rate": (1e-5, 1e-4, 1e-3, 1e-2, 2e-2, 3e-2),
        "gamma": (0.9, 0.92, 0.94, 0.96, 0.98, 0.999),
        "clip": (0.1, 0.2, 0.3, 0.1, 0.2, 0.3),
    },
)
grow = partial(train_evolving, evolution=EVOLUTION)


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    with computing("float64", optimised=False):
        out = tmp_path_factory.mktemp("evolved") / "pop"
        return train_population(RUN, Population(group=3), members=POINTS, trainer=grow, out=out)


def columns(trained: Trained, name: str) -> np.ndarray:
    """[iterations, members]."""
    return curves_of(trained.folder).sort("iteration", "member")[name].to_numpy().reshape(-1, len(POINTS))


def test_the_worst_take_over_from_the_best_after_each_round_but_the_last(evolved: Trained) -> None:
    parent, returns = columns(evolved, "parent"), columns(evolved, "episode_return")
    own = np.arange(6)
    assert (parent[[0, 2, 4, 5]] == own).all()
    for last in (1, 3):
        order = np.argsort(np.nanmean(returns[last - 1 : last + 1], axis=0), kind="stable")
        assert set(np.flatnonzero(parent[last] != own)) == set(order[:2])
        assert set(parent[last][order[:2]]) <= set(order[-2:])


def test_floats_of_copies_are_those_of_the_parent_changed_within_their_range(evolved: Trained) -> None:
    parent = columns(evolved, "parent")
    for name, source in SOURCES.items():
        value = columns(evolved, f"hyper_{name}")
        np.testing.assert_allclose(value[0], POINTS.values[name], rtol=1e-12)
        assert (value[0] == value[1]).all()
        for last in (1, 3):
            stayed = parent[last] == np.arange(6)
            assert (value[last + 1][stayed] == value[last][stayed]).all()
            for new, old in zip(value[last + 1][~stayed], value[last][parent[last]][~stayed], strict=True):
                if isinstance(source, Range):
                    assert source.low <= new <= source.high
                    assert new != old or old in (source.low, source.high)
                else:
                    assert new in source


def test_a_round_with_what_follows_is_one_program(evolved: Trained) -> None:
    assert [int(row["compiles"]) for row in evolved.folder.rows()] == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("calls", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_evolution_stopped_after_any_round_resumes_bit_for_bit(evolved: Trained, calls: int, tmp_path: Path) -> None:
    stopped = stopping_after(calls)
    asked = Population(group=3)
    train_population(RUN, asked, members=POINTS, trainer=grow, out=tmp_path / "pop", asked_to_stop=stopped)
    resumed = train_population(RUN, trainer=grow, origin=folders.open_population(tmp_path / "pop"))
    check_same(resumed.folder, evolved.folder)


def test_kept_members_and_their_weights_have_nothing_of_the_search(evolved: Trained) -> None:
    stacked = checkpoint.read(evolved.folder.checkpoint)
    assert any(name.startswith("search/") for name in stacked.weights)
    _, _, one = folders.open_any(f"{evolved.folder.path}#{evolved.best}")
    assert not any(name.startswith("search/") for name in one.weights)


@pytest.mark.parametrize("source", [Range(1e-4, 1e-2, True), Range(0.5, 1.0, False), (1.0, 2.0, 3.0)], ids=str)
def test_changed_numbers_go_both_ways_and_some_are_drawn_anew(source: Any) -> None:
    middle = 2.0 if isinstance(source, tuple) else source.at(0.5)
    x = jnp.full(4000, middle)
    found = np.asarray(jax.jit(lambda x: evolution.changed(x, KEY, source, resample=0.25))(x))
    ways = {
        "log": (middle * 0.8, middle * 1.25),
        "linear": (middle - 0.1, middle + 0.1),
        "list": (1.0, 3.0),
    }["list" if isinstance(source, tuple) else "log" if source.log else "linear"]
    down, up = (np.isclose(found, way).mean() for way in ways)
    extra = 0.25 / 3 if isinstance(source, tuple) else 0.0
    assert down == pytest.approx(0.375 + extra, abs=0.04)
    assert up == pytest.approx(0.375 + extra, abs=0.04)
    low, high = (1.0, 3.0) if isinstance(source, tuple) else (source.low, source.high)
    assert low <= found.min() < middle < found.max() <= high


def test_members_without_a_return_are_the_worst() -> None:
    returns = jnp.array([[1.0, jnp.nan], [jnp.nan, jnp.nan], [5.0, 7.0], [2.0, 2.0]])
    scores = jax.jit(evolution.scores_of)(returns)
    assert scores.tolist() == [1.0, -np.inf, 6.0, 2.0]
    parents = jax.jit(lambda scores: evolution.choose_parents(scores, KEY, 1))(scores)
    assert parents.tolist() == [0, 2, 2, 3]


def test_rounds_and_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"--every 4 does not divide the 6 iterations; choose a divisor, e\.g\. 3"):
        train_evolving(RUN, POINTS, evolution=replace(EVOLUTION, every=4))
    few = Members((0, 1), {name: x[:2] for name, x in POINTS.values.items()})
    with pytest.raises(InputError, match="--points 2 are too few"):
        train_evolving(RUN, few, evolution=EVOLUTION, group=1)


# Everything of a parent is taken, and nothing else


@cache
def subject(name: str) -> tuple[Agent, Agent]:
    """A single agent and its population of six, all of whose states differ."""
    single = view(*plain(replace(RUN, backend=name)))
    return single, population(single, 6, 6)


def leaves_by_role(agent: Agent, state: Any) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {}
    for path, x in jax.tree_util.tree_leaves_with_path(state):
        raw = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        found.setdefault(str(role_of(agent, path)), []).append(np.asarray(raw))
    return found


def different(state: Any) -> Any:
    """The state with all floats changed, so that no two members have the same."""
    random = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: np.asarray(x) + random.uniform(0, 1e-9, x.shape) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        state,
    )


def taken_over(name: str = "purejax") -> list[str]:
    """What is wrong after the worst member, the first, took over from the best, the last."""
    single, many = subject(name)
    hyper = single.hyper._replace(**{name: np.asarray(x) for name, x in POINTS.values.items()})
    state = different(many.init(many.key(0), hyper))
    ranked = jnp.arange(6.0)[:, None]
    few = replace(EVOLUTION, share=0.17)
    after, parent = jax.jit(lambda state: evolution.evolve(single, state, ranked, KEY, jnp.array(True), few))(state)
    assert parent.tolist() == [5, 1, 2, 3, 4, 5]
    before, now = leaves_by_role(single, state), leaves_by_role(single, after)
    source = {"own": np.arange(6), "taken": np.asarray(parent)}
    roles = {"network": "taken", "target": "taken", "optimiser": "taken", "data": "taken"}
    wrong = [
        role
        for role in before.keys() - {"hyper", "counter"}
        if not all(
            np.array_equal(y, x[source[roles.get(role, "own")]]) for x, y in zip(before[role], now[role], strict=True)
        )
    ]
    floats = evolution.floats(single, after)
    old = {name: np.asarray(x) for name, x in POINTS.values.items()}
    stayed = all(np.allclose(np.asarray(floats[name])[1:], x[1:]) for name, x in old.items())
    explored = any(not np.isclose(float(floats[name][0]), x[5]) for name, x in old.items())
    near = 0 < float(floats["gamma"][0]) <= 0.999
    return wrong + ([] if stayed and explored and near else ["hyper"])


@pytest.mark.parametrize("name", ["purejax", *(pytest.param(x, marks=pytest.mark.slow) for x in ("nnx", "equinox"))])
def test_networks_optimisers_and_floats_are_taken_over_and_episodes_are_not(name: str) -> None:
    assert taken_over(name) == []


def none_explores(x: Any, copied: Any, *rest: Any) -> Any:
    return x


def all_as_the_first(x: Any, copied: Any, *rest: Any) -> Any:
    return jnp.broadcast_to(evolution.changed(x, *rest)[0], x.shape)


def test_mistakes_in_taking_over_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(evolution, "COPIED", (Role.NETWORK, Role.TARGET, Role.DATA, Role.RANDOMNESS))
        assert sorted(taken_over()) == ["optimiser", "randomness"]
    for mistake in (none_explores, all_as_the_first):
        with monkeypatch.context() as patched:
            patched.setattr(evolution, "explored", mistake)
            assert taken_over() == ["hyper"]
