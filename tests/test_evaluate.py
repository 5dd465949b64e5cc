"""Evaluation: the return of the first episode of every environment, whatever is played after it."""

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchback import registry
from benchback.agent import Weights, start
from benchback.envs.interface import Discrete, Env
from benchback.envs.vectorise import vectorise
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

EPISODES, LONGEST = 16, 9


class Inner(NamedTuple):
    time: Any
    length: Any


class Suite:
    """Episodes as long as their reset has drawn; a reward of 1 for every step."""

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Inner]:
        length = jax.random.randint(key, (), 1, LONGEST + 1)
        return jnp.array([length, 0.0]), Inner(jnp.int32(0), length)

    def step_env(self, key: Any, inner: Inner, action: Any, params: Any) -> tuple[Any, Inner, Any, Any, dict]:
        time = inner.time + 1
        return jnp.array([inner.length, 1.0]), Inner(time, inner.length), 1.0, time >= inner.length, {}

    def is_truncated(self, inner: Inner, params: Any) -> Any:
        return jnp.bool_(False)


def environment(run: Run, num_envs: int) -> Env:
    return vectorise(Suite(), None, "double/Lengths-v0", num_envs, Discrete(2))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(importlib.import_module("benchback.training.evaluate"), "environment", environment)
    return Run.from_dict({"backend": "purejax", "hidden_sizes": [8]})


@pytest.fixture
def weights(run: Run) -> Weights:
    make, _ = registry.load(run.algorithm, run.backend)
    agent = make(run.config.for_evaluation(1), environment(run, 1))
    return agent.export(start(agent, 0))


def test_only_the_first_episode_of_an_environment_counts(run: Run, weights: Weights) -> None:
    env = environment(run, EPISODES)
    lengths = np.asarray(env.reset(env.random(3)).obs[:, 0])
    assert lengths.max() > 2 * lengths.min(), "no second episode ends before the last first one"
    assert evaluate(run, weights, EPISODES, seed=3).tolist() == lengths.tolist()
    short = evaluate(run, weights, EPISODES, seed=3, max_steps=4)
    assert np.array_equal(short, np.where(lengths <= 4, lengths, np.nan), equal_nan=True)


class Drawing(Suite):
    """Rewards drawn at every step, in episodes of a given length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Inner]:
        return jnp.zeros(2), Inner(jnp.int32(0), jnp.int32(self.length))

    def step_env(self, key: Any, inner: Inner, action: Any, params: Any) -> tuple[Any, Inner, Any, Any, dict]:
        obs, inner, _, terminated, info = super().step_env(key, inner, action, params)
        return obs, inner, jax.random.uniform(key), terminated, info


def test_noise_is_not_repeated_within_an_evaluation(
    run: Run, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many steps as are drawn at once must not give twice the return."""
    module = importlib.import_module("benchback.training.evaluate")

    def returns(length: int) -> np.ndarray:
        env = vectorise(Drawing(length), None, "double/Drawing-v0", 2, Discrete(2))
        monkeypatch.setattr(module, "environment", lambda run, num_envs: env)
        return evaluate(run, weights, episodes=2)

    half, whole = returns(module.NOISE_STEPS), returns(2 * module.NOISE_STEPS)
    assert (np.abs(whole - 2 * half) > 0.1).all()
    assert (whole > half).all()
