"""Populations: a member is the same run alone, and nothing of a member depends on its neighbours."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TINY

from benchback import envs, registry
from benchback.agent import Agent, Role, start
from benchback.envs import vectorise
from benchback.errors import InputError
from benchback.parity import deviation, execution
from benchback.parity.execution import GROUP, NUM_ITERATIONS, NUM_MEMBERS, SEED
from benchback.parity.subject import Subject, computing
from benchback.parity.tolerance import TOLERANCE
from benchback.population import groups, members

JAX = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]
DTYPE = "float64"
"""In which a deviation of rounding never grows into another action."""
FAST = ("purejax", "nnx", "equinox")
"""One of each kind of State: a NamedTuple, a split object, modules. `make slow` has the others, and so has level L4."""
FAMILY = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in JAX]


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with computing(DTYPE, optimised=False):
        yield


@cache
def subject(algorithm: str, name: str) -> Subject:
    return Subject(algorithm, name, DTYPE, {})


@cache
def plain(algorithm: str, name: str = "purejax") -> Agent:
    """An agent in the parity environment, whose episodes end within a few steps."""
    return subject(algorithm, name).plain(cases(algorithm), kind(algorithm))


def kind(algorithm: str) -> Literal["discrete", "box"]:
    return "box" if algorithm == "td3" else "discrete"


def cases(algorithm: str) -> Any:
    return import_module(f"benchback.parity.{algorithm}.cases").TINY


def backend(name: str) -> Any:
    return registry.load("ppo", name)[1]


@cache
def many(algorithm: str, name: str = "purejax", group: int = GROUP, mode: str = "best", unit: str = "chunk") -> Agent:
    """A population, its programs shared by the tests."""
    mode = registry.BACKENDS[name].best if mode == "best" else mode
    agent, length = plain(algorithm, name), NUM_ITERATIONS
    return members.execute(agent, backend(name), mode, unit, length, size=NUM_MEMBERS, group=group)


def varied(agent: Agent) -> Any:
    """Every float different for every member."""
    factor = 1 - np.arange(NUM_MEMBERS) / 16
    return jax.tree.map(lambda x: x * factor, agent.hyper)


def of_member(hyper: Any, index: int) -> Any:
    return jax.tree.map(lambda x: np.broadcast_to(x, NUM_MEMBERS)[index], hyper)


def trained(agent: Agent, keys: Any = None, hyper: Any = None) -> tuple[Any, dict[str, np.ndarray]]:
    """State and metrics after one program call."""
    state = agent.init(agent.key(SEED) if keys is None else keys, agent.hyper if hyper is None else hyper)
    assert agent.iterate is not None
    state, metrics = agent.iterate(state)
    return state, jax.device_get(metrics)


def arrays(tree: Any) -> list[np.ndarray]:
    def raw(x: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return [raw(x) for x in jax.tree.leaves(tree)]


def member_arrays(agent: Agent, state: Any) -> list[np.ndarray]:
    """Arrays with a member axis."""
    return arrays(members.partition(agent, state)[1])


def equal(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(ours, theirs, strict=True))


# A member is the same run alone


def deviations(algorithm: str, name: str) -> list[str]:
    """Quantities of varied members that deviate from the same runs alone, each by a program of its own."""
    found = deviation.worst(execution.population(subject(algorithm, name), cases(algorithm), kind(algorithm)))
    allowed = TOLERANCE[DTYPE]["L4"]
    return [name for name, off in found if not off <= allowed[name.partition("/")[0]]]


# Level L4 of PPO has a population, too.
@pytest.mark.parametrize(
    "algorithm", [pytest.param(x, marks=[pytest.mark.slow] * (x == "ppo")) for x in registry.ALGORITHMS]
)
def test_a_member_is_the_same_run_alone(algorithm: str) -> None:
    assert deviations(algorithm, "purejax") == []


OTHERS = [
    pytest.param(algorithm, name, marks=[] if (algorithm, name) == ("dqn", "nnx") else [pytest.mark.slow])
    for algorithm in registry.ALGORITHMS
    for name in JAX
    if name != "purejax"
]


@pytest.mark.parametrize(("algorithm", "name"), OTHERS)
def test_a_member_is_the_same_run_alone_in_other_backends(algorithm: str, name: str) -> None:
    assert deviations(algorithm, name) == []


@pytest.mark.parametrize("group", [1, 3, NUM_MEMBERS])
def test_groups_of_any_size_give_the_same_numbers(group: int) -> None:
    agent = many("dqn", group=group)
    state, metrics = trained(agent, hyper=varied(agent))
    expected_state, expected = trained(many("dqn"), hyper=varied(agent))
    assert metrics.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(metrics[name], x, rtol=1e-13, atol=1e-14)
    for ours, theirs in zip(arrays(state), arrays(expected_state), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_members_begin_bit_for_bit_as_the_same_runs_alone(algorithm: str) -> None:
    agent, single = many(algorithm), plain(algorithm)
    hyper = varied(agent)
    state = agent.init(agent.key(SEED), hyper)
    for i in range(NUM_MEMBERS):
        expected = single.init(single.key(SEED + i), of_member(hyper, i))
        assert equal(arrays(members.member(agent, state, i)), arrays(expected))


def test_seeds_are_those_of_single_runs_to_the_last() -> None:
    agent, single = many("dqn"), plain("dqn")
    for seed in (0, 2**31 - 2, 2**32 - NUM_MEMBERS):
        assert equal(arrays(agent.key(seed)), [np.stack([arrays(single.key(seed + i))[0] for i in range(NUM_MEMBERS)])])
    with pytest.raises(InputError, match="exceed 4294967295; choose a smaller seed"):
        agent.key(2**32 - NUM_MEMBERS + 1)


# Neighbours do not matter


@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_shuffled_members_give_permuted_results(algorithm: str) -> None:
    agent, order = many(algorithm), np.array([2, 0, 3, 1])
    keys, hyper = agent.key(SEED), varied(agent)
    state, metrics = trained(agent, keys, hyper)
    shuffled, theirs = trained(agent, keys[order], jax.tree.map(lambda x: x[order], hyper))
    assert equal([theirs[name] for name in metrics], [x[order] for x in metrics.values()])
    assert equal(member_arrays(agent, shuffled), [x[order] for x in member_arrays(agent, state)])


RATES = {"ppo": "learning_rate", "vpg": "actor_learning_rate", "dqn": "learning_rate", "td3": "critic_learning_rate"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_a_member_that_diverges_leaves_the_others_untouched(algorithm: str, value: float) -> None:
    agent, sick, others = many(algorithm), 1, [0, 2, 3]
    state, metrics = trained(agent)
    rate = np.full(NUM_MEMBERS, getattr(agent.hyper, RATES[algorithm]))
    rate[sick] = value
    diverged, theirs = trained(agent, hyper=agent.hyper._replace(**{RATES[algorithm]: rate}))
    expected, found = member_arrays(agent, state), member_arrays(agent, diverged)
    assert any(np.isnan(x[sick]).any() for x in found if x.dtype.kind == "f")
    assert equal([x[others] for x in found], [x[others] for x in expected])
    assert equal([theirs[name][others] for name in metrics], [x[others] for x in metrics.values()])


# One program, scalar counters, conds that stay conds


@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_varied_floats_and_other_seeds_compile_nothing(algorithm: str) -> None:
    agent = many(algorithm)
    trained(agent, hyper=varied(agent))
    compiles = backend("purejax").compiles()
    trained(agent, agent.key(3))
    trained(agent, agent.key(4), jax.tree.map(lambda x: x / 2, varied(agent)))
    assert backend("purejax").compiles() == compiles


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_counters_are_scalar_and_all_else_has_a_member_axis(algorithm: str, name: str) -> None:
    agent = many(algorithm, name)
    state, metrics = jax.eval_shape(agent_iterate(agent), jax.eval_shape(agent.init, agent.key(0), agent.hyper))
    counters, others = members.partition(agent, state)
    assert len(jax.tree.leaves(counters)) == sum(role is Role.COUNTER for role in agent.roles.values()) > 0
    assert {x.shape for x in jax.tree.leaves(counters)} == {()}
    assert {x.shape[0] for x in jax.tree.leaves(others)} == {NUM_MEMBERS}
    assert {x.shape for x in metrics.values()} == {(NUM_MEMBERS, NUM_ITERATIONS)}


def agent_iterate(agent: Agent) -> Any:
    assert agent.iterate is not None
    return agent.iterate


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a program, those of its parts included."""
    for equation in jaxpr.eqns:
        yield equation
        for part in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(part, "eqns"):
                yield from equations(getattr(part, "jaxpr", part))


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("algorithm", ["dqn", "td3"])
def test_learning_stays_a_cond_and_no_replay_is_selected(algorithm: str, name: str) -> None:
    """A vmapped cond on a number of each member computes both branches and selects every array of the state."""
    rows = 37
    config = replace(cases(algorithm), replay_capacity=rows)
    single = subject(algorithm, name).plain(config, kind(algorithm))
    agent = members.population(members.view(single, backend(name)), 2, 2)
    state = jax.eval_shape(agent.init, agent.key(0), agent.hyper)
    state, batch = jax.eval_shape(agent.rollout, state)
    found = list(equations(jax.make_jaxpr(agent.update)(state, batch).jaxpr))
    selected = [e for e in found if e.primitive.name == "select_n" for x in e.invars if rows in x.aval.shape]
    assert not selected
    conds = [e for e in found if e.primitive.name == "cond"]
    assert len(conds) == 2
    assert all(e.invars[0].aval.shape == () for e in conds)
    assert not any(rows in x.aval.shape for e in conds for x in e.invars)


