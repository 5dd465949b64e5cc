"""PPO with real-valued actions and normalised observations and rewards, in every backend.

Parity with the oracle is in test_parity.py, probes of known value are in test_probes.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import test_contract
from conftest import TINY
from representatives import representatives
from test_contract import IN_PROCESS

from benchback import envs, registry
from benchback.agent import Agent, Backend, Weights, network_of, start
from benchback.algorithms.ppo.config import Config
from benchback.parity.laws import different
from benchback.parity.ppo import cases, levels, oracle
from benchback.parity.subject import Subject, computing
from benchback.parity.tolerance import TOLERANCE
from benchback.training import advance, train, transplantable
from benchback.training.checkpoint import Checkpoint, CheckpointError
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

PENDULUM = "gymnax/Pendulum-v1"
NORMALISED = replace(TINY, num_steps=4, normalise_obs=True, normalise_reward=True)
FAMILIES = {"purejax": "jax", "pytorch": "torch"}


@cache
def built(name: str, config: Config = NORMALISED) -> tuple[Agent, Backend]:
    make, backend = registry.load("ppo", name)
    env = envs.make(PENDULUM, config.num_envs, registry.BACKENDS[name].family)
    return registry.execute(make(config, env), backend, IN_PROCESS[name], "phase"), backend


def statistics(weights: Weights) -> Weights:
    return {name: x for name, x in weights.items() if name.startswith("normaliser/")}


# Statistics.


@cache
def history(name: str) -> tuple[list[Weights], list[Any]]:
    """The exported state at first and after each half of two iterations; the batches as rollouts gave them."""
    agent, backend = built(name)
    state = start(agent, 1)
    exported, batches = [agent.export(state)], []
    for _ in range(2):
        state, batch = agent.rollout(state)
        exported.append(agent.export(state))
        batches.append(backend.fetch(batch))
        state, _ = agent.update(state, batch)
        exported.append(agent.export(state))
    return exported, batches


@pytest.mark.parametrize("name", representatives())
def test_a_rollout_uses_the_statistics_and_an_update_updates_them_at_its_end(name: str) -> None:
    exported, batches = history(name)
    first, *later = map(statistics, exported)
    assert first["normaliser/obs/mean"].shape == first["normaliser/obs/variance"].shape == (3,)
    assert (first["normaliser/obs/count"], first["normaliser/discounted_return/count"]) == (0, 0)
    assert different(first, later[0]) == different(later[1], later[2]) == []
    for after, seen in ((later[1], batches[:1]), (later[3], batches)):
        for quantity, x in oracle.normaliser(seen, NORMALISED).items():
            np.testing.assert_allclose(after[quantity], x, rtol=1e-4, atol=1e-5, err_msg=quantity)


@pytest.mark.parametrize("name", representatives())
def test_a_rollout_keeps_observations_and_rewards_as_the_environment_gave_them(name: str) -> None:
    """Pendulum's reward can be worked out from what was observed and done."""
    _, batches = history(name)
    for batch in batches:
        cos, sin, speed = np.moveaxis(batch.obs.astype(float), -1, 0)
        force = np.clip(batch.action[..., 0], -2, 2)
        cost = np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * force**2
        np.testing.assert_allclose(batch.reward, -cost, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("switch", ["normalise_obs", "normalise_reward"])
def test_each_switch_works_alone(name: str, switch: str) -> None:
    both = {"normalise_obs": False, "normalise_reward": False}
    agent, backend = built(name, replace(NORMALISED, **both | {switch: True}))
    state, metrics = advance(agent, start(agent, 0))
    assert np.isfinite(backend.fetch(metrics)["loss"])
    kept = {name.split("/")[1] for name in statistics(agent.export(state))}
    assert kept == {"obs"} if switch == "normalise_obs" else {"discounted_return", "ongoing_return"}


@pytest.mark.parametrize("name", representatives())
def test_without_switches_there_are_no_statistics(name: str) -> None:
    agent, _ = test_contract.built(name, IN_PROCESS[name])
    assert statistics(agent.export(start(agent, 0))) == {}


# Checkpoints and evaluation.


def greedy(name: str, state: Any) -> np.ndarray:
    """What the agent would do on five observations."""
    obs = np.random.default_rng(0).normal(size=(5, 3))
    return Subject("ppo", name, "float32", {}).greedy(built(name)[0], state, obs)


@pytest.mark.parametrize("writer", FAMILIES)
@pytest.mark.parametrize("reader", representatives())
def test_any_backend_takes_over_any_other_s_statistics(writer: str, reader: str) -> None:
    theirs = network_of(history(writer)[0][-1])
    action = {}
    for name in (writer, reader):
        agent, _ = built(name)
        state = start(agent, 9, theirs)
        assert different(theirs, network_of(agent.export(state))) == []
        action[name] = greedy(name, state)
    np.testing.assert_allclose(action[reader], action[writer], rtol=1e-5, atol=1e-6)
    agent, _ = built(reader)
    forgetful = start(agent, 9, {name: x for name, x in theirs.items() if name not in statistics(theirs)})
    assert np.abs(greedy(reader, forgetful) - action[reader]).max() > 1e-3


@pytest.mark.parametrize("name", FAMILIES)
def test_other_environments_take_the_statistics_but_not_the_ongoing_returns(name: str) -> None:
    weights = history(name)[0][-1]
    assert weights["normaliser/ongoing_return"].any()
    agent, _ = built(name, replace(NORMALISED, num_envs=2))
    found = agent.export(start(agent, 0, network_of(weights)))
    assert found["normaliser/ongoing_return"].tolist() == [0, 0]
    assert different(network_of(weights), network_of(found)) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_resuming_equals_the_unbroken_run_bit_for_bit(name: str) -> None:
    run = Run(replace(NORMALISED, num_iterations=3), env=PENDULUM, backend=name, mode=IN_PROCESS[name])
    unbroken = {p.iteration: Checkpoint(p.export(), p.iteration, run.to_dict()) for p in train(run)}
    resumed = [p.export() for p in train(run, unbroken[1])]
    assert different(unbroken[3].weights, resumed[-1]) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_evaluation_normalises_by_the_stored_statistics(name: str) -> None:
    run = Run(NORMALISED, env=PENDULUM, backend=name, mode=IN_PROCESS[name])
    weights = history(name)[0][-1]
    bare = {key: x for key, x in weights.items() if key not in statistics(weights)}
    usual, again, forgetful = (evaluate(run, w, episodes=3) for w in (weights, weights, bare))
    assert np.array_equal(usual, again)
    assert np.abs(usual - forgetful).max() > 0.1


def test_a_checkpoint_goes_on_only_with_the_switches_it_learnt_with() -> None:
    run = Run(NORMALISED, env=PENDULUM, backend="purejax")
    theirs = Checkpoint(history("purejax")[0][-1], 2, run.to_dict())
    assert "normaliser/obs/mean" in transplantable(run, theirs)
    with pytest.raises(CheckpointError, match="go on with --normalise-obs"):
        transplantable(replace(run, config=replace(NORMALISED, normalise_obs=False)), theirs)


@pytest.mark.slow
def test_the_command_line_trains_and_evaluates(benchback: Callable[..., subprocess.CompletedProcess]) -> None:
    sizes = ("--num-envs", "2", "--num-steps", "4", "--num-minibatches", "1", "--num-epochs", "1")
    switches = ("--env", PENDULUM, "--normalise-obs", "--normalise-reward", "--backend", "purejax")
    done = benchback("train", "ppo", *switches, *sizes, "--num-iterations", "2", "--out", "run")
    assert done.returncode == 0, done.stderr
    played = benchback("eval", "run", "--episodes", "2", "--json")
    assert played.returncode == 0, played.stderr
    assert -2000 < json.loads(played.stdout)["mean"] < 0


# Known mistakes, made on purpose.


def per_environment(right: Any) -> Any:
    """The spread within each environment, its own mean taken off, in place of that over all of them."""

    def wrong(moments: Any, x: Any) -> Any:
        own = x - x.mean(0) + x.mean((0, 1)) if x.ndim == 3 else x
        return right(moments, own)

    return wrong


def sample_variance(right: Any) -> Any:
    """ddof=1 in place of 0."""

    def wrong(moments: Any, x: Any) -> Any:
        after = right(moments, x)
        return after._replace(variance=after.variance * after.count / (after.count - 1))

    return wrong


def latest_only(right: Any) -> Any:
    """The statistics of the last batch, all earlier ones forgotten."""
    return lambda moments, x: right(moments, x)._replace(mean=right(moments._replace(count=moments.count * 0), x).mean)


def centred_reward(right: Any) -> Any:
    """Rewards less the mean of returns: then doing nothing is worth something."""
    return lambda x, moments: right(x - moments.mean, moments)


def across_episodes(right: Any) -> Any:
    """A return that goes on when its episode does not."""
    return lambda reward, done, before, *, gamma: right(reward, done & False, before, gamma=gamma)


def updated_before_use(right: Any) -> Any:
    """An update that normalises by statistics which include its own rollout."""

    def wrong(math: Any, normaliser: Any, batch: Any) -> Any:
        gamma = batch.reward[0, 0] * 0 + cases.NORMALISED.gamma
        normalising = import_module("benchback.algorithms.normalising")
        return right(math, normalising.update_normaliser(math, normaliser, batch, gamma), batch)

    return wrong


MISTAKES = {
    "per_environment": ("benchback.math.{family}", "update_moments", per_environment, "normaliser"),
    "sample_variance": ("benchback.math.{family}", "update_moments", sample_variance, "normaliser"),
    "latest_only": ("benchback.math.{family}", "update_moments", latest_only, "normaliser"),
    "centred_reward": ("benchback.math.{family}", "rescale", centred_reward, "weight"),
    "across_episodes": ("benchback.math.{family}", "discounted_return", across_episodes, "normaliser"),
    "updated_before_use": ("benchback.algorithms.ppo.{backend}", "normalise_batch", updated_before_use, "weight"),
}


def caught(backend: str) -> set[str]:
    """Quantities of an update with normalisation that are off by more than parity allows."""
    with computing("float32", optimised=False):
        found = list(levels.normalised_update(Subject("ppo", backend, "float32", {})))
    return {quantity for quantity, off in found if not off <= TOLERANCE["float32"]["L3"][quantity.split("/")[0]]}


@cache
def caught_without_mistake(backend: str) -> set[str]:
    return caught(backend)


@pytest.mark.parametrize("backend", FAMILIES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_in_normalising_is_caught(mistake: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong, quantity = MISTAKES[mistake]
    assert caught_without_mistake(backend) == set()
    target = import_module(module.format(family=FAMILIES[backend], backend=backend))
    monkeypatch.setattr(target, name, wrong(getattr(target, name)))
    assert quantity in caught(backend)


# Learning.

RECIPE = Config(
    num_steps=200,
    num_iterations=50,
    num_minibatches=16,
    learning_rate=1e-3,
    gamma=0.95,
    entropy_coefficient=0.0,
    clip_value=False,
    normalise_obs=True,
    normalise_reward=True,
)


def learnt(name: str, config: Config, mode: str) -> float:
    """The mean greedy return on Pendulum after training, in a process without annotation checks."""
    code = """
import sys, json
from benchback.training.evaluate import evaluate
from benchback.training.run import Run
from benchback.training import train
run = Run.from_dict(json.loads(sys.argv[1]))
*_, last = train(run)
print(evaluate(run, last.export(), episodes=32, seed=1).mean())
"""
    run = Run(config, env=PENDULUM, backend=name, mode=mode)
    command = [sys.executable, "-c", code, json.dumps(run.to_dict())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=os.environ)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.splitlines()[-1])


# In the fast suite both learn the probes, and TD3 learns Pendulum.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["purejax", "pytorch"])
def test_pendulum_is_nearly_solved_in_a_short_run(name: str) -> None:
    assert learnt(name, replace(RECIPE, num_iterations=25), IN_PROCESS[name]) >= -300


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.BACKENDS)
def test_pendulum_is_solved(name: str) -> None:
    assert learnt(name, RECIPE, registry.BACKENDS[name].best) >= -200
