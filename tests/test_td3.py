"""TD3: every backend computes what the oracle computes, keeps the laws of the contract, and learns.

Backends are built once and shared by all tests, in mode `none`: compiling is what costs.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from representatives import measured as parameters_of
from representatives import quickest, representatives
from test_contract import IN_PROCESS

from benchback import envs, registry
from benchback.agent import Agent, Role, Weights, network_of, start
from benchback.algorithms.offpolicy import to_experience
from benchback.algorithms.td3.config import Config
from benchback.algorithms.td3.loss import METRICS, Minibatch
from benchback.backends import nnx
from benchback.envs.interface import Box
from benchback.errors import InputError
from benchback.parity import DTYPES, Row, execution
from benchback.parity.environment import BOX
from benchback.parity.laws import different
from benchback.parity.oracle import of_towers
from benchback.parity.subject import Subject, computing
from benchback.parity.td3 import cases, oracle
from benchback.parity.td3.levels import LEVELS
from benchback.parity.tolerance import TOLERANCE
from benchback.registry import BACKENDS
from benchback.training import advance, checkpoint, train
from benchback.training.checkpoint import Checkpoint
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

JAX_FAMILY = [name for name, spec in BACKENDS.items() if spec.family == "jax"]
FAMILIES = {"purejax": "jax", "pytorch": "torch"}
"""One backend of each: what is mutated is shared by the family, or differs only in its spelling."""
AGENTS: dict[str, dict] = {dtype: {} for dtype in DTYPES}


def subject(backend: str, dtype: str = "float32") -> Subject:
    return Subject("td3", backend, dtype, AGENTS[dtype])


def built(backend: str) -> Agent:
    return subject(backend).agent(cases.BASE, "box")


def measured(subject: Subject, level: str) -> list[Row]:
    with computing(subject.dtype, optimised=False):
        found = list(LEVELS[level](subject))
    allowed = TOLERANCE[subject.dtype][level]
    return [
        Row("td3", subject.backend, level, quantity, subject.dtype, off, allowed[quantity.partition("/")[0]])
        for quantity, off in found
    ]


@cache
def rows(backend: str, level: str, dtype: str = "float32") -> list[Row]:
    """Measured once for all tests."""
    return measured(replace(subject(backend, dtype), mode=quickest(backend)), level)


@pytest.fixture(autouse=True)
def _quick_to_compile() -> Iterator[None]:
    with computing("float32", optimised=False):
        yield


# Parity.

LOSS = {f"metric/{name}" for name in METRICS}
STATE = {"weight", "mean", "variance", "count", "names"}
QUANTITIES = {
    "L0": {"real_action/greedy", "initial_kernel", "initial_bias", "names/target", "names/twins"},
    "L1": LOSS | STATE | {"gradient", "dtype", "names/delayed"},
    "L2": LOSS | STATE,
    "L3": {f"{q}{place}" for q in LOSS | STATE | {"names/unlearnt", "count/inserted"} for place in ("", "/iteration")}
    | {"episode/episode_return", "real_action/iteration", "real_action/obs/iteration"}
    | {"real_action/final_obs/iteration"},
}
MEASURED = parameters_of({"float32": ("L0", "L1", "L2", "L3"), "float64": ("L0", "L1", "L2")})


@pytest.mark.parametrize(("backend", "dtype", "level"), MEASURED)
def test_backend_is_within_tolerance_in_every_quantity(backend: str, dtype: str, level: str) -> None:
    found = rows(backend, level, dtype)
    assert {row.quantity for row in found} >= QUANTITIES[level]
    assert [row for row in found if not row.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", JAX_FAMILY)
def test_the_best_execution_of_each_backend_changes_no_number(backend: str) -> None:
    """The others: `benchback parity --algorithm td3`."""
    best = execution.best(BACKENDS[backend])
    found = list(execution.executions(subject(backend), cases.TINY, "box", [best]))
    assert {quantity for quantity, _ in found} >= {f"{q}/{'/'.join(best)}" for q in STATE}
    allowed = TOLERANCE["float32"]["L4"]
    assert [quantity for quantity, off in found if not off <= allowed[quantity.partition("/")[0]]] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch"])
def test_every_execution_of_pytorch_changes_no_number(backend: str) -> None:
    """In a process without annotation checks, which torch.compile cannot see through."""
    code = f"""