# The rest of an agent


def test_a_member_is_taken_out_and_put_back() -> None:
    agent = many("dqn")
    state, _ = trained(agent)
    before = member_arrays(agent, state)
    copied = members.replace_member(agent, state, 1, members.member(agent, state, 3))
    after = member_arrays(agent, copied)
    assert equal([x[[0, 3, 2, 3]] for x in before], after)
    assert equal(arrays(members.partition(agent, state)[0]), arrays(members.partition(agent, copied)[0]))


@pytest.mark.parametrize("name", FAMILY)
def test_exported_members_are_loaded_again(name: str) -> None:
    agent = many("dqn", name)
    single = members.view(plain("dqn", name), backend(name))
    state, _ = trained(agent)
    weights = agent.export(state)
    for i in range(NUM_MEMBERS):
        own = single.export(members.member(agent, state, i))
        assert own.keys() == weights.keys()
        assert all(np.array_equal(weights[key][i], x) for key, x in own.items())
    loaded = agent.load(start(agent, 99), weights)
    assert all(np.array_equal(weights[key], x) for key, x in agent.export(loaded).items())


def test_members_act_on_observations_of_their_own() -> None:
    agent, single = many("dqn"), plain("dqn")
    state, _ = trained(agent)
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(NUM_MEMBERS, 5, 4)))
    memory, action = agent.act(state, agent.initial_memory(5), obs)
    assert memory == ()
    for i in range(NUM_MEMBERS):
        _, expected = single.act(members.member(agent, state, i), (), obs[i])
        assert np.array_equal(action[i], expected)


