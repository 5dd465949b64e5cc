"""VPG keeps what every algorithm promises: parity, the laws of the contract, known values, checkpoints, learning."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from representatives import measured, representatives
from test_contract import IN_PROCESS

from benchback import envs, registry
from benchback.agent import Agent, Backend, Role, Weights, network_of, start
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.vpg.config import Config
from benchback.algorithms.vpg.loss import Minibatch
from benchback.backends import nnx
from benchback.errors import InputError
from benchback.parity import Row
from benchback.parity.execution import best, executions, plan
from benchback.parity.laws import different
from benchback.parity.oracle import of_towers, parameters
from benchback.parity.subject import Subject, computing
from benchback.parity.tolerance import TOLERANCE
from benchback.parity.vpg import cases, levels, oracle
from benchback.registry import BACKENDS
from benchback.training import advance, checkpoint, train
from benchback.training.checkpoint import Checkpoint
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

FAMILIES = {"purejax": "jax", "pytorch": "torch"}
JAX = [name for name, spec in BACKENDS.items() if spec.family == "jax"]
TINY = Config(num_envs=4, num_steps=8, num_value_steps=3, num_iterations=4, hidden_sizes=(8, 8))


# Parity.


KINDS_OF = {"float32": cases.KINDS, "float64": ("box",)}
"""A Gaussian policy has all that a categorical one has and a spread."""
MEASURED = {"float32": ("L0", "L1", "L2", "L3"), "float64": ("L0", "L1", "L2")}
OF_KIND = {"L0": levels.forward, "L1": levels.one_step, "L2": levels.ten_steps, "L3": levels.update}


def wrong(subject: Subject, level: str, kinds: Sequence[cases.Kind]) -> tuple[set[str], set[str]]:
    """All quantities of the level, and those that are off."""
    with computing(subject.dtype, optimised=False):
        found = [deviation for kind in kinds for deviation in OF_KIND[level](subject, kind)]
    allowed = TOLERANCE[subject.dtype][level]
    off = {quantity for quantity, deviation in found if not deviation <= allowed[quantity.split("/")[0]]}
    return {quantity for quantity, _ in found}, off


@cache
def compiled(dtype: str) -> dict[Any, Agent]:
    """Agents of all tests of a precision: backends are compared with the same one."""
    return {}


METRICS = {"policy_loss", "entropy", "approximate_kl", "actor_grad_norm", "value_loss", "critic_grad_norm"}
LOSS = {f"metric/{name}" for name in METRICS}
EPISODES = {"episode/episode_return", "episode/episode_length", "episode/episodes"}
STATE = {"weight", "mean", "variance", "count", "names"}
INITIAL = {"initial_kernel", "initial_bias", "initial_log_std"}
EXPECTED = {
    "L0": {"greedy", "log_prob", "value", "final_value"} | INITIAL,
    "L1": LOSS | STATE | {"gradient", "dtype"},
    "L2": LOSS | STATE,
    "L3": (whole := LOSS | STATE | EPISODES)
    | {f"{quantity}/iteration" for quantity in whole | {"action", "real_action/obs"}},
}
"""What a backend cannot leave out."""


@pytest.mark.parametrize(("backend", "dtype", "level"), measured(MEASURED))
def test_backend_is_within_tolerance_in_every_quantity(backend: str, level: str, dtype: str) -> None:
    kinds = KINDS_OF[dtype] if backend in FAMILIES else ("box",)
    quantities, off = wrong(Subject("vpg", backend, dtype, compiled(dtype)), level, kinds)
    assert quantities == EXPECTED[level]
    assert off == set()


@pytest.mark.slow
@pytest.mark.parametrize("backend", JAX)
def test_the_best_mode_in_the_widest_unit_changes_nothing(backend: str) -> None:
    """One of the backends shows it for all its modes and units."""
    chosen = plan(BACKENDS[backend]) if backend == "linen" else [best(BACKENDS[backend])]
    subject = Subject("vpg", backend, "float64", compiled("float64"))
    with computing("float64", optimised=False):
        found = list(executions(subject, cases.TINY, "box", chosen))
    assert_within_tolerance(found, "float64")


def assert_within_tolerance(found: list[tuple[str, float]], dtype: str) -> None:
    assert {quantity.split("/")[0] for quantity, _ in found} == STATE | {"metric", "episode", "greedy"}
    assert [(q, off) for q, off in found if not off <= TOLERANCE[dtype]["L4"][q.split("/")[0]]] == []


@pytest.mark.slow
def test_torch_modes_change_nothing() -> None:
    """In a process without annotation checks, which torch.compile cannot see through."""
    code = """