import json
from dataclasses import asdict
from benchback.parity import measure
print(json.dumps([asdict(row) for row in measure("td3", [{backend!r}], ["float32"], ["L4"])]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    found = [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]
    assert {mode for row in found for mode in BACKENDS[backend].modes if f"/{mode}/" in row.quantity} >= {
        "env_jit",
        "script",
        "compile",
    }
    assert [row for row in found if not row.ok] == []


NATIVE = """
import json, sys
import numpy as np
from torch._dynamo.utils import counters
from benchback import envs, registry
from benchback.agent import start
from benchback.parity.td3.cases import TINY
from benchback.training import advance

make, backend = registry.load("td3", "pytorch", "framework")
agent = make(TINY, envs.make("torch/Pendulum-v1", TINY.num_envs, "torch"))
weights, compiles = {}, []
for mode in ("none", "compile"):
    executed = backend.modes[mode](agent)
    state = start(executed, 3)
    for _ in range(4):
        before = backend.compiles()
        state, _ = advance(executed, state)
        compiles.append(backend.compiles() - before)
    weights[mode] = {name: np.asarray(x, float) for name, x in executed.export(state).items() if name != "rng"}
off = max(np.abs(x - weights["compile"][name]).max() for name, x in weights["none"].items())
print(json.dumps([compiles, sum(counters["graph_break"].values()), off, "jax" in sys.modules]))
"""


@pytest.mark.slow
def test_rollouts_of_a_native_environment_compile_without_graph_breaks() -> None:
    """Of continuous actions; those of discrete ones are in test_torch_modes.py."""
    done = subprocess.run([sys.executable, "-c", NATIVE], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    compiles, breaks, off, with_jax = json.loads(done.stdout.splitlines()[-1])
    assert compiles[:4] == [0] * 4
    assert compiles[4] > 0
    assert compiles[-1] == 0
    assert (breaks, with_jax) == (0, False)
    assert off < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", JAX_FAMILY)
def test_every_execution_changes_no_number(backend: str, dtype: str) -> None:
    assert [row for row in measured(subject(backend, dtype), "L4") if not row.ok] == []


# The oracle, and what it is tried on.


def numerical_gradient(loss: Callable[[Weights], float], weights: Weights, towers: tuple[str, ...]) -> Weights:
    """Central differences by every weight of the towers."""
    result = {name: np.zeros_like(x) for name, x in of_towers(weights, towers).items()}
    for name, gradient in result.items():
        for index in np.ndindex(gradient.shape):
            step = np.zeros_like(gradient)
            step[index] = 1e-6
            sides = (loss(weights | {name: weights[name] + sign * step}) for sign in (1, -1))
            gradient[index] = (next(sides) - next(sides)) / 2e-6
    return result


def test_oracle_gradients_equal_finite_differences() -> None:
    case = cases.single_steps()[0]
    data = Minibatch(*(x.astype(float) if x.dtype == np.float32 else x for x in case.minibatch))
    td_target = oracle.target(case.weights, data, BOX, case.config)
    objectives = {
        oracle.CRITICS: lambda w: oracle.critic_objective(w, data, td_target),
        ("actor",): lambda w: oracle.actor_objective(w, data.obs, BOX),
    }
    for towers, objective in objectives.items():
        metrics, found = objective(case.weights)
        loss = next(name for name in metrics if name.endswith("loss"))
        expected = numerical_gradient(lambda w, f=objective, loss=loss: f(w)[0][loss], case.weights, towers)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            np.testing.assert_allclose(found[name], gradient, atol=2e-8)


def test_oracle_target_is_the_smaller_value_of_what_follows_and_nothing_after_the_end() -> None:
    case = cases.single_steps()[0]
    still = case.minibatch._replace(noise=np.zeros_like(case.minibatch.noise))
    found = oracle.target(case.weights, still, BOX, case.config)
    slow = {name.removeprefix("target/"): x for name, x in case.weights.items() if name.startswith("target/")}
    action = oracle.policy(slow, still.next_obs, BOX)
    both = np.stack([oracle.value(slow, tower, still.next_obs, action) for tower in oracle.CRITICS])
    expected = still.reward + case.config.gamma * both.min(0) * ~still.terminated
    np.testing.assert_allclose(found, expected)


def test_minibatches_take_every_branch() -> None:
    case = cases.single_steps()[1]
    noise = case.config.target_noise * case.minibatch.noise
    assert (noise > case.config.target_noise_clip).any()
    assert (noise < -case.config.target_noise_clip).any()
    slow = {name.removeprefix("target/"): x for name, x in case.weights.items() if name.startswith("target/")}
    action = oracle.policy(slow, case.minibatch.next_obs, BOX)
    moved = action + oracle.half_range(BOX) * np.clip(
        noise, -case.config.target_noise_clip, case.config.target_noise_clip
    )
    assert (moved > BOX.high[0]).any()
    assert (moved < BOX.low[0]).any()
    both = np.stack([oracle.value(slow, t, case.minibatch.next_obs, action) for t in oracle.CRITICS])
    assert {0, 1} == set(both.argmin(0))
    assert case.minibatch.terminated.any()
    assert not case.minibatch.terminated.all()
    turns = {int(c.weights["critic_adam/count"]) % c.config.policy_delay == 0 for c in cases.single_steps()}
    assert turns == {True, False}


def test_float32_holds_every_number_of_the_cases() -> None:
    for config in (cases.BASE, cases.PLAIN, cases.TINY):
        assert all(np.float32(x) == x for x in config.hyper)
    for case in cases.single_steps():
        assert all(np.array_equal(x, x.astype(np.float32)) for x in case.weights.values())


def test_oracle_shares_no_framework_and_no_maths_with_what_it_checks() -> None:
    code = "import sys, benchback.parity.td3.oracle; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jax", "torch", "optax", "benchback.math.jax", "benchback.math.torch", "benchback.backends"} & set(
        found
    )


# Known mistakes, made on purpose: each must be caught.

Wrong = Callable[[Any], Any]
"""The right function -> one with a mistake."""


def caught(backend: str, level: str) -> set[str]:
    """Quantities out of tolerance, of an agent made now."""
    return {row.quantity for row in measured(Subject("td3", backend, "float32", {}), level) if not row.ok}


def still(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else jax.lax.stop_gradient(x)


def inverted_polyak(right: Any) -> Any:
    """Targets that keep 0.005 of themselves."""
    return lambda target, online, tau: right(target, online, 1 - tau)


def positive_noise(right: Any) -> Any:
    return lambda noise, scale, limit: right(abs(noise), scale, limit)


def unclipped_noise(right: Any) -> Any:
    return lambda noise, scale, limit: scale * noise


def larger_value(right: Any) -> Any:
    """The greater of both values in place of the smaller."""

    def wrong(reward: Any, terminated: Any, first: Any, second: Any, gamma: Any) -> Any:
        both = right(reward, terminated, first, first, gamma) + right(reward, terminated, second, second, gamma)
        return both - right(reward, terminated, first, second, gamma)

    return wrong


def minimum_over_the_batch(right: Any) -> Any:
    """The wrong axis."""

    def wrong(reward: Any, terminated: Any, first: Any, second: Any, gamma: Any) -> Any:
        return right(reward, terminated, 0 * first + first.min(), 0 * second + second.min(), gamma)

    return wrong


def through_termination(right: Any) -> Any:
    return lambda reward, terminated, *rest: right(reward, terminated & False, *rest)


def moving_target(right: Any) -> Any:
    """A target of the right value whose gradient is not stopped."""
    return lambda values, target: right(values, target + 0.5 * (values[0] - still(values[0])))


def done_for_terminated(right: Any) -> Any:
    """A time limit taken for the end of all reward."""
    return lambda batch, config: right(batch._replace(terminated=batch.terminated | batch.truncated), config)


def next_episode(right: Any) -> Any:
    """The observation after the reset in place of the final one."""
    later = np.array([1, 2, 3, 3])
    return lambda batch, config: right(batch._replace(final_obs=batch.obs[later]), config)


def shared_noise(right: Any) -> Any:
    """One key for all gradient steps of an update."""
    return lambda rows, noise, config: right(rows, 0 * noise + noise[:1], config)


def first_rows(right: Any) -> Any:
    """The rows of the first gradient step in every gradient step."""

    def wrong(random: Any, replay: Any, inserted: Any, shape: Any) -> Any:
        first = np.arange(shape[0]) % cases.BASE.minibatch_size
        return right(random, replay, inserted, shape)[first]

    return wrong


def uniform_noise(right: Any) -> Any:
    def wrong(source: Any, shape: Any, dtype: Any) -> Any:
        if isinstance(source, torch.Generator):
            return torch.rand(shape, dtype=dtype, generator=source)
        return jax.random.uniform(source, shape, dtype)

    return wrong


def no_delay(right: Any) -> Any:
    """The policy and the targets moved with every gradient step."""
    return lambda config, *rest: right(replace(config, policy_delay=1), *rest)


def smaller_learning_rate(right: Any) -> Any:
    """One learning rate for both optimisers."""
    return lambda config, *rest: right(replace(config, actor_learning_rate=config.critic_learning_rate), *rest)


MISTAKES = {
    "inverted_polyak": ("L1", "math", "polyak", inverted_polyak),
    "positive_noise": ("L1", "math", "smoothing_noise", positive_noise),
    "unclipped_noise": ("L1", "math", "smoothing_noise", unclipped_noise),
    "larger_value": ("L1", "math", "twin_target", larger_value),
    "minimum_over_the_batch": ("L1", "math", "twin_target", minimum_over_the_batch),
    "through_termination": ("L1", "math", "twin_target", through_termination),
    "moving_target": ("L1", "file", "critic_loss", moving_target),
    "no_delay": ("L1", "file", "make", no_delay),
    "smaller_learning_rate": ("L1", "file", "make", smaller_learning_rate),
    "done_for_terminated": ("L3", "file", "to_experience", done_for_terminated),
    "next_episode": ("L3", "file", "to_experience", next_episode),
    "shared_noise": ("L3", "file", "make_minibatches", shared_noise),
    "first_rows": ("L3", "math", "sample_indices", first_rows),
    "uniform_noise": ("L3", "math.gaussian", "noise", uniform_noise),
}


@pytest.mark.parametrize("backend", FAMILIES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_caught(mistake: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    level, place, name, wrong = MISTAKES[mistake]
    assert [row for row in rows(backend, level) if not row.ok] == []
    module = {
        "math": f"benchback.math.{FAMILIES[backend]}",
        "math.gaussian": f"benchback.math.{FAMILIES[backend]}.gaussian",
        "file": f"benchback.algorithms.td3.{backend}",
    }[place]
    registry.load("td3", backend)
    monkeypatch.setattr(sys.modules[module], name, wrong(getattr(sys.modules[module], name)))
    assert "weight" in caught(backend, level)


def wrong_critic(right: Any) -> Any:
    return lambda params, obs, action, tower="critic2", *rest: right(params, obs, action, tower, *rest)


def wrong_critic_of_module(right: Any) -> Any:
    return lambda model, obs, action: model.values(obs, action)[1]


@pytest.mark.parametrize(
    ("backend", "owner", "wrong"),
    [("purejax", None, wrong_critic), ("pytorch", "ActorCritic", wrong_critic_of_module)],
)
def test_actor_that_follows_the_second_critic_is_caught(
    backend: str, owner: str | None, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[registry.load("td3", backend)[0].__module__]
    target = getattr(module, owner) if owner else module
    monkeypatch.setattr(target, "value", wrong(target.value))
    assert {"metric/actor_loss", "gradient", "weight"} <= caught(backend, "L1")


def tanh_layers(right: Any) -> Any:
    return lambda layers, x, activation, *rest: right(layers, x, "tanh", *rest)


def tanh_module(right: Any) -> Any:
    return lambda *arguments: right(*("tanh" if x == "relu" else x for x in arguments))


@pytest.mark.parametrize(
    ("backend", "name", "wrong"), [("purejax", "mlp", tanh_layers), ("pytorch", "MLP", tanh_module)]
)
def test_tanh_in_place_of_relu_is_caught(
    backend: str, name: str, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[registry.load("td3", backend)[0].__module__]
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    assert "real_action/greedy" in caught(backend, "L0")


# The laws of the contract.


def trained(agent: Agent, seed: int, iterations: int = 2, weights: Weights | None = None) -> Weights:
    state = start(agent, seed, weights)
    for _ in range(iterations):
        state, _ = advance(agent, state)
    return agent.export(state)


def honours_its_seed(agent: Agent) -> bool:
    """Equal seeds lead to equal states, and other seeds to other weights, environments and random streams."""
    first = trained(agent, seed=1)
    other = set(different(first, trained(agent, seed=2)))
    must = {"actor/0/kernel", "critic1/0/kernel", "critic2/0/kernel", "env/obs", "rng", "replay/data/action"}
    return different(first, trained(agent, seed=1)) == [] and must <= other


@pytest.mark.parametrize("backend", representatives())
def test_equal_seeds_reproduce_bit_for_bit_and_seeds_differ(backend: str) -> None:
    assert honours_its_seed(built(backend))


@pytest.mark.parametrize("backend", FAMILIES)
def test_a_seed_that_is_ignored_is_noticed(backend: str) -> None:
    right = built(backend)
    assert not honours_its_seed(replace(right, key=lambda seed: right.key(0)))


@pytest.mark.parametrize("backend", representatives())
def test_rollout_learns_and_remembers_nothing_and_update_leaves_the_environment_alone(backend: str) -> None:
    agent = built(backend)
    state = start(agent, 1, trained(agent, seed=1))
    before = agent.export(state)
    state, batch = agent.rollout(state)
    after_rollout = agent.export(state)
    assert all(name == "rng" or name.startswith("env/") for name in different(before, after_rollout))
    state, _ = agent.update(state, batch)
    changed = different(after_rollout, agent.export(state))
    assert {"actor/0/kernel", "target/critic2/0/kernel", "replay/data/obs", "replay/inserted"} <= set(changed)
    assert not any(name.startswith("env/") for name in changed)
    # What was exported is a copy.
    assert different(before, agent.export(start(agent, 2, before))) == []


@pytest.mark.parametrize("backend", representatives())
def test_nothing_is_learnt_before_there_is_enough(backend: str) -> None:
    agent = built(backend)
    state = start(agent, 1)
    before = agent.export(state)
    state, metrics = advance(agent, state)
    changed = different(before, agent.export(state))
    assert all(name == "rng" or name.startswith(("env/", "replay/")) for name in changed)
    fetched = subject(backend).fetch(metrics)
    assert set(fetched) == {*METRICS, "episode_return", "episode_length", "episodes"}
    assert all(np.isnan(fetched[name]) for name in METRICS)
    state, metrics = advance(agent, state)
    fetched = subject(backend).fetch(metrics)
    assert all(np.isfinite(fetched[name]) and np.shape(fetched[name]) == () for name in METRICS)


@pytest.mark.parametrize("backend", representatives(JAX_FAMILY))
def test_nothing_is_compiled_twice_and_floats_are_data(backend: str) -> None:
    agent, (_, framework) = built(backend), registry.load("td3", backend)
    state = start(agent, 1)
    for _ in range(2):
        state, _ = advance(agent, state)
    compiles = framework.compiles()
    state = with_polyak(state, 0.25)
    state, _ = advance(agent, state)
    assert framework.compiles() - compiles <= 4  # the change itself
    compiles = framework.compiles()
    state, _ = advance(agent, state)
    assert framework.compiles() == compiles
    assert "target/actor/0/kernel" in different(trained(agent, 1, 4), agent.export(state))


def with_polyak(state: Any, value: float) -> Any:
    hyper = state.hyper.get_value() if hasattr(state.hyper, "get_value") else state.hyper
    changed = hyper._replace(polyak=jnp.full_like(hyper.polyak, value))
    if hasattr(state, "_replace"):
        return state._replace(hyper=changed)
    state.hyper.set_value(changed)
    return state


def test_the_replay_is_written_in_place() -> None:
    """An update needs less room beside its state than the replay takes."""
    config = replace(cases.TINY, replay_capacity=100_000)
    make, _ = registry.load("td3", "purejax")
    agent = make(config, envs.make("probe/Target", config.num_envs, "jax"))
    state, batch = jax.eval_shape(agent.rollout, start(agent, 0))
    program: Any = jax.jit(agent.update, donate_argnums=0).lower(state, batch).compile()
    assert program.memory_analysis().temp_size_in_bytes < config.replay_capacity


def pure(backend: str) -> Agent:
    """The agent as functions of arrays: NNX by its functional view."""
    return nnx.functional(built(backend)) if backend == "nnx" else built(backend)


def iterate(agent: Agent) -> Callable[[Any], Any]:
    return lambda state: agent.update(*agent.rollout(state))


def conds(jaxpr: Any) -> list[Any]:
    """The `cond` equations of a program, wherever they are nested."""
    found = [equation for equation in jaxpr.eqns if equation.primitive.name == "cond"]
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            found += conds(part) if hasattr(part, "eqns") else []
    return found


def conds_of_members(agent: Agent, shared: set[Role]) -> int:
    """How many conds a population of three has left, fields of the roles `shared` being the same for all of it."""

    def axis(path: Any, leaf: Any) -> int | None:
        names = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
        field = next(name for name in names if name in agent.roles)
        return None if agent.roles[field] in shared else 0

    keys, hyper = jax.random.split(jax.random.key(0), 3), agent.hyper
    one = jax.eval_shape(agent.init, keys[0], hyper)
    axes = jax.tree_util.tree_map_with_path(axis, one)
    population = jax.eval_shape(jax.vmap(agent.init, (0, None), axes), keys, hyper)
    program = jax.make_jaxpr(jax.vmap(iterate(agent), (axes,), (axes, 0)))(population)
    return len(conds(program.jaxpr))


@pytest.mark.parametrize("backend", representatives(JAX_FAMILY))
def test_a_population_decides_once_for_all_members(backend: str) -> None:
    """Whether to learn and to move the policy depends on counters alone, so that vmap keeps both conditions."""
    agent = pure(backend)
    one = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper)
    alone = len(conds(jax.make_jaxpr(iterate(agent))(one).jaxpr))
    assert alone == 2
    assert conds_of_members(agent, {Role.COUNTER}) == alone
    # With counters of their own, members could decide otherwise, and all would do everything.
    assert conds_of_members(agent, set()) < alone


@pytest.mark.parametrize("backend", representatives(JAX_FAMILY))
def test_the_replay_passes_through_no_cond(backend: str) -> None:
    agent = pure(backend)
    state = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper)
    minibatch = subject(backend).place_all(cases.minibatch(np.random.default_rng(0)))
    for program in (jax.make_jaxpr(iterate(agent))(state), jax.make_jaxpr(agent.learn)(state, minibatch)):
        found = conds(program.jaxpr)
        shapes = [x.aval.shape for equation in found for x in (*equation.invars, *equation.outvars)]
        assert shapes
        assert not any(shape[:1] == (cases.BASE.replay_capacity,) for shape in shapes)


@pytest.mark.parametrize("backend", representatives())
def test_networks_flatten_observations_of_any_shape(backend: str) -> None:
    agent, own = built(backend), subject(backend)
    weights, flat = cases.networks(np.random.default_rng(0)), cases.minibatch(np.random.default_rng(1))
    image = flat._replace(obs=flat.obs[:, None, :, None], next_obs=flat.next_obs[:, None, :, None])
    actions = [own.greedy(agent, start(agent, 0, weights), x.obs) for x in (flat, image)]
    assert np.array_equal(actions[0], actions[1])
    learnt = [agent.export(agent.learn(start(agent, 0, weights), own.place_all(x))[0]) for x in (flat, image)]
    assert different(*learnt) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_without_finite_bounds_are_refused(backend: str) -> None:
    make, _ = registry.load("td3", backend)
    env = replace(envs.make("probe/Target", 1, BACKENDS[backend].family), actions=Box((-1.0,), (np.inf,)))
    with pytest.raises(InputError, match=r"finite bounds.*Pendulum"):
        make(cases.TINY, env)


@pytest.mark.parametrize(
    "fields",
    [{"policy_delay": 0}, {"polyak": 1.5}, {"start_steps": -1}, {"target_noise": -0.1}, {"replay_capacity": 0}],
)
def test_wrong_settings_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(fields))):
        Config(**fields)


def test_defaults_are_those_of_the_published_runs() -> None:
    config = Config()
    assert (config.hidden, config.minibatch_size, config.policy_delay) == ((256, 256, 256), 100, 2)
    assert (config.num_steps, config.num_updates, config.num_envs) == (50, 50, 1)
    assert (config.start_steps, config.update_after, config.replay_capacity) == (10_000, 10_000, 1_000_000)
    assert (config.polyak, config.gamma, config.actor_learning_rate, config.critic_learning_rate) == (
        *(0.995, 0.99),
        *(1e-3, 1e-3),
    )
    assert (config.exploration_noise, config.target_noise, config.target_noise_clip) == (0.1, 0.2, 0.5)


def test_a_time_limit_is_an_end_only_where_it_is_asked_for() -> None:
    batch = cases.transitions(np.random.default_rng(0), cases.BASE)
    assert np.array_equal(to_experience(batch, cases.BASE).terminated, batch.terminated.ravel())
    assert np.array_equal(to_experience(batch, cases.PLAIN).terminated, (batch.terminated | batch.truncated).ravel())
    assert np.array_equal(to_experience(batch, cases.BASE).next_obs[8], batch.final_obs[1, 0])


# Checkpoints.


@pytest.mark.parametrize("writer", ["haiku", "nnx", "pytorch"])
@pytest.mark.parametrize("reader", representatives())
def test_any_backend_takes_over_any_other_s_networks_optimisers_and_replay(
    writer: str, reader: str, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.write(path, Checkpoint(trained(built(writer), seed=3), 2, {"algorithm": "td3"}))
    theirs = network_of(checkpoint.read(path).weights)
    agent = built(reader)
    state = start(agent, 9, theirs)
    assert different(theirs, network_of(agent.export(state))) == []
    assert {"target/critic1/0/kernel", "actor_adam/mean/actor/0/kernel", "critic_adam/variance/critic2/0/bias"} <= set(
        theirs
    )
    assert theirs["replay/inserted"] == 2 * cases.BASE.batch_size
    state, _ = advance(agent, state)
    assert agent.export(state)["critic_adam/count"] == theirs["critic_adam/count"] + cases.BASE.num_updates


@pytest.mark.parametrize("backend", representatives())
def test_resuming_equals_the_unbroken_run_bit_for_bit(backend: str) -> None:
    agent = built(backend)
    resumed = trained(agent, seed=8, iterations=2, weights=trained(agent, seed=3, iterations=2))
    assert different(trained(agent, seed=3, iterations=4), resumed) == []


# Probes and learning.

PROBE = Config(
    num_envs=8,
    num_steps=4,
    num_iterations=60,
    num_updates=16,
    minibatch_size=64,
    replay_capacity=2048,
    update_after=256,
    hidden_sizes=(32,),
    actor_learning_rate=0.003,
    critic_learning_rate=0.01,
    polyak=0.9,
    gamma=0.5,
)
"""All actions are random: what the policy learns it learns from others' experience."""


@cache
def learnt(backend: str, probe: str, truncation: str = "bootstrap") -> tuple[np.ndarray, np.ndarray, float]:
    """Observations, greedy actions, and what the agent thinks its own actions are worth."""
    make, framework = registry.load("td3", backend)
    config = replace(PROBE, truncation=truncation)
    env = envs.make(f"probe/{probe}", config.num_envs, BACKENDS[backend].family)
    unit = "chunk" if BACKENDS[backend].family == "jax" else "phase"
    agent = registry.execute(make(config, env), framework, IN_PROCESS[backend], unit, config.num_iterations)
    state = start(agent, 0)
    for _ in range(1 if unit == "chunk" else config.num_iterations):
        state, metrics = advance(agent, state)
    obs = framework.fetch({"obs": env.reset(env.random(5)).obs})["obs"]
    place = Subject("td3", backend, "float32", {}).place
    _, action = agent.act(state, (), place(obs))
    return (
        obs,
        framework.fetch({"action": action})["action"],
        -float(np.ravel(framework.fetch(metrics)["actor_loss"])[-1]),
    )


PROBED = [
    *((b, "CutTarget") for b in BACKENDS),
    ("purejax", "ObsTarget"),
    ("pytorch", "Target"),
    ("pytorch", "ObsTarget"),
]
QUICK = (("purejax", "CutTarget"), ("purejax", "ObsTarget"), ("pytorch", "CutTarget"))


@pytest.mark.parametrize(
    ("backend", "probe"), [pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.slow]) for pair in PROBED]
)
def test_backend_learns_the_known_action_and_its_value(backend: str, probe: str) -> None:
    obs, action, value = learnt(backend, probe)
    expected = 0.5 * obs if probe == "ObsTarget" else np.full_like(action, 0.5)
    assert np.abs(action - expected).max() < 0.2
    # Smoothing costs up to the variance of the noise, here 0.04, wherever the agent goes on.
    assert value == pytest.approx(1 / (1 - PROBE.gamma) if probe == "CutTarget" else 0.0, abs=0.1)


def test_without_bootstrapping_through_truncation_the_probe_fails() -> None:
    # One and two rewards remain in turn, and the observation does not tell which.
    assert learnt("pytorch", "CutTarget", "terminal")[2] < 1.6


SMALL = Config(num_iterations=180, hidden_sizes=(64, 64), start_steps=1000, update_after=1000, replay_capacity=20_000)


def greedy_return(backend: str, config: Config, seed: int = 0) -> float:
    run = Run(
        config,
        env="gymnax/Pendulum-v1",
        backend=backend,
        mode=IN_PROCESS[backend],
        unit="chunk" if BACKENDS[backend].family == "jax" else "phase",
        chunk=config.num_iterations,
        seed=seed,
    )
    *_, last = train(run)
    return float(evaluate(run, last.export(), episodes=16).mean())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_pendulum_is_solved_within_9000_steps(backend: str) -> None:
    with computing("float32", optimised=True):
        assert greedy_return(backend, SMALL) >= -200
