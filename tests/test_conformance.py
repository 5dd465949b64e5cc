"""Every suite through one interface: what each of its environments must keep, and the library's own transitions.

A subject says what is known of an environment; everything else is asked through `Env`, so that a suite joins by a line
in SUBJECTS, and by a function in LIBRARIES that steps the library directly. What is special about external
environments, the transitions of their libraries among it, is in test_python_envs.py.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import picture
import pytest

from benchback import envs
from benchback.envs.interface import Box, Discrete, Env, EnvState, Step

NUM_ENVS = 2
SHORT = 40

Policy = Callable[[np.ndarray], np.ndarray]
"""Observations `[E, *O]` -> actions."""


@dataclass(frozen=True)
class Subject:
    """An environment, and what is known of it."""

    id: str
    limit: int
    """Steps after which an episode is truncated."""
    lasting: Policy
    """Ends no episode before the limit."""
    num_starts: int | None = None
    """Number of states in which an episode may begin; None where hardly any two are alike."""
    image: tuple[tuple[int, ...], str] | None = None
    """Shape and type of an observation of rank 3; None for vectors of float32."""
    tolerance: float = 1e-5
    """Of observations against the library's, where they come from differently compiled programs."""


def always(action: int) -> Policy:
    return lambda obs: np.full(len(obs), action, np.int32)


def nothing(size: int) -> Policy:
    return lambda obs: np.zeros((len(obs), size), np.float32)


def steering(*gains: float) -> Policy:
    """A push that is linear in what is seen, as a pole on a cart wants it."""
    return lambda obs: (obs @ np.array(gains, np.float32))[:, None]


def pushing(obs: np.ndarray) -> np.ndarray:
    """Right or left, as CartPole wants it."""
    return (steering(0.1, 0.3, 1.0, 0.5)(obs)[:, 0] > 0).astype(np.int32)


def tracking(obs: np.ndarray) -> np.ndarray:
    """The paddle follows the ball, as Breakout wants it."""
    ball, paddle = obs[..., 1].sum(1).argmax(-1), obs[:, 9, :, 0].argmax(-1)
    return np.where(ball < paddle, 1, 2 * (ball > paddle)).astype(np.int32)


BOARD = (10, 10, 4), "bool"

SUBJECTS = [
    Subject("gymnax/CartPole-v1", 500, pushing),
    Subject("torch/CartPole-v1", 500, pushing),
    Subject("gymnax/Pendulum-v1", 200, nothing(1)),
    Subject("gymnax/Breakout-MinAtar", 1000, tracking, num_starts=2, image=BOARD),
    Subject("torch/Breakout-MinAtar", 1000, tracking, num_starts=2, image=BOARD),
    Subject("navix/Navix-Empty-8x8-v0", 100, always(2), num_starts=1, image=((8, 8, 3), "uint8")),
    Subject("navix/Navix-Empty-Random-6x6-v0", 100, always(0), image=((6, 6, 3), "uint8")),
    Subject("gymnasium/CartPole-v1", 500, pushing),
    Subject("gymnasium/HalfCheetah-v5", 1000, nothing(6)),
    Subject("gymnasium/Picture-v0", picture.LIMIT, always(0), image=(picture.SHAPE, "uint8")),
    Subject("envpool/CartPole-v1", 500, pushing),
    Subject("envpool/HalfCheetah-v4", 1000, nothing(6)),
]
SLOW = [
    Subject("brax/inverted_pendulum", 1000, steering(0.3, 5.0, 0.0, 0.05)),
    Subject("playground/CartpoleBalance", 1000, nothing(1)),
    Subject("brax/halfcheetah", 1000, nothing(6), tolerance=1e-3),
    Subject("brax/reacher", 1000, nothing(2), tolerance=1e-3),
    Subject("navix/Navix-DoorKey-Random-5x5-v0", 100, always(0), image=((5, 5, 3), "uint8")),
    Subject("playground/CheetahRun", 1000, nothing(6), tolerance=1e-3),
]
# Balls roll about by chance and end an episode sooner or later: for the comparison with the library alone.
OBSTACLES = Subject("navix/Navix-Dynamic-Obstacles-6x6-v0", 100, always(0), image=((6, 6, 3), "uint8"))
# Its episodes are too long to be played: for shapes and types alone.
PONG = Subject("envpool/Pong-v5", 27_000, always(0), image=((4, 84, 84), "uint8"))


