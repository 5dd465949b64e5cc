"""Recurrent PPO: the oracle is right, every backend computes what it computes, and mistakes about memory are caught."""

import ast
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from representatives import quickest

from benchback import envs, registry
from benchback.agent import Agent, Weights, network_of, networks, start
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.recurrent.sequences import Sequences
from benchback.errors import InputError
from benchback.measure.flops import layer_sizes, work_ledger
from benchback.parity import Row, check, measure
from benchback.parity.oracle import parameters, widened
from benchback.parity.ppo import cases as feedforward
from benchback.parity.ppo import recurrent_cases as cases
from benchback.parity.ppo import recurrent_oracle as oracle
from benchback.parity.subject import Subject
from benchback.registry import BACKENDS
from benchback.training import advance, train
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

# The oracle.

DIFFERENCES = 12
"""Entries of an array whose gradient is compared."""


def numerical_gradient(case: cases.Case, sequences: Sequences) -> Weights:
    """Central differences of the loss by some weights of every array, drawn at random; NaN elsewhere."""
    random = np.random.default_rng(0)

    def loss(name: str, index: tuple[int, ...], step: float) -> float:
        moved = case.weights[name].copy()
        moved[index] += step
        return oracle.objective(case.weights | {name: moved}, sequences, case.config)[0]["loss"]

    result = {name: np.full_like(x, np.nan) for name, x in parameters(case.weights).items()}
    for name, gradient in result.items():
        chosen = random.choice(gradient.size, min(gradient.size, DIFFERENCES), replace=False)
        for index in zip(*np.unravel_index(chosen, gradient.shape), strict=True):
            gradient[index] = (loss(name, index, 1e-6) - loss(name, index, -1e-6)) / 2e-6
    return result


@pytest.mark.parametrize("case", [*cases.single_steps()[:2], cases.single_steps("box")[0]])
def test_oracle_gradient_through_time_equals_finite_differences(case: cases.Case) -> None:
    sequences = Sequences(*map(widened, case.sequences))
    assert sequences.done[:-1].any()
    _, found = oracle.objective(case.weights, sequences, case.config)
    expected = numerical_gradient(case, sequences)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        compared = ~np.isnan(gradient)
        assert compared.sum() == min(gradient.size, DIFFERENCES)
        np.testing.assert_allclose(found[name][compared], gradient[compared], atol=5e-9)


def test_oracle_forgets_at_the_end_of_an_episode_and_nowhere_else() -> None:
    random = np.random.default_rng(0)
    weights = cases.network(random)
    sequences = cases.near(weights, random)
    done = np.zeros((4, 1), bool)
    done[1] = True
    obs, memory = sequences.obs[:4, :1], sequences.memory[:1]
    found = oracle.remembered(weights, obs, done, memory)[0]
    other = oracle.remembered(weights, obs, done, -memory)[0]
    first = oracle.remembered(weights, obs[2:], done[2:], 0 * memory)[0]
    assert (np.abs(found - other)[:2] > 1e-3).any((1, 2)).all()
    np.testing.assert_array_equal(found[2:], other[2:])
    np.testing.assert_array_equal(found[2:], first)


def test_sequences_take_every_branch() -> None:
    random = np.random.default_rng(0)
    weights = cases.network(random)
    near, far = cases.near(weights, random), cases.far(weights, random)
    limit = cases.BASE.max_grad_norm
    assert oracle.learn(weights, near, cases.BASE)[1]["grad_norm"] < 0.9 * limit
    metrics = oracle.learn(weights, far, cases.BASE)[1]
    assert metrics["grad_norm"] > 1.2 * limit
    assert 0.1 < metrics["clip_fraction"] < 0.95


# The backends.

