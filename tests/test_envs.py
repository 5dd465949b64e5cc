"""gymnax environments through our interface: the same transitions, and what the interface adds."""

import subprocess
import sys
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchback import envs
from benchback.envs.gymnax import make
from benchback.envs.interface import Box
from benchback.errors import InputError
from benchback.measure.coordinator import check_fit
from benchback.measure.study import Product, Study, load

NUM_ENVS, NUM_STEPS = 3, 40


STUDIED = {row["env"].partition("/")[2] for row in load("hour").products[0].rows()} | {"Pendulum-v1"}
"""Environments of the study for an hour, and one with real-valued actions."""
EVERY = [
    pytest.param(name, marks=[] if name in STUDIED else [pytest.mark.slow]) for name in (*envs.GYMNAX, *envs.CONTINUOUS)
]


def test_environments_of_every_kind_are_stepped() -> None:
    assert len(STUDIED & {*envs.GYMNAX, *envs.CONTINUOUS}) == 5


@pytest.mark.parametrize("name", EVERY)
def test_transitions_are_those_of_gymnax(name: str) -> None:
    """Our step against the library's own step_env, reset_env and is_truncated, one environment at a time."""
    env = make(name, NUM_ENVS)
    library, params = gymnax.make(name)

    def transition(key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        obs, state, reward, terminated, _ = library.step_env(key, state, action, params)
        return obs, state, reward, terminated, library.is_truncated(state, params)

    step_env = jax.jit(transition)
    reset_env = jax.jit(lambda key: library.reset_env(key, params))
    step = jax.jit(env.step)
    state = env.reset(jax.random.key(0))
    noise = env.draw(jax.random.key(1), NUM_STEPS)
    if env.actions.kind == "discrete":
        action = jax.random.randint(jax.random.key(2), (NUM_STEPS, NUM_ENVS), 0, env.actions.size)
    else:
        # Beyond the bounds too, to which our interface clips.
        action = 3 * jax.random.normal(jax.random.key(2), (NUM_STEPS, NUM_ENVS, env.actions.size))
    inner = [jax.tree.map(lambda x, e=e: x[e], state.inner) for e in range(NUM_ENVS)]
    for t in range(NUM_STEPS):
        state, outcome = step(state, action[t], noise[t])
        assert state.obs.shape == (NUM_ENVS, *env.observation_shape)
        outcome = jax.device_get(outcome)
        for e in range(NUM_ENVS):
            taken = action[t, e]
            if isinstance(env.actions, Box):
                taken = jnp.clip(taken, jnp.array(env.actions.low), jnp.array(env.actions.high))
            obs, inner[e], reward, terminated, truncated = step_env(noise[t, 0, e], inner[e], taken)
            np.testing.assert_allclose(outcome.final_obs[e], obs, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(outcome.reward[e], reward, rtol=1e-6)
            assert (outcome.terminated[e], outcome.truncated[e]) == (bool(terminated), bool(truncated))
            if terminated or truncated:
                obs, inner[e] = reset_env(noise[t, 1, e])
            np.testing.assert_allclose(outcome.obs[e], obs, rtol=1e-6, atol=1e-6)


def play(name: str, num_envs: int, num_steps: int, action: int = 0):
    env = make(name, num_envs)
    state = env.reset(jax.random.key(0))
    actions = jnp.full((num_steps, num_envs), action, jnp.int32)
    noise = env.draw(jax.random.key(1), num_steps)
    return jax.lax.scan(lambda s, x: env.step(s, *x), state, (actions, noise))


def test_cartpole_terminates_and_mountain_car_is_truncated_at_its_limit() -> None:
    _, cartpole = play("CartPole-v1", 4, 60)
    assert cartpole.terminated.any()
    assert not cartpole.truncated.any()
    _, mountain_car = play("MountainCar-v0", 2, 450, action=1)
    assert not mountain_car.terminated.any()
    assert np.flatnonzero(mountain_car.truncated[:, 0]).tolist() == [199, 399]


def test_minatar_observations_are_bytes() -> None:
    assert make("Breakout-MinAtar", 2).reset(jax.random.key(0)).obs.dtype == jnp.bool_


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("gymnax/Cartpole-v1", "did you mean gymnax/CartPole-v1"),
        ("Breakout", "did you mean gymnax/Breakout-MinAtar"),
        ("", "is unknown"),
    ],
)
def test_unknown_environments_are_refused_with_a_remedy(id: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        envs.make(id, 1, "jax")


def test_gymnax_is_imported_without_what_it_draws_with() -> None:
    code = (
        "import sys, benchback.envs.gymnax; assert not {'seaborn', 'matplotlib'} & set(sys.modules);"
        "from gymnax.visualize import Visualizer;"
        "import gymnax.visualize.visualizer as v; print(v.plt.figure.__name__, 'matplotlib.pyplot' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["figure", "True"]


@pytest.mark.parametrize("suite", envs.EXTRAS)
def test_a_suite_that_is_not_installed_names_its_extra(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    id = f"{suite}/{envs.SUITES[suite][0]}"
    study = Study("absent", (Product({"env": [id]}),), min_blocks=1, max_blocks=1)
    module, extra = envs.EXTRAS[suite]
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "modules", {n: m for n, m in sys.modules.items() if n.partition(".")[0] != module})
    words = rf"env={id} needs {module}, which is not installed: pip install '\.\[{extra}\]'"
    with pytest.raises(InputError, match=words):
        envs.make(id, 1, "jax")
    with pytest.raises(InputError, match=words):
        check_fit(study, {})


def test_native_torch_environments_are_refused_to_jax() -> None:
    with pytest.raises(InputError, match="use --backend pytorch"):
        envs.make("torch/CartPole-v1", 1, "jax")