def parameters(subjects: list[Subject]) -> list[Any]:
    return [pytest.param(s, id=s.id, marks=[pytest.mark.slow] if s in (*SLOW, OBSTACLES) else []) for s in subjects]


ALL = parameters([*SUBJECTS, *SLOW])
BOXES = parameters([s for s in (*SUBJECTS, *SLOW) if envs.kind(s.id) == "box"])


class Made(NamedTuple):
    """An environment whose programs all tests share."""

    env: Env
    reset: Callable[[Any], EnvState]
    step: Callable[[EnvState, Any, Any], tuple[EnvState, Step]]


@cache
def made(subject: Subject) -> Made:
    env = envs.make(subject.id, NUM_ENVS, "torch" if subject.id.startswith("torch/") else "jax")
    compiled = jax.jit if env.framework == "jax" else lambda function: function
    return Made(env, compiled(env.reset), compiled(env.step))


def native(env: Env, action: np.ndarray) -> Any:
    """The action as an array of the environment's framework."""
    if env.framework == "jax":
        return jnp.asarray(action)
    import torch

    return torch.from_numpy(action)


def as_numpy(step: Step) -> Step:
    return Step(*map(np.asarray, step))


class History(NamedTuple):
    first_obs: np.ndarray
    action: np.ndarray
    step: Step
    """Fields are `[T, E, ...]`."""


def play(subject: Subject, seed: int, num_steps: int, policy: Policy) -> History:
    env, reset, step = made(subject)
    state = reset(env.random(seed))
    first_obs, outcomes, actions = np.asarray(state.obs), [], []
    noise = env.draw(env.random(seed + 1), num_steps)
    for t in range(num_steps):
        actions.append(policy(np.asarray(state.obs, np.float32)))
        state, outcome = step(state, native(env, actions[-1]), noise[t])
        outcomes.append(as_numpy(outcome))
    return History(first_obs, np.stack(actions), Step(*map(np.stack, zip(*outcomes, strict=True))))


@cache
def whole_episodes(subject: Subject) -> History:
    """A little more than an episode of each environment, which nothing but time has ended."""
    return play(subject, 0, subject.limit + 3, subject.lasting)


def at_random(subject: Subject, seed: int, factor: float = 1.0) -> Policy:
    """Uniform actions; those that are real numbers reach beyond their bounds where the factor is greater than 1."""
    actions, generator = made(subject).env.actions, np.random.default_rng(seed)

    def policy(obs: np.ndarray) -> np.ndarray:
        if isinstance(actions, Discrete):
            return generator.integers(actions.size, size=len(obs), dtype=np.int32)
        low, high = np.array(actions.low), np.array(actions.high)
        return (factor * generator.uniform(low, high, (len(obs), actions.size))).astype(np.float32)

    return policy


@cache
def short(subject: Subject) -> History:
    """Random actions for a while."""
    return play(subject, 0, SHORT, at_random(subject, 0))


