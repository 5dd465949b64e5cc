"""External environments, which live in Python: the transitions of their libraries, and every backend stepping them."""

import importlib
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, Literal

import envpool
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import picture  # noqa: F401  (registers an environment of images)
import pytest
import torch
from conftest import TINY
from representatives import representatives
from test_contract import IN_PROCESS

from benchback import envs, registry
from benchback.agent import network_of, start
from benchback.algorithms.ppo.config import Config
from benchback.backends import xla
from benchback.envs.interface import Step
from benchback.errors import InputError
from benchback.measure.complexity import step_seconds
from benchback.measure.record import Cell
from benchback.measure.worker import Job, perform
from benchback.training import train
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

Framework = Literal["jax", "torch"]
CARTPOLE = "gymnasium/CartPole-v1"
SEED, NUM_ENVS = 7, 3


def actions_for(actions: Any, num_steps: int) -> np.ndarray:
    chance = np.random.default_rng(0)
    if actions.kind == "discrete":
        return chance.integers(actions.size, size=(num_steps, NUM_ENVS))
    # Beyond the bounds too, to which our interface clips.
    return 2 * chance.normal(size=(num_steps, NUM_ENVS, actions.size)).astype(np.float32)


def played(id: str, action: np.ndarray | None = None, num_steps: int = 0, seed: int = SEED) -> tuple[Any, Any, Step]:
    """First observations, actions and the outcome of all steps; stacked last, so that nothing may be overwritten."""
    external = envs.make_external(id, NUM_ENVS)
    action = actions_for(external.copies.actions, num_steps) if action is None else action
    step_index, first = external.reset(seed)
    steps = []
    for chosen in action:
        step_index, step = external.step(step_index, chosen)
        steps.append(step)
    return first, action, Step(*map(np.stack, zip(*steps, strict=True)))


