"""Members of PyTorch side by side: each is the same run alone, and nothing of it depends on its neighbours."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from benchback import envs, registry
from benchback.agent import Agent, Weights
from benchback.backends import pytorch
from benchback.envs.interface import Box, Env
from benchback.envs.torch import Game, vectorise
from benchback.errors import InputError
from benchback.parity import deviation
from benchback.parity.deviation import Deviation
from benchback.parity.tolerance import TOLERANCE
from benchback.population import stacked
from benchback.population.in_turn import COMPILED, LARGEST, check_group, likely_group
from benchback.population.stacked import Stacked, population
from benchback.training import advance
from benchback.training.run import Run

SIZE, SEED, NUM_ITERATIONS = 3, 11, 3


class Place(NamedTuple):
    """Where a point is."""

    at: Tensor


def move(state: Place, action: Tensor, noise: Tensor) -> tuple[Place, Tensor, Tensor]:
    at = state.at + 0.3 * action.to(state.at.dtype)
    return Place(at), -at.square().sum(-1), at.abs().amax(-1) > 1.5


BOX = Box((-1.0, -2.0), (1.0, 2.0))
POINT = Game((2,), BOX, 2, 0, 5, lambda noise: Place(noise * 2 - 1), move, lambda state: state.at)
"""A game of continuous actions, whose episodes end within a few steps; the suite has none that ends so soon."""


def environment(name: str, num_envs: int) -> Env:
    if name == "point":
        return vectorise(POINT, "torch/Point", num_envs)
    return envs.make(f"torch/{name}", num_envs, "torch")


def single(algorithm: str, env: str = "CartPole-v1", dtype: str = "float64", **changes: Any) -> Agent:
    """An agent of a tiny configuration."""
    config = replace(import_module(f"benchback.parity.{algorithm}.cases").TINY, dtype=dtype, **changes)
    return registry.load(algorithm, "pytorch")[0](config, environment(env, config.num_envs))


def varied(agent: Agent) -> Any:
    """Every float different for every member."""
    return type(agent.hyper)(*(np.multiply.outer(1 - np.arange(SIZE) / 16, x) for x in agent.hyper))


def point(hyper: Any, index: int) -> Any:
    return type(hyper)(*(x[index] for x in hyper))


Outcome = tuple[dict[str, np.ndarray], Weights]
"""Metrics by iteration, and the final state."""


def alone(agent: Agent, seed: int, hyper: Any) -> Outcome:
    state, rows = agent.init(agent.key(seed), hyper), []
    for _ in range(NUM_ITERATIONS):
        state, metrics = advance(agent, state)
        rows.append(metrics)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}, agent.export(state)


def together(agent: Agent, hyper: Any = None, order: Any = range(SIZE), mode: str = "none") -> list[Outcome]:
    """The outcomes of all members, with the seeds and floats of those in `order`."""
    many, hyper = pytorch.backend.modes[mode](population(agent, SIZE)), varied(agent) if hyper is None else hyper
    state = many.init([agent.key(SEED + i) for i in order], type(hyper)(*(x[list(order)] for x in hyper)))
    rows = []
    for _ in range(NUM_ITERATIONS):
        state, metrics = advance(many, state)
        rows.append(metrics)
    assert {x.shape for row in rows for x in row.values()} == {(SIZE,)}
    found, weights = {name: np.array([row[name] for row in rows]) for name in rows[0]}, many.export(state)
    return [
        ({name: x[:, i] for name, x in found.items()}, {name: x[i] for name, x in weights.items()}) for i in range(SIZE)
    ]


def same(ours: Outcome, theirs: Outcome) -> bool:
    pairs = ((x, y[name]) for mine, y in zip(ours, theirs, strict=True) for name, x in mine.items())
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def differences(ours: Outcome, theirs: Outcome) -> Iterator[Deviation]:
    for quantity, off in deviation.of_metrics(ours[0], theirs[0]):
        yield quantity.partition("/")[0], off
    yield from deviation.of_weights(ours[1], deviation.trained(theirs[1]))
    for name in theirs[1]:
        if name == "rng" or (name.startswith("replay/") and theirs[1][name].dtype.kind != "f"):
            yield "replay", deviation.mismatch(ours[1][name], theirs[1][name])


def beyond_tolerance(agent: Agent, dtype: str = "float64", hyper: Any = None, mode: str = "none") -> list[str]:
    """Quantities of members that deviate from the same runs alone, in mode `none`."""
    hyper = varied(agent) if hyper is None else hyper
    pairs = ((one, alone(agent, SEED + i, point(hyper, i))) for i, one in enumerate(together(agent, hyper, mode=mode)))
    found = deviation.worst(d for pair in pairs for d in differences(*pair))
    allowed = TOLERANCE[dtype]["L4"]
    return [f"{name} {off:.1e}" for name, off in found if not off <= allowed[name]]


# A member is the same run alone

CASES = {
    "ppo": ("ppo", "CartPole-v1", {}),
    "dqn": ("dqn", "CartPole-v1", {}),
    "vpg": ("vpg", "Acrobot-v1", {}),
    "td3": ("td3", "point", {}),
    "ppo-normalised": ("ppo", "point", {"normalise_obs": True, "normalise_reward": True}),
    "ppo-drift": ("ppo", "MountainCar-v0", {"surrogate": "drift", "truncation": "terminal", "clip_value": False}),
    "ppo-gru": ("ppo", "MemoryChain-bsuite", {"network": "gru"}),
    "dqn-cnn": ("dqn", "Breakout-MinAtar", {"network": "cnn", "double": False}),
}


PAIRS = [
    pytest.param(case, dtype, marks=[] if dtype == "float64" or case in ("ppo", "dqn") else [pytest.mark.slow])
    for case in CASES
    for dtype in ("float32", "float64")
]


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_a_member_is_the_same_run_alone(case: str, dtype: str) -> None:
    algorithm, env, changes = CASES[case]
    assert beyond_tolerance(single(algorithm, env, dtype, **changes), dtype) == []


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_members_that_differ_in_their_seeds_alone_are_the_same_runs(algorithm: str) -> None:
    agent = single(algorithm)
    assert beyond_tolerance(agent, hyper=type(agent.hyper)(*(np.stack([x] * SIZE) for x in agent.hyper))) == []


IN_A_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from test_population_torch import CASES, beyond_tolerance, pytorch, single
algorithm, env, changes = CASES[sys.argv[2]]
found = beyond_tolerance(single(algorithm, env, "float32", **changes), "float32", mode="compile")
print(json.dumps([found, pytorch.backend.compiles()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ppo", "dqn", "vpg", "ppo-normalised"])
def test_a_member_of_compiled_programs_is_the_same_run_alone(case: str) -> None:
    """In another process: the checks of shapes cannot be compiled."""
    command = [sys.executable, "-c", IN_A_PROCESS, str(Path(__file__).parent), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found, compiles = json.loads(done.stdout.splitlines()[-1])
    assert found == []
    assert 2 <= compiles <= 4, "a rollout, what follows it, and a loss for each optimiser"


# Neighbours do not matter


@pytest.mark.parametrize("case", ["ppo", "dqn", "vpg", "td3"])
def test_shuffled_members_give_permuted_results(case: str) -> None:
    algorithm, env, changes = CASES[case]
    agent, order = single(algorithm, env, **changes), [2, 0, 1]
    expected = together(agent)
    assert all(same(one, expected[i]) for one, i in zip(together(agent, order=order), order, strict=True))


RATES = {"ppo": "learning_rate", "vpg": "actor_learning_rate", "dqn": "learning_rate", "td3": "critic_learning_rate"}


@pytest.mark.parametrize("case", RATES)
def test_a_member_that_diverges_leaves_the_others_untouched(case: str) -> None:
    algorithm, env, changes = CASES[case]
    agent = single(algorithm, env, **changes)
    hyper, rate = varied(agent), getattr(varied(agent), RATES[case]).copy()
    rate[1] = np.nan
    sick, expected = together(agent, hyper._replace(**{RATES[case]: rate})), together(agent)
    assert any(np.isnan(x).any() for x in sick[1][1].values() if x.dtype.kind == "f")
    assert same(sick[0], expected[0])
    assert same(sick[2], expected[2])


# The comparison can fail


def shared_generators(agent: Agent, states: Any, stack: Callable[..., Stacked]) -> Stacked:
    many = stack(agent, states)
    return replace(many, generators=[many.generators[0]] * SIZE)


def equal_generators(agent: Agent, states: Any, stack: Callable[..., Stacked]) -> Stacked:
    many = stack(agent, states)
    for generator in many.generators:
        generator.set_state(many.generators[0].get_state())
    return many


def shared_hyper(agent: Agent, states: Any, stack: Callable[..., Stacked]) -> Stacked:
    many = stack(agent, states)
    first = type(many.tensors["hyper"])(*(x[:1].expand_as(x) for x in many.tensors["hyper"]))
    return replace(many, tensors=many.tensors | {"hyper": first})


@pytest.mark.parametrize("fault", [shared_generators, equal_generators, shared_hyper])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_what_members_must_not_share_is_noticed(
    algorithm: str, fault: Callable[..., Stacked], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stacked.stack
    monkeypatch.setattr(stacked, "stack", lambda agent, states: fault(agent, states, stack))
    assert beyond_tolerance(single(algorithm)) != []


def test_metrics_averaged_over_members_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for_members = stacked._for_members

    def averaged(*given: Any) -> Callable[..., tuple[Stacked, Any]]:
        def run(many: Stacked, *arguments: Any) -> tuple[Stacked, Any]:
            many, result = for_members(*given)(many, *arguments)
            if isinstance(result, dict):
                result = {name: x.float().mean().expand(SIZE) for name, x in result.items()}
            return many, result

        return run

    monkeypatch.setattr(stacked, "_for_members", averaged)
    assert {x.split()[0] for x in beyond_tolerance(single("ppo"))} == {"episode", "metric"}


def test_the_gradient_of_a_mean_over_members_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "_gradient", lambda loss, *params: torch.autograd.grad(loss.mean(), params))
    assert beyond_tolerance(single("ppo")) != []


# The rest of an agent


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_exported_members_are_loaded_again(algorithm: str) -> None:
    agent = single(algorithm)
    many = population(agent, SIZE)
    state, _ = advance(many, many.init(many.key(SEED), many.hyper))
    weights = many.export(state)
    loaded = many.load(many.init(many.key(99), many.hyper), weights)
    assert same(({}, many.export(loaded)), ({}, weights))
    ours, theirs = (({}, many.export(advance(many, x)[0])) for x in (loaded, state))
    assert same(ours, theirs)
    assert not same(ours, ({}, weights))


def test_members_act_on_observations_of_their_own() -> None:
    agent = single("dqn")
    many = population(agent, SIZE)
    state = many.init(many.key(SEED), many.hyper)
    obs = torch.randn((SIZE, 5, 4), generator=agent.key(0))
    memory, action = many.act(state, (), obs)
    assert memory == ()
    for i in range(SIZE):
        assert torch.equal(action[i], agent.act(stacked.member(agent, state, i), (), obs[i])[1])


# How many run side by side


def test_members_run_side_by_side_where_that_is_faster() -> None:
    config = registry.config("ppo")(num_envs=4, num_steps=128, num_minibatches=4)
    run = Run(config, "torch/CartPole-v1", "pytorch", "none")
    assert likely_group(run, 5) == (5, "5 side by side, which is faster with gradient steps of 128 rows")
    assert likely_group(run, 1000)[0] == LARGEST
    assert likely_group(replace(run, mode="best"), 1000)[0] == COMPILED
    one_by_one = {
        "of 2048 rows keep": (replace(run, config=replace(config, num_envs=64)), 16),
        "from 4 members on": (run, 3),
        "from 8 members on": (replace(run, config=replace(config, num_steps=32)), 7),
        "from 16 members on": (replace(run, mode="best"), 15),
        "eager ones are, by --mode none": (replace(run, mode="best", config=replace(config, num_steps=32)), 16),
        "of 256 rows keep": (replace(run, mode="best", config=replace(config, num_envs=8)), 16),
        "not measured side by side; --group 16 tries it": (replace(run, config=replace(config, network="gru")), 20),
        "mode=script makes programs of one agent": (replace(run, mode="script"), 16),
        "is not of torch tensors": (replace(run, env="gymnax/CartPole-v1"), 16),
    }
    for words, given in one_by_one.items():
        group, told = likely_group(*given)
        assert group == 1
        assert told.startswith("one after another, because ")
        assert words in told
    with pytest.raises(InputError, match="cannot run side by side, because mode=script"):
        check_group(replace(run, mode="script"), 2)