@pytest.mark.parametrize("subject", [*ALL, *parameters([PONG])])
def test_shapes_and_types_are_as_promised(subject: Subject) -> None:
    env, (first_obs, _, step) = made(subject).env, short(subject)
    shape, dtype = subject.image or ((env.observation_size,), "float32")
    assert (env.id, env.num_envs, env.actions.kind) == (subject.id, NUM_ENVS, envs.kind(subject.id))
    assert env.observation_shape == shape
    assert first_obs.shape == (NUM_ENVS, *shape)
    assert step.obs.shape == step.final_obs.shape == (SHORT, NUM_ENVS, *shape)
    assert first_obs.dtype == step.obs.dtype == step.final_obs.dtype == dtype
    assert np.isfinite(step.obs).all()
    assert np.isfinite(step.final_obs).all()
    plain = (step.reward, step.terminated, step.truncated, step.episode_return, step.episode_length)
    assert all(field.shape == (SHORT, NUM_ENVS) for field in plain)
    assert [field.dtype.kind for field in plain] == ["f", "b", "b", "f", "i"]


@pytest.mark.parametrize("subject", parameters([s for s in (*SUBJECTS, PONG) if s.image and s.id[:5] != "torch"]))
def test_an_image_served_to_torch_keeps_its_shape_and_type(subject: Subject) -> None:
    """Over DLPack from a JAX environment, as a view of NumPy's array from an external one."""
    env = envs.make(subject.id, NUM_ENVS, "torch")
    assert subject.image
    shape, dtype = subject.image
    state, noise = env.reset(env.random(0)), env.draw(env.random(1), 1)[0]
    following, step = env.step(state, native(env, np.zeros(NUM_ENVS, np.int32)), noise)
    assert env.observation_shape == shape
    for obs in (state.obs, following.obs, step.obs, step.final_obs):
        assert (tuple(obs.shape), str(obs.dtype)) == ((NUM_ENVS, *shape), f"torch.{dtype}")


@pytest.mark.parametrize("subject", ALL)
def test_equal_seeds_reproduce_and_others_differ(subject: Subject) -> None:
    again, other = (play(subject, seed, SHORT, at_random(subject, 0)) for seed in (0, 7))
    for a, b in zip(short(subject).step, again.step, strict=True):
        np.testing.assert_array_equal(a, b)
    if subject.num_starts is None:
        assert (other.first_obs != again.first_obs).any()


@pytest.mark.parametrize("subject", BOXES)
def test_actions_beyond_the_bounds_are_the_bounds(subject: Subject) -> None:
    actions = made(subject).env.actions
    assert isinstance(actions, Box)
    beyond = play(subject, 0, SHORT, at_random(subject, 3, factor=3.0))
    assert (np.abs(beyond.action) > np.array(actions.high)).any()
    clipped = iter(np.clip(beyond.action, *np.array([actions.low, actions.high], np.float32)))
    within = play(subject, 0, SHORT, lambda obs: next(clipped))
    np.testing.assert_array_equal(beyond.step.final_obs, within.step.final_obs)
    np.testing.assert_array_equal(beyond.step.reward, within.step.reward)


@pytest.mark.parametrize("subject", ALL)
def test_an_episode_is_truncated_at_its_limit_and_not_before(subject: Subject) -> None:
    step = whole_episodes(subject).step
    assert not step.terminated.any()
    for e in range(NUM_ENVS):
        assert np.flatnonzero(step.truncated[:, e]).tolist() == [subject.limit - 1]


@pytest.mark.parametrize("subject", ALL)
def test_final_observations_are_of_the_episode_that_ended(subject: Subject) -> None:
    step = whole_episodes(subject).step
    done = step.terminated | step.truncated
    np.testing.assert_array_equal(step.obs[~done], step.final_obs[~done])
    assert done.any()
    assert (step.obs[done] != step.final_obs[done]).reshape(done.sum(), -1).any(axis=1).all()


@pytest.mark.parametrize("subject", ALL)
def test_every_episode_begins_afresh(subject: Subject) -> None:
    first_obs, _, step = whole_episodes(subject)
    begun = np.concatenate([first_obs, step.obs[step.truncated]])
    assert len(begun) == 2 * NUM_ENVS
    assert len(np.unique(begun, axis=0)) == (subject.num_starts or len(begun))