import json
from benchback.parity.execution import executions
from benchback.parity.subject import Subject, computing
from benchback.parity.vpg import cases
with computing("float32", optimised=False):
    subject = Subject("vpg", "pytorch", "float32", {})
    chosen = [("script", "phase"), ("compile", "iteration")]
    print(json.dumps(list(executions(subject, cases.TINY, "box", chosen))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert_within_tolerance(json.loads(done.stdout.splitlines()[-1]), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_execution_of_every_backend_is_within_tolerance(backend: str) -> None:
    code = f"""
import json
from dataclasses import asdict
from benchback.parity import measure
print(json.dumps([asdict(row) for row in measure("vpg", [{backend!r}], levels=["L4"])]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    found = [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]
    assert any(row.quantity.endswith("/population") for row in found) == (backend in JAX)
    assert [row for row in found if not row.ok] == []


# What they are tried on, and the oracle.


def test_real_valued_actions_go_beyond_the_bounds_and_rollouts_end_in_every_way() -> None:
    random = np.random.default_rng(3)
    batch = cases.transitions(cases.network(random, "box"), cases.BASE, random, "box")
    outside = np.abs(batch.action) > 1.5
    assert 0 < outside.mean() < 1
    assert len(set(zip(batch.terminated.ravel(), batch.truncated.ravel(), strict=True))) == 4


@pytest.mark.parametrize("kind", cases.KINDS)
def test_float32_holds_every_number_of_the_cases(kind: cases.Kind) -> None:
    assert all(np.float32(x) == x for x in cases.BASE.hyper)
    for case in cases.single_steps(kind):
        assert all(np.array_equal(x, x.astype(np.float32)) for x in case.weights.values())


@pytest.mark.parametrize(
    ("objective", "adam"), [("policy_objective", "actor_adam"), ("value_objective", "critic_adam")]
)
@pytest.mark.parametrize("kind", cases.KINDS)
def test_oracle_gradient_equals_finite_differences(kind: cases.Kind, objective: str, adam: str) -> None:
    case = cases.single_steps(kind)[0]
    minibatch = Minibatch(*(x.astype(float) if x.dtype == np.float32 else x for x in case.minibatch))
    of = getattr(oracle, objective)

    def loss(name: str, index: tuple[int, ...], step: float) -> float:
        moved = case.weights[name].copy()
        moved[index] += step
        return of(case.weights | {name: moved}, minibatch)[0]

    _, found = of(case.weights, minibatch)
    assert found.keys() == of_towers(parameters(case.weights), cases.TOWERS[adam]).keys()
    for name, gradient in found.items():
        for index in np.ndindex(gradient.shape):
            expected = (loss(name, index, 1e-6) - loss(name, index, -1e-6)) / 2e-6
            assert gradient[index] == pytest.approx(expected, abs=3e-9)


def rollout(**fields: Any) -> Transition:
    """Three steps of one environment: reward 1, value 0.25, nothing ends."""
    column = {name: np.full((3, 1), 0.25) for name in Transition._fields}
    flags = {name: np.zeros((3, 1), bool) for name in ("terminated", "truncated")}
    given = {name: np.reshape(x, (3, 1)) for name, x in fields.items()}
    return Transition(**column | flags | {"reward": np.ones((3, 1))} | given)


@pytest.mark.parametrize(
    ("batch", "truncation", "expected"),
    [
        # 16 stands for what follows the rollout, 8 for what would have followed the cut.
        (rollout(), "bootstrap", [1 + 0.5 + 0.25 + 2, 1 + 0.5 + 4, 1 + 8]),
        (rollout(terminated=[False, True, False]), "bootstrap", [1.5, 1, 9]),
        (rollout(truncated=[False, True, False], final_value=[0, 8, 0]), "bootstrap", [1.5 + 2, 1 + 4, 9]),
        (rollout(truncated=[False, True, False], final_value=[0, 8, 0]), "terminal", [1.5, 1, 9]),
    ],
)
def test_oracle_rewards_to_go_are_discounted_sums(batch: Transition, truncation: Any, expected: list[float]) -> None:
    config = replace(cases.BASE, gamma=0.5, truncation=truncation)
    np.testing.assert_allclose(oracle.rewards_to_go(batch, np.array([16.0]), config)[:, 0], expected)


# Known mistakes, made on purpose: each must be caught, and the check that catches it must pass without it.


def caught(backend: str, level: str, kind: cases.Kind) -> set[str]:
    return wrong(Subject("vpg", backend, "float32", {}), level, [kind])[1]


@cache
def caught_without_mistake(backend: str, level: str, kind: cases.Kind) -> set[str]:
    return caught(backend, level, kind)


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Callable[[Any], Any]], None]:
    """Replace the function `name` of a module by a wrong one."""

    def replace_by(module: str, name: str, wrong: Callable[[Any], Any]) -> None:
        target = import_module(module)
        monkeypatch.setattr(target, name, wrong(getattr(target, name)))

    return replace_by


def not_standardised(right: Any) -> Any:
    """Advantages as they are."""
    return lambda advantage: advantage


def sample_deviation(right: Any) -> Any:
    """ddof=1 in place of 0."""
    return lambda x: right(x) * ((len(x) - 1) / len(x)) ** 0.5


def at_the_policy_s_rate(right: Any) -> Any:
    """The value fitted by the policy's optimiser."""
    return lambda **options: right(**options | {"rate": "actor_learning_rate"})


def log_prob_of_clipped(right: Any) -> Any:
    """The action as the environment takes it in place of the one that was drawn."""
    return lambda policy_params, action: right(policy_params, action.clip(-1.5, 1.5))


def log_std_for_std(right: Any) -> Any:
    """A standard deviation taken for its logarithm."""
    log = {"benchback.math.jax.gaussian": jnp.log, "benchback.math.torch.gaussian": torch.log}[right.__module__]
    return lambda mean, log_std: right(mean, log(abs(log_std)))


def no_bootstrap(right: Any) -> Any:
    """A time limit taken for the end of all reward."""
    return lambda value, last_value, final_value, cut: right(value, last_value, 0 * final_value, cut)


MISTAKES: dict[str, tuple[str, cases.Kind, str, str, Any]] = {
    "not_standardised": ("L1", "discrete", "", "standardise", not_standardised),
    "sample_deviation": ("L1", "discrete", "", "standardise", sample_deviation),
    "at_the_policy_s_rate": ("L1", "discrete", "", "adam", at_the_policy_s_rate),
    "log_prob_of_clipped": ("L1", "box", ".gaussian", "log_prob", log_prob_of_clipped),
    "log_std_for_std": ("L1", "box", ".gaussian", "parameters", log_std_for_std),
    "no_bootstrap": ("L3", "box", "", "successor_value", no_bootstrap),
}


@pytest.mark.parametrize("backend", FAMILIES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_in_the_maths_is_caught(mistake: str, backend: str, mutate: Callable[..., None]) -> None:
    level, kind, module, name, make_wrong = MISTAKES[mistake]
    assert caught_without_mistake(backend, level, kind) == set()
    mutate(f"benchback.math.{FAMILIES[backend]}{module}", name, make_wrong)
    assert "weight" in caught(backend, level, kind)


def noise_of_the_first_step(right: Any) -> Any:
    """The noise of the first step of a rollout in all its steps."""
    return lambda random, shape, dtype: right(random, shape, dtype)[np.zeros(shape[0], int)]


@pytest.mark.parametrize("backend", FAMILIES)
def test_noise_taken_twice_is_caught(backend: str, mutate: Callable[..., None]) -> None:
    assert caught_without_mistake(backend, "L3", "box") == set()
    mutate(f"benchback.math.{FAMILIES[backend]}.gaussian", "noise", noise_of_the_first_step)
    assert caught(backend, "L3", "box") == {"action/iteration"}


def lambda_returns(right: Any) -> Any:
    """Values fitted to lambda-returns in place of rewards-to-go."""
    return lambda batch, advantage, target: right(batch, advantage, advantage + batch.value)


def one_value_step_less(right: Any) -> Any:
    """One step of the value too few."""
    return lambda config, *rest: right(replace(config, num_value_steps=config.num_value_steps - 1), *rest)


@pytest.mark.parametrize("backend", FAMILIES)
def test_other_mistakes_in_an_update_are_caught(backend: str, mutate: Callable[..., None]) -> None:
    assert caught_without_mistake(backend, "L3", "box") == set()
    module = import_module(f"benchback.algorithms.vpg.{backend}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "make_training_batch", lambda_returns(module.make_training_batch))
        assert {"weight", "metric/value_loss"} <= caught(backend, "L3", "box")
    mutate(f"benchback.algorithms.vpg.{backend}", "make", one_value_step_less)
    assert {"weight", "count"} <= caught(backend, "L3", "box")


# The laws of the contract.


@cache
def built(name: str) -> tuple[Agent, Backend, list[int]]:
    """An agent on CartPole, and how many programs each of its first three iterations compiled."""
    make, backend = registry.load("vpg", name)
    env = envs.make("gymnax/CartPole-v1", TINY.num_envs, BACKENDS[name].family)
    agent = registry.execute(make(TINY, env), backend, IN_PROCESS[name], "phase")
    state, counts = start(agent, 1), []
    for _ in range(3):
        before = backend.compiles()
        state, metrics = advance(agent, state)
        backend.block(metrics)
        counts.append(backend.compiles() - before)
    return agent, backend, counts


def trained(agent: Agent, seed: int) -> Weights:
    state = start(agent, seed)
    for _ in range(2):
        state, _ = advance(agent, state)
    return agent.export(state)


def honours_seeds(agent: Agent) -> bool:
    other = different(trained(agent, 1), trained(agent, 2))
    return {"actor/0/kernel", "critic/0/kernel", "env/obs", "rng"} <= set(other)


@pytest.mark.parametrize("name", representatives())
def test_equal_seeds_reproduce_bit_for_bit_and_seeds_differ(name: str) -> None:
    agent, _, _ = built(name)
    assert different(trained(agent, 1), trained(agent, 1)) == []
    assert honours_seeds(agent)
    assert not honours_seeds(replace(agent, key=lambda seed: agent.key(0)))


@pytest.mark.parametrize("name", representatives(JAX))
def test_the_best_mode_compiles_once(name: str) -> None:
    _, _, counts = built(name)
    assert counts[0] > 0
    assert counts[2] == 0


@pytest.mark.parametrize("name", representatives())
def test_exports_are_copies_and_transplants_are_what_is_exported(name: str) -> None:
    agent, _, _ = built(name)
    state = start(agent, 1)
    exported = agent.export(state)
    before = {key: array.copy() for key, array in exported.items()}
    state, _ = advance(agent, state)
    assert different(before, exported) == []
    weights = agent.export(state)
    assert {"actor/0/kernel", "actor_adam/count", "critic_adam/mean/critic/2/bias"} <= set(different(before, weights))
    assert different(weights, agent.export(start(agent, 5, weights))) == []


@pytest.mark.parametrize("name", representatives())
def test_rollout_learns_nothing_and_update_leaves_the_environment_alone(name: str) -> None:
    agent, backend, _ = built(name)
    state = start(agent, 1)
    before = agent.export(state)
    state, batch = agent.rollout(state)
    after_rollout = agent.export(state)
    assert all(key == "rng" or key.startswith("env/") for key in different(before, after_rollout))
    state, metrics = agent.update(state, batch)
    after = agent.export(state)
    assert "actor/0/kernel" in different(after_rollout, after)
    assert not any(key == "rng" or key.startswith("env/") for key in different(after_rollout, after))
    assert (after["actor_adam/count"], after["critic_adam/count"]) == (1, TINY.num_value_steps)
    assert set(backend.fetch(metrics)) == METRICS | {"episode_return", "episode_length", "episodes"}
    assert all(np.shape(x) == () for x in backend.fetch(metrics).values())


@pytest.mark.parametrize("name", ["linen", "pytorch"])
def test_float_hyper_parameters_are_data(name: str) -> None:
    """Another rate of the value changes the critic alone, and nothing is compiled for it."""
    agent, backend, _ = built(name)
    ends = []
    for factor in (1, 10):
        state, batch = agent.rollout(start(agent, 1))
        hyper = state.hyper._replace(critic_learning_rate=factor * state.hyper.critic_learning_rate)
        state = state._replace(hyper=hyper) if hasattr(state, "_replace") else replace(state, hyper=hyper)
        compiles = backend.compiles()
        ends.append(agent.export(agent.update(state, batch)[0]))
        assert backend.compiles() == compiles
    changed = {key.partition("/")[0] for key in different(*ends)}
    assert changed == {"critic", "critic_adam"}


def pure(name: str) -> Agent:
    """An agent with a Gaussian policy whose states are trees of arrays, on which any transformation works."""
    agent = gaussian(name)[0]
    return nnx.functional(agent) if name == "nnx" else agent


@pytest.mark.parametrize("name", representatives(JAX))
def test_a_population_can_share_its_counters(name: str) -> None:
    """vmap refuses to return a counter unbatched if anything that differs between members went into it."""
    agent = pure(name)
    counters = {field for field, role in agent.roles.items() if role is Role.COUNTER}
    assert counters == {"actor_adam_count", "critic_adam_count"}

    def shared(path: Any) -> bool:
        return any(field in jax.tree_util.keystr(path) for field in counters)

    def iterate(state: Any) -> tuple[Any, Any]:
        return agent.update(*agent.rollout(state))

    alone = agent.init(agent.key(0), agent.hyper)
    axes = jax.tree_util.tree_map_with_path(lambda path, _: None if shared(path) else 0, alone)
    population = jax.tree_util.tree_map_with_path(lambda path, x: x if shared(path) else jnp.stack([x, x]), alone)
    _, metrics = jax.eval_shape(jax.vmap(iterate, in_axes=(axes,), out_axes=(axes, 0)), population)
    assert {x.shape for x in metrics.values()} == {(2,)}


def test_torch_learns_in_its_own_environment_without_jax() -> None:
    code = f"""
import sys
from benchback.algorithms.vpg.config import Config
from benchback.training.run import Run
from benchback.training import train
run = Run(Config(**{asdict(TINY)!r}), env="torch/CartPole-v1", backend="pytorch", mode="none")
assert [p.iteration for p in train(run)] == [1, 2, 3, 4]
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=1800)


# Checkpoints.


@pytest.mark.parametrize("name", FAMILIES)
def test_resuming_equals_the_unbroken_run_bit_for_bit(name: str, tmp_path: Path) -> None:
    run = Run(TINY, env="gymnax/CartPole-v1", backend=name, mode=IN_PROCESS[name], seed=3)
    unbroken = {p.iteration: p.export() for p in train(run)}
    checkpoint.write(tmp_path / "c.safetensors", Checkpoint(unbroken[2], 2, run.to_dict()))
    resumed = {p.iteration: p.export() for p in train(run, checkpoint.read(tmp_path / "c.safetensors"))}
    assert different(unbroken[4], resumed[4]) == []


@pytest.mark.parametrize("reader", representatives())
@pytest.mark.parametrize("writer", ["nnx", "pytorch"])
def test_any_backend_takes_over_any_other_s_networks_and_optimisers(writer: str, reader: str) -> None:
    """Arrays equal; the next step within the tolerance of parity. With a Gaussian policy, which has all there is."""
    theirs, minibatch = cases.single_steps("box")[2].weights, cases.single_steps("box")[0].minibatch
    after = []
    for name in (writer, reader):
        agent, subject = gaussian(name)
        state = start(agent, 9, theirs)
        theirs = network_of(agent.export(state))
        assert different({key: x.astype(np.float32) for key, x in theirs.items()}, theirs) == []
        after.append(network_of(agent.export(agent.learn(state, subject.place_all(minibatch))[0])))
    for key, array in after[1].items():
        np.testing.assert_allclose(array, after[0][key], rtol=1e-5, atol=1e-6, err_msg=key)


@cache
def gaussian(name: str) -> tuple[Agent, Subject]:
    subject = Subject("vpg", name, "float32", {})
    return subject.agent(cases.BASE, "box"), subject


# Environments whose values are known.


GAMMA = 0.5
PROBING = Config(
    num_envs=8,
    num_steps=16,
    num_iterations=40,
    num_value_steps=20,
    hidden_sizes=(8,),
    actor_learning_rate=0.05,
    critic_learning_rate=0.02,
    gamma=GAMMA,
)
VALUES = {
    "OneStep": lambda obs: np.ones_like(obs),
    "TwoStep": lambda obs: np.where(obs == 0, GAMMA, 1.0),
    "ActionReward": lambda obs: np.ones_like(obs),
    "ObsReward": lambda obs: obs,
    "Truncated": lambda obs: np.full_like(obs, 1 / (1 - GAMMA)),
}
TARGETS = {"Target": lambda obs: np.full_like(obs, 0.5), "ObsTarget": lambda obs: 0.5 * obs}


@cache
def learnt(name: str, probe: str, config: Config = PROBING) -> tuple[Any, np.ndarray]:
    """A rollout after training, and what the agent would do where that began."""
    make, backend = registry.load("vpg", name)
    env = envs.make(f"probe/{probe}", config.num_envs, BACKENDS[name].family)
    agent = registry.execute(make(config, env), backend, IN_PROCESS[name], "phase")
    state = start(agent, 0)
    for _ in range(config.num_iterations):
        state, _ = advance(agent, state)
    state, batch = agent.rollout(state)
    _, action = agent.act(state, (), batch.obs[0])
    return backend.fetch(batch), backend.fetch({"action": action})["action"]


def by_all(probes: Iterable[str]) -> list[Any]:
    """One backend of each family learns every probe, and in the slow suite the others too."""
    slow = [pytest.param(name, p, marks=pytest.mark.slow) for name in BACKENDS if name not in FAMILIES for p in probes]
    return [*((name, p) for name in FAMILIES for p in probes), *slow]


@pytest.mark.parametrize(("name", "probe"), by_all(VALUES))
def test_the_known_value_is_learnt(name: str, probe: str) -> None:
    batch, greedy = learnt(name, probe)
    obs = batch.obs[..., 0].astype(float)
    assert np.abs(batch.value - VALUES[probe](obs)).max() < 0.05
    if probe == "ActionReward":
        assert (greedy == 1).all()


@pytest.mark.parametrize(("name", "probe"), by_all(TARGETS))
def test_the_wanted_action_is_learnt(name: str, probe: str) -> None:
    batch, greedy = learnt(name, probe)
    wanted = TARGETS[probe](batch.obs[0])
    assert np.abs(greedy - wanted).max() < 0.1
    assert np.abs(batch.action - TARGETS[probe](batch.obs)).mean() < 0.3


@pytest.mark.parametrize("name", FAMILIES)
def test_without_bootstrapping_through_truncation_the_probe_fails(name: str) -> None:
    batch, _ = learnt(name, "Truncated", replace(PROBING, truncation="terminal"))
    # One and two rewards remain in turn, and the observation does not tell which.
    assert batch.value.max() < 1.5


# Learning, and what a run may ask for.


@pytest.mark.slow  # the fast suite trains it on probes
@pytest.mark.parametrize("name", BACKENDS)
def test_cartpole_reaches_195_within_100k_steps(name: str) -> None:
    config = Config(
        num_envs=16,
        num_steps=128,
        num_value_steps=20,
        hidden_sizes=(32, 32),
        actor_learning_rate=1e-2,
        critic_learning_rate=1e-2,
    )
    env = "torch/CartPole-v1" if name == "pytorch" else "gymnax/CartPole-v1"
    run = Run(config, env=env, backend=name, mode=IN_PROCESS[name])
    progress = islice(train(run), 100_000 // config.batch_size)
    reached = next((p.export() for p in progress if p.rows[-1]["episode_return"] >= 195), None)
    assert reached is not None
    assert evaluate(run, reached, episodes=16).mean() >= 195


def test_sizes_are_the_algorithm_s_own_unless_another_is_asked_for() -> None:
    assert Config().hidden == (128, 64)
    assert Config(model="medium").hidden == (256, 256, 256)
    assert Config(model="medium", hidden_sizes=(64, 32)).hidden == (64, 32)
    assert Config().batch_size == 5000
    assert Config().updates_per_iteration == 81


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_value_steps", 0, "num_value_steps=0 must be at least 1"),
        ("critic_learning_rate", 0.0, "critic_learning_rate=0.0 must be greater than 0"),
        ("gae_lambda", 1.5, "gae_lambda=1.5 must lie between 0 and 1"),
        ("hidden_sizes", (64, 0), "must be positive"),
    ],
)
def test_impossible_settings_are_refused_with_the_remedy(field: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Config(**{field: value})