LEVELS = {"purejax": ("L0", "L3"), "pytorch": ("L0", "L1", "L2", "L3")}
"""One of each family in full; of the others one gradient step, from canonical weights to canonical weights."""
STEP = {"weight", "mean", "variance", "count", "names", "memory", "metric/loss", "metric/grad_norm"}
WHOLE = {"log_prob", "value", "final_value", "greedy", "initial_kernel", "initial_bias"} | {
    f"{quantity}/iteration" for quantity in ("weight", "memory", "action", "metric/loss")
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_computes_what_the_oracle_computes(backend: str) -> None:
    wanted = LEVELS.get(backend, ("L1",))
    rows = list(measure("ppo", [backend], ["float32"], wanted, mode=quickest(backend), thorough=False, network="gru"))
    assert {row.quantity for row in rows} >= STEP | (WHOLE if backend in LEVELS else set())
    assert [row for row in rows if not row.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_case_in_both_precisions_and_every_mode_is_within_tolerance(backend: str) -> None:
    modes = ["L4"] if backend != "pytorch" else []  # torch.compile cannot see through the checks of annotations
    levels = ["L0", "L1", "L2", "L3", *modes]
    rows = list(measure("ppo", [backend], ["float32", "float64"], levels, mode=quickest(backend), network="gru"))
    assert [row for row in rows if not row.ok] == []
    assert {row.level for row in rows} == set(levels)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [name for name, spec in BACKENDS.items() if spec.family == "jax"])
def test_laws_are_kept_and_probes_learnt(backend: str) -> None:
    rows = list(check("ppo", backend, ["laws", "probes"], network="gru"))
    assert {row.quantity for row in rows} >= {"law/phases_keep_apart", "probe_value/TwoStep", "probe_action/ObsTarget"}
    assert [row for row in rows if not row.ok] == []


@pytest.mark.slow
def test_torch_keeps_the_laws_learns_probes_and_computes_the_same_in_every_mode(benchback: Callable[..., Any]) -> None:
    """In a process of its own: torch.compile cannot see through the checks of annotations."""
    levels = ("L4", "laws", "probes")
    done = benchback("parity", "--network", "gru", "--backends", "pytorch", "--levels", *levels, "--json")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["ok"]
    assert {row["level"] for row in found["rows"]} == set(levels)


CHAIN = {"algorithm": "ppo", "env": "gymnax/MemoryChain-bsuite+param.memory_length=4", "hidden_sizes": [16]}
CHAIN |= {"num_envs": 16, "num_steps": 15, "num_iterations": 40, "num_epochs": 4, "num_minibatches": 2}
CHAIN |= {"learning_rate": 5e-3}


@pytest.mark.slow
@pytest.mark.parametrize(("network", "backend"), [*(("gru", name) for name in BACKENDS), ("mlp", "purejax")])
def test_what_was_said_earlier_is_learnt_by_a_network_with_a_memory_only(network: str, backend: str) -> None:
    run = Run.from_dict(CHAIN | {"network": network, "backend": backend, "mode": quickest(backend)})
    *_, last = train(run)
    mean = evaluate(run, last.export(), episodes=64, seed=5).mean()
    assert mean > 0.9 if network == "gru" else abs(mean) < 0.5


# Mistakes, made on purpose. In torch they cost no compilation; in plain JAX they are the same, and slow.


def never(right: Any) -> Any:
    """The memory is never emptied."""
    return lambda done, memory: memory


def not_kept(right: Any) -> Any:
    """Sequences are replayed from an empty memory in place of the one that the rollout began with."""
    return lambda batch, memory, advantage: right(batch, 0 * memory, advantage)


def of_several_environments(right: Any) -> Any:
    """Rows of different environments one after the other, as where minibatches are drawn from all rows."""

    def wrong(data: Sequences, index: Any) -> Sequences:
        step, env = np.arange(len(data.done))[:, None], np.arange(data.done.shape[1])
        mixed = (env + step) % len(env)
        rolled = [x[step, mixed] for x in data[:-1]]
        return right(Sequences(*rolled, memory=data.memory), index)

    return wrong


def one_step_late(right: Any) -> Any:
    """The memory is emptied after the first step of an episode in place of before it."""

    def wrong(network: Any, memory: Any, obs: Any, done: Any) -> Any:
        return right(network, memory, obs, done[np.arange(-1, len(done) - 1)])

    return wrong


def with_no_memory(right: Any) -> Any:
    """Final observations, of all steps at once, seen as if an episode began with them."""

    def wrong(network: Any, memory: Any, obs: Any) -> Any:
        return right(network, memory * (len(memory) <= cases.BASE.num_envs), obs)

    return wrong


def written(form: Callable[..., Any]) -> Callable[[Any], Any]:
    """Another cell, as a function of the gates' sums, in torch and in JAX."""

    def mutation(right: Any) -> Any:
        def in_torch(cell: Any, x: Any, memory: Any) -> Any:
            kernel = cell.hidden.weight.T
            given = cell.input(x).chunk(3, 1), kernel.chunk(3, 1), cell.bias_n, memory
            return form(*given, torch.sigmoid, torch.tanh)

        def in_jax(cell: Any, x: Any, memory: Any) -> Any:
            import jax
            import jax.numpy as jnp

            sums = jnp.split(x @ cell["input"]["kernel"] + cell["input"]["bias"], 3, axis=1)
            kernels = jnp.split(cell["hidden"]["kernel"], 3, axis=1)
            return form(sums, kernels, cell["bias_n"], memory, jax.nn.sigmoid, jnp.tanh)

        return in_jax if right.__name__ == "gru" else in_torch

    return mutation


def inverted(sums: Any, kernels: Any, bias: Any, memory: Any, sigmoid: Any, tanh: Any) -> Any:
    """The gate z lets in what it should keep."""
    r, z = (sigmoid(a + memory @ b) for a, b in zip(sums[:2], kernels[:2], strict=True))
    n = tanh(sums[2] + r * (memory @ kernels[2] + bias))
    return z * n + (1 - z) * memory


def before_the_product(sums: Any, kernels: Any, bias: Any, memory: Any, sigmoid: Any, tanh: Any) -> Any:
    """The gate r acts on the memory itself, as in hk.GRU."""
    r, z = (sigmoid(a + memory @ b) for a, b in zip(sums[:2], kernels[:2], strict=True))
    n = tanh(sums[2] + (r * memory) @ kernels[2] + bias)
    return (1 - z) * n + z * memory


MISTAKES = {
    "never_emptied": ("L1", "reset_where", "reset_where", never),
    "emptied_one_step_late": ("L1", "RecurrentActorCritic.remember_all", "remember_all", one_step_late),
    "z_inverted": ("L1", "GRU.forward", "gru", written(inverted)),
    "reset_before_the_product": ("L1", "GRU.forward", "gru", written(before_the_product)),
    "initial_memory_not_kept": ("L3", "make_sequences", "make_sequences", not_kept),
    "minibatches_of_rows": ("L3", "take", "take", of_several_environments),
    "final_value_without_memory": ("L0", "RecurrentActorCritic.remember", "remember", with_no_memory),
}
"""Mistake -> the level that catches it, what is replaced in torch and in plain JAX, and by what."""


def caught(backend: str, level: str) -> list[Row]:
    found = measure("ppo", [backend], ["float32"], [level], mode=quickest(backend), thorough=False, network="gru")
    return [row for row in found if not row.ok]


@cache
def caught_without_mistake(backend: str, level: str) -> list[Row]:
    return caught(backend, level)


@contextmanager
def traced_anew() -> Iterator[None]:
    """JAX keeps what it traced of a scan's step, whatever has become of the functions that the step calls."""
    import jax

    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


@pytest.mark.parametrize("backend", ["pytorch", pytest.param("purejax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_about_memory_is_caught(mistake: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    level, in_torch, in_jax, wrong = MISTAKES[mistake]
    assert caught_without_mistake(backend, level) == []
    module = import_module(f"benchback.algorithms.ppo.recurrent.{backend}")
    owner, _, name = (in_torch if backend == "pytorch" else in_jax).rpartition(".")
    target = getattr(module, owner) if owner else module
    monkeypatch.setattr(target, name, wrong(getattr(target, name)))
    expected = {"L0": "final_value", "L1": "gradient", "L3": "weight"}[level]
    with nullcontext() if backend == "pytorch" else traced_anew():
        assert expected in {row.quantity for row in caught(backend, level)}


# Memory is part of the state.


def executed(backend: str) -> Agent:
    """The agent of the parity tests, whose programs are compiled already."""
    return Subject("ppo", backend, "float32", {}, quickest(backend), network="gru").agent(cases.MINIBATCHES)


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoints_move_between_all_backends(backend: str) -> None:
    """Arrays under canonical names come back as they were; what is computed with them is L1."""
    random = np.random.default_rng(0)
    written = {
        name: x.astype(np.float32) if x.ndim else x
        for name, x in feedforward.midway(cases.network(random), random).items()
    }
    agent = Subject("ppo", backend, "float32", {}, network="gru").plain(cases.MINIBATCHES)
    found = network_of(agent.export(start(agent, 0, written)))
    assert {"gru/input/kernel", "gru/hidden/kernel", "gru/bias_n", "adam/mean/gru/bias_n"} <= found.keys()
    assert found.keys() == network_of(written).keys()
    for name, x in network_of(written).items():
        np.testing.assert_array_equal(found[name], x, err_msg=name)


@pytest.mark.parametrize("backend", ["purejax", "pytorch"])
def test_a_restored_training_goes_on_bit_for_bit(backend: str) -> None:
    agent = executed(backend)
    state, _ = advance(agent, start(agent, 1))
    exported = agent.export(state)
    assert np.abs(exported["memory"]).max() > 0
    after, _ = advance(agent, state)
    again, _ = advance(agent, start(agent, 2, exported))
    expected, found = agent.export(after), agent.export(again)
    assert [name for name in expected if not np.array_equal(expected[name], found[name])] == []


def test_memory_is_not_taken_to_other_episodes() -> None:
    weights = {"memory": np.ones(cases.BASE.num_envs), "actor/0/kernel": np.ones((8, 8)), "env/obs": np.ones(4)}
    assert networks(weights).keys() == network_of(weights).keys() == {"actor/0/kernel"}
    named = {name: np.ones(3) for name in ("memory_cell/0/kernel", "rng_head/0/bias", "environment/0/kernel")}
    assert networks(weights | named).keys() == network_of(weights | named).keys() == {"actor/0/kernel", *named}
    agent = executed("pytorch")
    first = agent.export(start(agent, 1))
    state = start(agent, 1, first | {"memory": np.ones_like(first["memory"])})
    assert (agent.export(state)["memory"] == 1).all()
    kept = {name: x for name, x in agent.export(state).items() if not name.startswith("env/")}
    assert (agent.export(start(agent, 1, kept))["memory"] == 0).all()


def test_a_first_memory_goes_where_the_network_is() -> None:
    """Torch's device without data stands for a GPU: nothing of it can be combined with arrays of the processor."""
    subject = Subject("ppo", "pytorch", "float32", {}, network="gru")
    agent = subject.plain(cases.TINY)
    state = start(agent, 1)
    state.model.to("meta")
    memory, action = agent.act(state, agent.initial_memory(3), torch.zeros(3, 4, device="meta"))
    assert memory.device.type == action.device.type == "meta"


# What is told about it.


def test_the_ledger_counts_the_cell_and_gradients_that_go_on() -> None:
    config = Config(network="gru", hidden_sizes=(16,), num_envs=4, num_steps=8, num_epochs=3, num_minibatches=2)
    sizes = layer_sizes(cases.network(np.random.default_rng(0)))
    width, obs, actions = cases.WIDTH, 4, 3
    cell, head = 2 * width * 3 * width, width * width
    forward = obs * width + cell + head + width
    rows, gradients = 32, 96
    found = work_ledger(config.network_rows, sizes, skips=True)
    assert found["forward_flops"] == 2 * ((rows + 4) * forward + rows * (head + actions * width))
    inner = cell + head + width + head + actions * width
    assert found["gradient_flops"] == 2 * gradients * (3 * inner + 2 * obs * width)
    assert found["network_evaluations"] == {"encoder": 36, "gru": 36, "actor": 32, "critic": 36}
    assert found["final_value_rows"] == "96 when truncated"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hidden_sizes": [64, 64]}, "give one, e.g. 64"),
        ({"num_envs": 12, "num_minibatches": 8}, "does not divide num_envs=12"),
        # 9 divides the batch of 288, but no minibatch is of 32 / 9 environments.
        ({"num_steps": 9, "num_minibatches": 10}, "does not divide num_envs=32: .* e.g. 8"),
        ({"algorithm": "vpg"}, "only for ppo"),
        ({"algorithm": "dqn"}, "only for ppo"),
        ({"algorithm": "td3", "env": "gymnax/Pendulum-v1"}, "network is not a field of a td3 run"),
        ({"gradients": "reordered"}, "use --gradients framework"),
        ({"env": "gymnax/CartPole-v1+observe=0,0"}, "different entries"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_remedy(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Run.from_dict({"network": "gru"} | fields)


def test_environments_refuse_parts_and_parameters_that_they_lack() -> None:
    for id, said in (
        ("gymnax/CartPole-v1+observe=7", "choose 0 to 3"),
        ("gymnax/MemoryChain-bsuite+param.length=3", "choose one of max_steps_in_episode, memory_length"),
        ("gymnax/MemoryChain-bsuite+param.memory_length=2.5", "whole number"),
        ("torch/CartPole-v1+param.gravity=2", "only environments of gymnax"),
    ):
        with pytest.raises(InputError, match=said):
            envs.make(id, 2, "torch" if id.startswith("torch/") else "jax")


def test_the_folder_has_every_backend_and_reads_in_one_order() -> None:
    folder = Path(import_module("benchback.algorithms.ppo.recurrent").__file__ or "").parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", "sequences", *registry.BUILT_IN_BACKENDS}
    order = ["init", "rollout", "learn", "update", "act"]
    for backend in registry.BUILT_IN_BACKENDS:
        text = (folder / f"{backend}.py").read_text()
        make = ast.parse(text).body[-1]
        assert isinstance(make, ast.FunctionDef)
        assert make.name == "make"
        inner = [x.name for x in ast.walk(make) if isinstance(x, ast.FunctionDef) and x.name in order]
        assert inner == order
        assert len(text.splitlines()) < 270