@pytest.mark.parametrize("subject", ALL)
def test_episode_statistics_are_sums_over_the_episode(subject: Subject) -> None:
    for _, _, step in (whole_episodes(subject), short(subject)):
        total, length = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS)
        for t in range(len(step.reward)):
            total, length = total + step.reward[t], length + 1
            np.testing.assert_allclose(step.episode_return[t], total, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(step.episode_length[t], length)
            ended = step.terminated[t] | step.truncated[t]
            total, length = np.where(ended, 0, total), np.where(ended, 0, length)


@pytest.mark.parametrize("subject", ALL)
def test_environments_side_by_side_are_independent(subject: Subject) -> None:
    """The second acts otherwise: the first does not notice."""
    a = short(subject)
    theirs = a.action[:, 1]
    theirs = (theirs + 1) % made(subject).env.actions.size if theirs.ndim == 1 else -theirs
    altered = iter(np.stack([a.action[:, 0], theirs], axis=1))
    b = play(subject, 0, SHORT, lambda obs: next(altered))
    np.testing.assert_array_equal(a.step.final_obs[:, 0], b.step.final_obs[:, 0])
    np.testing.assert_array_equal(a.step.reward[:, 0], b.step.reward[:, 0])
    assert (a.step.final_obs[:, 1] != b.step.final_obs[:, 1]).any()


class Library(NamedTuple):
    """The original, one environment at a time."""

    reset: Callable[[Any], tuple[Any, Any]]
    """Key -> observation, state."""
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    """(key, state, action) -> observation, state, reward, whether it has ended by itself."""


def of_gymnax(name: str) -> Library:
    import gymnax

    library, params = gymnax.make(name)
    reset = jax.jit(lambda key: library.reset_env(key, params))
    return Library(reset, jax.jit(lambda key, state, action: library.step_env(key, state, action, params)[:4]))


def of_simulation(library: Any) -> Library:
    def reset(key: Any) -> tuple[Any, Any]:
        state = library.reset(jax.random.key_data(key))
        return state.obs, state

    def step(key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        state = library.step(state, action)
        return state.obs, state, state.reward, state.done

    return Library(jax.jit(reset), jax.jit(step))


def of_brax(name: str) -> Library:
    import brax.envs

    from benchback.envs.physics import without_warnings

    with without_warnings():
        return of_simulation(brax.envs.get_environment(name, backend="spring"))


def of_playground(name: str) -> Library:
    from mujoco_playground import registry

    from benchback.envs.physics import without_warnings

    with without_warnings():
        return of_simulation(registry.load(name, config_overrides={"impl": "jax"}))


def of_navix(name: str) -> Library:
    import navix

    library = navix.make(name)

    def reset(key: Any) -> tuple[Any, Any]:
        timestep = library.reset(jax.random.key_data(key))
        return timestep.observation, timestep

    def step(key: Any, timestep: Any, action: Any) -> tuple[Any, ...]:
        timestep = library.step(timestep, action)
        return timestep.observation, timestep, timestep.reward, timestep.is_termination()

    return Library(jax.jit(reset), jax.jit(step))


LIBRARIES = {"gymnax": of_gymnax, "brax": of_brax, "navix": of_navix, "playground": of_playground}


@pytest.mark.filterwarnings("ignore")  # what the libraries warn of in each other
@pytest.mark.parametrize(
    "subject", parameters([s for s in (*SUBJECTS, *SLOW, OBSTACLES) if s.id.partition("/")[0] in LIBRARIES])
)
def test_trajectories_are_those_of_the_library(subject: Subject) -> None:
    """Short of the time limit; where an episode ends by itself, both go on from a reset with the same key."""
    suite, _, name = subject.id.partition("/")
    library, env, ours = LIBRARIES[suite](name), made(subject).env, short(subject)
    assert subject.limit > SHORT
    near = partial(np.testing.assert_allclose, rtol=subject.tolerance, atol=subject.tolerance)
    noise = env.draw(env.random(1), SHORT)
    for e, key in enumerate(jax.random.split(env.random(0), NUM_ENVS)):
        obs, state = library.reset(key)
        near(ours.first_obs[e], obs)
        for t in range(SHORT):
            obs, state, reward, terminated = library.step(noise[t, 0, e], state, ours.action[t, e])
            near(ours.step.final_obs[t, e], obs)
            near(ours.step.reward[t, e], reward)
            assert ours.step.terminated[t, e] == bool(terminated)
            if terminated:
                obs, state = library.reset(noise[t, 1, e])
            near(ours.step.obs[t, e], obs)


def test_some_short_histories_hold_ended_episodes() -> None:
    """Without any, the comparison with the libraries would not see a reset."""
    assert short(next(s for s in SUBJECTS if s.id == "gymnax/CartPole-v1")).step.terminated.any()


def without_numbers(leaf: Any) -> Any:
    """The leaf with NaN in the first environment where it holds real numbers."""
    leaf = np.array(leaf)
    if leaf.dtype.kind == "f":
        leaf[0] = np.nan
    return jnp.asarray(leaf)


@pytest.mark.parametrize("subject", [p for p in ALL if p.values[0].id.startswith(("brax/", "playground/"))])
def test_a_simulation_that_diverges_ends_its_episode_and_nothing_else(subject: Subject) -> None:
    env, reset, step = made(subject)
    state = reset(env.random(0))
    broken = jax.tree.map(without_numbers, state.inner.state)
    inner = state.inner._replace(state=broken.replace(obs=state.obs))
    noise, action = env.draw(env.random(1), 1)[0], native(env, at_random(subject, 0)(np.asarray(state.obs)))
    _, healthy = step(state, action, noise)
    following, outcome = step(state._replace(inner=inner), action, noise)
    assert outcome.terminated.tolist() == [True, False]
    assert outcome.reward[0] == 0
    np.testing.assert_array_equal(outcome.final_obs[0], state.obs[0])
    np.testing.assert_array_equal(outcome.final_obs[1], healthy.final_obs[1])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(following) if x.dtype == jnp.float32)


def registered(suite: str) -> set[str]:
    """The names that the library itself knows, without those that are not for us."""
    if suite == "brax":
        import brax.envs

        return set(brax.envs._envs) - {"fast", "swimmer"}
    if suite == "navix":
        import navix

        return set(navix.registry())
    from mujoco_playground import dm_control_suite

    return set(dm_control_suite.ALL_ENVS)


@pytest.mark.parametrize("suite", ["brax", "navix", "playground"])
def test_names_are_those_of_the_library(suite: str) -> None:
    made(next(s for s in (*SUBJECTS, *SLOW) if s.id.startswith(suite)))  # imports it without_warnings
    assert set(envs.SUITES[suite]) == registered(suite)


def test_suites_load_no_more_than_they_need_and_say_nothing(tmp_path: Path) -> None:
    """Playground has a wrapper for torch, navix a tracker, and MuJoCo writes complaints into the user's folder."""
    code = (
        "import sys, benchback.envs.navix; from benchback.envs import playground; playground.make('CheetahRun', 1);"
        "print(*{'torch', 'wandb', 'rlax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr.strip(), done.returncode) == ("\n", "", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id in envs.ids() if id.partition("/")[0] in ("brax", "navix", "playground")])
def test_every_environment_can_be_made_and_stepped(id: str) -> None:
    env = envs.make(id, NUM_ENVS, "jax")
    shape = (NUM_ENVS,) if env.actions.kind == "discrete" else (NUM_ENVS, env.actions.size)
    action = jnp.zeros(shape, jnp.int32 if env.actions.kind == "discrete" else jnp.float32)

    def both(key: Any) -> Any:
        return env.step(env.reset(key), action, env.draw(key, 1)[0])

    _, step = jax.eval_shape(both, jax.random.key(0))
    assert env.actions.kind == envs.kind(id)
    assert step.obs.shape == (NUM_ENVS, *env.observation_shape)