@pytest.mark.parametrize(
    ("name", "num_steps"),
    [
        ("CartPole-v1", 150),
        ("MountainCar-v0", 205),
        ("FrozenLake-v1", 60),
        ("HalfCheetah-v5", 1003),
        ("Hopper-v5", 60),
        ("Picture-v0", 60),
    ],
)
def test_transitions_are_those_of_gymnasium(
    name: str, num_steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the library's own environments, one at a time, with the same seeds."""
    monkeypatch.chdir(tmp_path)
    first, action, found = played(f"gymnasium/{name}", num_steps=num_steps)
    assert not list(tmp_path.iterdir()), "MuJoCo has written its log"
    ended = 0
    for e, seed in enumerate(np.random.SeedSequence(SEED).generate_state(NUM_ENVS).tolist()):
        env = gymnasium.make(name)
        space = env.observation_space

        def encoded(obs: Any, space: Any = space) -> np.ndarray:
            return obs.astype(first.dtype) if isinstance(space, gymnasium.spaces.Box) else np.eye(space.n)[obs]

        np.testing.assert_array_equal(first[e], encoded(env.reset(seed=seed)[0]))
        for t in range(num_steps):
            taken = action[t, e]
            if isinstance(env.action_space, gymnasium.spaces.Box):
                taken = np.clip(taken, env.action_space.low, env.action_space.high)
            obs, reward, terminated, truncated, _ = env.step(taken)
            np.testing.assert_array_equal(found.final_obs[t, e], encoded(obs))
            assert found.reward[t, e] == np.float32(reward)
            assert (found.terminated[t, e], found.truncated[t, e]) == (terminated, truncated)
            if terminated or truncated:
                ended += 1
                obs, _ = env.reset()
            np.testing.assert_array_equal(found.obs[t, e], encoded(obs))
    assert ended


@pytest.mark.filterwarnings("ignore:.*precision lowered")
@pytest.mark.parametrize(("name", "num_steps"), [("CartPole-v1", 150), ("HalfCheetah-v4", 1003), ("Pong-v5", 30)])
def test_transitions_are_those_of_envpool(name: str, num_steps: int) -> None:
    """Against pools of one, which start anew in the step after the last: that step is no transition of ours."""
    first, action, found = played(f"envpool/{name}", num_steps=num_steps)
    ended = 0

    def ours(obs: np.ndarray) -> np.ndarray:
        """One observation in our layout: the frames of an image are last."""
        return np.moveaxis(obs[0], 0, -1) if name == "Pong-v5" else obs[0].astype(np.float32)

    for e, seed in enumerate((np.random.SeedSequence(SEED).generate_state(NUM_ENVS) >> 1).tolist()):
        pool = envpool.make(name, "gymnasium", num_envs=1, seed=[seed], num_threads=1)
        np.testing.assert_array_equal(first[e], ours(pool.reset()[0]))
        for t in range(num_steps):
            taken = np.clip(action[t, e], -1, 1) if action.ndim == 3 else action[t, e]
            obs, reward, terminated, truncated, _ = pool.step(taken[None])
            np.testing.assert_array_equal(found.final_obs[t, e], ours(obs))
            assert found.reward[t, e] == reward[0]
            assert (found.terminated[t, e], found.truncated[t, e]) == (terminated[0], truncated[0])
            if terminated[0] or truncated[0]:
                ended += 1
                obs, reward, *_ = pool.step(taken[None])
                assert reward[0] == 0
            np.testing.assert_array_equal(found.obs[t, e], ours(obs))
    assert ended or name == "Pong-v5"
    assert first.dtype == (np.uint8 if name == "Pong-v5" else np.float32)


def test_time_limits_truncate_and_do_not_terminate() -> None:
    _, _, mountain_car = played("gymnasium/MountainCar-v0", np.ones((401, NUM_ENVS), int))
    assert not mountain_car.terminated.any()
    for e in range(NUM_ENVS):
        assert np.flatnonzero(mountain_car.truncated[:, e]).tolist() == [199, 399]
    _, _, cheetah = played("envpool/HalfCheetah-v4", num_steps=1001)
    assert not cheetah.terminated.any()
    assert np.flatnonzero(cheetah.truncated[:, 0]).tolist() == [999]


def through(framework: Framework, id: str, action: np.ndarray) -> tuple[Any, list[Any]]:
    """The environment and its outcomes as the framework sees them; in JAX from inside a compiled loop."""
    env = envs.make(id, NUM_ENVS, framework)
    state = env.reset(env.random(3))
    noise = env.draw(env.random(4), len(action))
    if framework == "torch":
        steps = []
        for t, chosen in enumerate(torch.from_numpy(action)):
            state, step = env.step(state, chosen, noise[t])
            steps.append(step)
        return env, [torch.stack(x) for x in zip(*steps, strict=True)]
    loop = jax.jit(lambda state, given: jax.lax.scan(lambda s, x: env.step(s, *x), state, given), donate_argnums=0)
    return env, list(loop(state, (jnp.asarray(action), noise))[1])


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("id", [CARTPOLE, "gymnasium/Hopper-v5", "gymnasium/Picture-v0", "envpool/Pong-v5"])
def test_arrays_cross_unchanged_and_are_counted(framework: Framework, id: str) -> None:
    action = actions_for(envs.make_external(id, 1).copies.actions, 30)
    env, found = through(framework, id, action)
    # The seed is the framework's own: Python is asked for that of its first state.
    key = jax.random.bits(jax.random.key(3)) if framework == "jax" else None
    seed = torch.randint(2**32, (), generator=env.random(3)) if key is None else key
    _, _, expected = played(id, action, seed=int(seed))
    for ours, theirs in zip(found, expected, strict=True):
        assert str(ours.dtype).removeprefix("torch.") == str(theirs.dtype)
        np.testing.assert_array_equal(np.asarray(ours), theirs)
    assert env.external.transfer_stats.transfers == 2 * 30
    assert env.external.transfer_stats.bytes >= action.nbytes + expected.final_obs.nbytes
    assert env.external.transfer_stats.seconds > 0


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_state_that_is_not_the_latest_is_refused(framework: Framework) -> None:
    env = envs.make(CARTPOLE, 2, framework)
    state = env.reset(env.random(0))
    zeros = jnp.zeros(2, jnp.int32) if framework == "jax" else torch.zeros(2, dtype=torch.int32)
    noise = env.draw(env.random(0), 1)[0]
    env.step(state, zeros, noise)
    with pytest.raises(Exception, match="one state, the latest"):
        jax.block_until_ready(env.step(state, zeros, noise))


@cache
def built(name: str, unit: str = "phase") -> tuple[Any, Any]:
    make, backend = registry.load("ppo", name)
    env = envs.make(CARTPOLE, TINY.num_envs, registry.BACKENDS[name].family)
    return registry.execute(make(TINY, env), backend, IN_PROCESS[name], unit, 2), backend


@cache
def initial_weights() -> Any:
    agent, _ = built("linen")
    return network_of(agent.export(start(agent, 0)))


def iterated(name: str, state: Any, iterations: int) -> tuple[Any, list[np.ndarray], Any]:
    """The state after some iterations, the actions and the metrics of each."""
    agent, backend = built(name)
    actions, metrics = [], []
    with xla.optimising(False):
        for _ in range(iterations):
            state, batch = agent.rollout(state)
            actions.append(np.array(backend.fetch(batch).action))
            state, found = agent.update(state, batch)
            metrics.append(backend.fetch(found))
    return state, actions, metrics


@cache
def first_iterations(name: str) -> tuple[list[np.ndarray], Any, Any]:
    """Actions and metrics of two iterations from common weights, and what is exported after them."""
    agent, _ = built(name)
    state, actions, metrics = iterated(name, start(agent, 0, initial_weights()), 2)
    return actions, metrics, agent.export(state)


@pytest.mark.parametrize("name", representatives())
def test_every_backend_trains_in_python(name: str) -> None:
    actions, metrics, weights = first_iterations(name)
    assert all(np.isfinite(metrics[-1][x]) for x in ("policy_loss", "value_loss", "grad_norm"))
    assert int(weights["adam/count"]) == 2 * TINY.updates_per_iteration
    if registry.BACKENDS[name].family == "jax":
        np.testing.assert_array_equal(actions, first_iterations("linen")[0])


@pytest.mark.parametrize("name", ["linen", "nnx", "pytorch"])
def test_a_resumed_run_goes_on_with_new_episodes(name: str) -> None:
    weights = first_iterations(name)[2]
    assert not [x for x in weights if x.startswith("env/")]
    agent, backend = built(name)
    compiles = backend.compiles()
    state, actions, metrics = iterated(name, start(agent, 0, weights), 1)
    assert int(agent.export(state)["adam/count"]) == 3 * TINY.updates_per_iteration
    assert metrics[0]["grad_norm"] > 0
    # The stream of actions goes on where it was, the episodes do not.
    assert (actions[0] != first_iterations(name)[0][0]).any()
    assert metrics[0]["episode_length"] <= TINY.num_steps or metrics[0]["episodes"] == 0
    assert backend.compiles() - compiles <= 1


@pytest.mark.parametrize("name", ["purejax", "pytorch"])
def test_a_policy_can_be_played_in_python(name: str) -> None:
    run = Run(TINY, env=CARTPOLE, backend=name, mode=IN_PROCESS[name])
    returns = evaluate(run, first_iterations(name)[2], episodes=3)
    assert (returns >= 5).all()


def test_one_program_of_many_iterations_steps_it_as_often() -> None:
    agent, backend = built("purejax", "chunk")
    with xla.optimising(False):
        state, metrics = agent.iterate(start(agent, 0, initial_weights()))
    _, expected, weights = first_iterations("purejax")
    found = backend.fetch(metrics)
    for i in range(2):
        for name, x in expected[i].items():
            np.testing.assert_allclose(found[name][i], x, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(agent.export(state)["actor/0/kernel"], weights["actor/0/kernel"], atol=1e-6)


WIDE = """
import jax, jax.numpy as jnp, numpy as np, gymnasium
from functools import partial
from benchback import envs

class Wide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (100_000,))
    action_space = gymnasium.spaces.Box(-1, 1, (50_000,))
    def reset(self, seed=None, options=None):
        return np.zeros(100_000), {}
    def step(self, action):
        return np.full(100_000, action[0]), float(action.mean()), False, False, {}

gymnasium.register("Wide-v0", Wide, max_episode_steps=10)
env = envs.make("gymnasium/Wide-v0", 4, "jax")

@partial(jax.jit, donate_argnums=0)
def play(state, key):
    def one(state, noise):
        return env.step(state, jnp.tanh(state.obs[:, :50_000] + jax.random.normal(key, (4, 50_000))), noise)
    return jax.lax.scan(one, state, env.draw(key, 25))

state, seen = jax.jit(env.reset)(jax.random.key(0)), []
for i in range(4):  # not waited for: the next program is asked for while this one calls back
    state, step = play(state, jax.random.key(i))
    seen.append(step.truncated.sum())
print(int(sum(seen)), env.external.transfer_stats.transfers)
"""


def test_calling_back_from_a_single_thread_does_not_wait_for_itself() -> None:
    """Megabytes each way, donated states, one XLA thread, programs queued one after another: once a deadlock."""
    said = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, timeout=600, env=os.environ)
    assert said.stdout.split() == [str(4 * 10), str(2 * 100)], said.stderr


def test_a_record_tells_what_crossing_cost() -> None:
    tiny = {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "num_epochs": 1, "hidden_sizes": [8]}
    ledgers = {}
    for env in (CARTPOLE, "torch/CartPole-v1"):
        run = Run.from_dict({"env": env, "backend": "pytorch", "mode": "none", "num_iterations": 4, **tiny}).to_dict()
        cell = Cell({name: x for name, x in run.items() if name != "seed"})
        ledgers[env] = perform(Job(cell, 3, time.monotonic())).ledger
    ours = ledgers[CARTPOLE]
    assert (ours["host_env"], ours["bridged"], ours["env_transfers_per_call"]) == (True, False, 16)
    assert ours["env_bytes_per_call"] >= 8 * 4 * (8 + 4 * 4 + 4 + 1 + 1 + 4 + 4)
    assert 0 < ours["env_share"] < 1
    assert ledgers["torch/CartPole-v1"]["host_env"] is False
    assert "env_share" not in ledgers["torch/CartPole-v1"]


def test_a_step_can_be_timed_without_a_policy() -> None:
    assert 0 < step_seconds(CARTPOLE, 2) < 0.1


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("gymnasium/Cartpole-v1", "did you mean gymnasium/CartPole-v1"),
        ("gymnasium/HalfCheetah-v9", "did you mean gymnasium/HalfCheetah-v"),
        ("envpool/Pongg-v5", "did you mean envpool/Pong-v5"),
        ("gymnasium/", "is unknown"),
    ],
)
def test_unknown_and_unfit_ids_are_refused_with_a_remedy(id: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        envs.make(id, 1, "jax")


@pytest.mark.parametrize(
    ("id", "module", "extra"),
    [
        ("envpool/CartPole-v1", "envpool", "envpool"),
        ("gymnasium/HalfCheetah-v5", "mujoco", "mujoco"),
        (CARTPOLE, "gymnasium", "mujoco"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(
    id: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError):
        importlib.import_module(module)
    with pytest.raises(InputError, match=rf"pip install '\.\[{extra}\]'"):
        envs.make(id, 2, "jax")


def test_kinds_are_known_before_anything_is_made() -> None:
    code = (
        "import sys; from benchback import envs\n"
        "for id in envs.ids(): envs.check(id); envs.kind(id)\n"
        "assert not {'gymnasium', 'envpool', 'mujoco'} & set(sys.modules)\n"
        "print(envs.kind('gymnasium/Pendulum-v1'), envs.kind('gymnasium/FrozenLake-v1'))\n"
        "assert not {'jax', 'torch'} & set(sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["box", "discrete"]
    for suite in envs.EXTERNAL:
        module = importlib.import_module(f"benchback.envs.{suite}")
        assert {name: module.kind(name) for name in envs.SUITES[suite]} == {
            name: envs.kind(f"{suite}/{name}") for name in envs.SUITES[suite]
        }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["purejax", "pytorch"])
def test_cartpole_in_python_reaches_195(name: str) -> None:
    run = Run(Config(num_iterations=12), env=CARTPOLE, backend=name, mode=IN_PROCESS[name])
    last = list(train(run))[-1].export()
    assert evaluate(run, last, episodes=16).mean() >= 195
