"""Drawn randomness is used once: no two environments, no two steps, no step and reset share a key."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchback import envs
from benchback.envs.interface import Discrete, Env
from benchback.envs.vectorise import vectorise
from benchback.errors import InputError

NUM_ENVS, NUM_STEPS = 3, 4


def pieces(env: Env, noise: Any) -> np.ndarray:
    """The noise of `draw`, a row for each use of it: an environment in a step, and its step or its reset."""
    if env.framework == "torch" and isinstance(noise, list):
        (raw, _), *_ = noise  # a JAX environment: all steps share an array, and each has its index
        noise = np.stack([np.asarray(raw)[t] for _, t in noise])
    elif env.framework == "jax" and jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
        noise = jax.random.key_data(noise)
    noise = np.asarray(noise)
    assert len(noise) == NUM_STEPS
    return noise.reshape(-1, noise.shape[-1])


def taken_twice(env: Env) -> int:
    """How many pieces of noise of two draws are the same as another."""
    random = env.random(0)
    key, other = (random, random) if env.framework == "torch" else jax.random.split(random)
    rows = np.concatenate([pieces(env, env.draw(source, NUM_STEPS)) for source in (key, other)])
    return len(rows) - len(np.unique(rows, axis=0))


DRAWING = {
    "gymnax/CartPole-v1": ("jax", "torch"),
    "gymnax/Pendulum-v1": ("jax", "torch"),
    "brax/inverted_pendulum": ("jax",),
    "navix/Navix-Empty-8x8-v0": ("jax",),
    "playground/CartpoleBalance": ("jax",),
    "torch/CartPole-v1": ("torch",),
    "torch/Asterix-MinAtar": ("torch",),
    "torch/Breakout-MinAtar": ("torch",),
}
"""One environment of each suite that draws; the others are in Python and draw for themselves."""


def made(id: str, family: Any) -> Env:
    try:
        return envs.make(id, NUM_ENVS, family)
    except InputError as error:
        pytest.skip(str(error))


SIMULATED = ("brax/", "playground/")
"""Suites whose simulation takes long to compile."""


@pytest.mark.parametrize(
    ("id", "family"),
    [
        pytest.param(id, family, marks=[pytest.mark.slow] if id.startswith(SIMULATED) else [])
        for id, families in DRAWING.items()
        for family in families
    ],
)
def test_no_noise_is_drawn_twice(id: str, family: str) -> None:
    assert taken_twice(made(id, family)) == 0


def test_every_suite_that_draws_is_tried() -> None:
    assert {id.partition("/")[0] for id in DRAWING} == envs.SUITES.keys() - envs.EXTERNAL.keys() - {"probe"}


# Known mistakes.


def same_for_step_and_reset(noise: Any) -> Any:
    """The step's keys for the reset too."""
    return noise[:, jnp.array([0, 0])]


def same_for_all_environments(noise: Any) -> Any:
    """The first environment's keys for all."""
    return noise[:, :, jnp.zeros(NUM_ENVS, int)]


def same_for_all_steps(noise: Any) -> Any:
    """The first step's keys for all."""
    return noise[jnp.zeros(NUM_STEPS, int)]


MISTAKES = (same_for_step_and_reset, same_for_all_environments, same_for_all_steps)
Mistake = Callable[[Any], Any]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_key_given_twice_is_caught(mistake: Mistake) -> None:
    env = made("gymnax/CartPole-v1", "jax")
    assert taken_twice(mistaken(env, mistake)) > 0
    assert taken_twice(env) == 0


def mistaken(env: Env, mistake: Mistake) -> Env:
    return replace(env, draw=lambda key, num_steps: mistake(env.draw(key, num_steps)))


@pytest.mark.parametrize("mistake", [mistake for mistake in MISTAKES if mistake is not same_for_step_and_reset])
def test_a_key_given_twice_is_caught_behind_the_bridge(mistake: Mistake) -> None:
    env = made("gymnax/CartPole-v1", "torch")

    def draw(generator: Any, num_steps: int) -> Any:
        noise = env.draw(generator, num_steps)
        return [(mistake(noise[0][0]), t) for _, t in noise]

    assert taken_twice(replace(env, draw=draw)) > 0


def test_noise_that_environments_of_torch_share_is_caught() -> None:
    env = made("torch/CartPole-v1", "torch")
    shared = replace(env, draw=lambda generator, num_steps: env.draw(generator, num_steps)[:, [0] * NUM_ENVS])
    assert taken_twice(shared) > 0


# What the keys are used for.


class Dice:
    """Every step ends the episode; its final observation and the first of the next are what its keys draw."""

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        return jax.random.uniform(key, (1,)), jnp.zeros(())

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        return jax.random.uniform(key, (1,)), state, 0.0, True, {}

    def is_truncated(self, state: Any, params: Any) -> Any:
        return jnp.zeros((), bool)


def thrown(env: Env) -> np.ndarray:
    """Everything that was drawn in the steps of a rollout and by the reset before it."""
    reset_key, key = jax.random.split(jax.random.key(0))
    state = env.reset(reset_key)
    found = [state.obs]
    for noise in env.draw(key, NUM_STEPS):
        state, step = env.step(state, jnp.zeros(NUM_ENVS, jnp.int32), noise)
        found += [step.obs, step.final_obs]
    return np.concatenate(found).ravel()


def test_steps_and_resets_of_all_environments_are_independent() -> None:
    env = vectorise(Dice(), None, "dice", NUM_ENVS, Discrete(2))
    assert len(np.unique(thrown(env))) == NUM_ENVS * (1 + 2 * NUM_STEPS)
    for mistake in MISTAKES:
        assert len(np.unique(thrown(mistaken(env, mistake)))) < NUM_ENVS * (1 + 2 * NUM_STEPS)