SOME = [("purejax", "jit", "phase"), ("purejax", "none", "chunk"), ("nnx", "split", "iteration")]
EXECUTIONS = [
    pytest.param(name, mode, unit, marks=[] if (name, mode, unit) in SOME else [pytest.mark.slow])
    for name in JAX
    for mode in backend(name).functional_modes
    for unit in registry.BACKENDS[name].units
]


@pytest.mark.parametrize(("name", "mode", "unit"), EXECUTIONS)
def test_a_population_computes_the_same_in_every_mode_and_unit(name: str, mode: str, unit: str) -> None:
    agent = many("dqn", name, mode=mode, unit=unit)
    state, history = start(agent, SEED), []
    while sum(history) < NUM_ITERATIONS:
        state, metrics = execution.advance(agent, state)
        history.append(metrics["episodes"].size // NUM_MEMBERS)
    compiles = backend(name).compiles()
    execution.advance(agent, start(agent, SEED + 1))
    assert backend(name).compiles() == compiles
    expected, _ = trained(many("dqn", name))
    for ours, theirs in zip(arrays(state), arrays(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14)


# Refusals


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("nnx", "jit", "mode=jit does not fit a population.*use --mode split or none"),
        ("nnx", "cached_partial", "use --mode split or none"),
        ("purejax", "eager", "mode=eager does not fit a population.*use --mode jit or none"),
        ("pytorch", "none", "need a backend of the JAX family; train one seed at a time"),
    ],
)
def test_executions_without_a_population_are_refused(name: str, mode: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        members.execute(plain("dqn"), backend(name), mode, "phase", 1, size=2, group=1)


def test_sizes_that_do_not_fit_are_refused() -> None:
    agent = plain("dqn")
    with pytest.raises(InputError, match="a population of 0 has no members; choose at least 1"):
        members.population(agent, 0, 1)
    with pytest.raises(InputError, match="group=5 does not fit 4 members; choose 1 to 4"):
        members.population(agent, 4, 5)
    many_agents = members.population(agent, 4, 2)
    with pytest.raises(InputError, match=r"shape \(3,\) does not fit 4 members; give one number or 4"):
        many_agents.init(many_agents.key(0), agent.hyper._replace(gamma=np.ones(3)))


# Group sizes


def test_the_likely_group_is_what_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, framework = plain("dqn"), backend("purejax")
    weights = agent.export(start(agent, 0))
    used = sum(x.nbytes for name, x in weights.items() if not name.startswith(("env/", "rng", "replay/", "adam/count")))
    for held, size, expected in [(9 * used, 100, 8), (9 * used, 5, 5), (used // 2, 100, 1), (10**9, 999, 64)]:
        monkeypatch.setattr(groups, "cache_bytes", lambda held=held: held)
        choice = groups.likely_group(agent, framework, size)
        assert (choice.group, choice.bytes_per_member) == (expected, used)


def test_the_fastest_of_the_measured_groups_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that each call moves on by a time of its own: seconds of a member are 4, 1 and 2."""
    clock, takes = [0.0], {2: 8.0, 4: 4.0, 8: 16.0}

    def program(agent: Agent, framework: Any, mode: str, unit: str, length: int, *, size: int, group: int) -> Agent:
        def iterate(state: Any) -> tuple[Any, Any]:
            clock[0] += takes[size]
            return state, ()

        return replace(agent, iterate=iterate)

    monkeypatch.setattr(groups, "execute", program)
    monkeypatch.setattr(groups, "likely_group", lambda *_: groups.Choice(4, {}, 1000))
    monkeypatch.setattr(groups.time, "perf_counter", lambda: clock[0])
    choice = groups.choose_group(plain("dqn"), backend("purejax"), "jit", 100)
    assert choice == groups.Choice(4, {2: 4.0, 4: 1.0, 8: 2.0}, 1000)
    assert str(choice).endswith("2: 4000.00 ms, 4: 1000.00 ms, 8: 2000.00 ms")


# Mistakes that the comparison with single runs must catch


def same_key(agent: Agent) -> Agent:
    return replace(agent, init=lambda keys, hyper: agent.init(keys[jnp.zeros(len(keys), int)], hyper))


def same_hyper(agent: Agent) -> Agent:
    return replace(agent, init=lambda keys, hyper: agent.init(keys, jax.tree.map(lambda x: x[0], hyper)))


def neighbours_hyper(agent: Agent) -> Agent:
    return replace(agent, init=lambda keys, hyper: agent.init(keys, jax.tree.map(lambda x: x[::-1], hyper)))


def mean_of_members(agent: Agent) -> Agent:
    def iterate(state: Any) -> tuple[Any, Any]:
        state, metrics = agent_iterate(agent)(state)
        return state, jax.tree.map(lambda x: jnp.broadcast_to(x.mean(0), x.shape), metrics)

    return replace(agent, iterate=iterate)


MISTAKES = [same_key, same_hyper, neighbours_hyper, mean_of_members]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda x: x.__name__)
def test_a_mistake_in_a_population_is_caught(
    mistake: Callable[[Agent], Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "execute", lambda *_, **__: mistake(many("dqn")))
    assert deviations("dqn", "purejax") != []


def first_of_all(predicate: Any) -> Any:
    """The predicate of member 0 for all members."""

    @jax.custom_batching.custom_vmap
    def chosen(x: Any) -> Any:
        return x

    @chosen.def_vmap
    def rule(axis_size: int, batched: list[bool], x: Any) -> tuple[Any, bool]:
        return (x[0] if batched[0] else x), False

    return chosen(predicate)


@cache
def cartpole() -> Agent:
    """Episodes that end in different steps, and resets in a cond of each member."""
    make, _ = registry.load("ppo", "purejax")
    config = replace(TINY, num_steps=16, num_epochs=1, hidden_sizes=(4,), dtype=DTYPE)
    return make(config, envs.make("gymnax/CartPole-v1", TINY.num_envs, "jax"))


def episodes_as_alone() -> bool:
    size = 2
    agent = members.execute(cartpole(), backend("purejax"), "jit", "chunk", 3, size=size, group=size)
    _, metrics = trained(agent)
    single = subject("ppo", "purejax").execute(cartpole(), "jit", "chunk", 3)
    expected = [trained(single, single.key(SEED + i))[1] for i in range(size)]
    return all(np.allclose(metrics["loss"][i], x["loss"], rtol=1e-12) for i, x in enumerate(expected))


def test_members_take_branches_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert episodes_as_alone()
    jax.clear_caches()
    monkeypatch.setattr(vectorise, "any_member", first_of_all)
    cartpole.cache_clear()
    assert not episodes_as_alone()
