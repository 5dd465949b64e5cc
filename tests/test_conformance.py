"""Every suite through one interface: the laws that its environments must keep, and the library's own transitions.

The laws are those of `benchback conform`. A subject says what is known of an environment, so that a suite joins by a
line in SUBJECTS, and by a function in LIBRARIES that steps the library directly. What is special about external
environments, the transitions of their libraries among it, is in test_python_envs.py.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import picture
import pytest

from benchback import envs
from benchback.envs import wrappers
from benchback.envs.conformance import LAWS, Examination, Subject, judge
from benchback.envs.conformance.playing import SHORT, Policy, at_random, native

NUM_ENVS = 2


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


def known(
    id: str,
    limit: int,
    lasting: Policy,
    starts: int | Literal["distinct"] = "distinct",
    image: tuple[tuple[int, ...], str] | None = None,
) -> Subject:
    """An environment of which everything is known; its observations are vectors of float32 unless it has images."""
    layout = image or ((VECTORS[id],), "float32")
    return Subject(id, limit, lasting, starts, layout, NUM_ENVS)


VECTORS = {
    "gymnax/CartPole-v1": 4,
    "torch/CartPole-v1": 4,
    "gymnax/Pendulum-v1": 3,
    "torch/Pendulum-v1": 3,
    "torch/DiscountingChain-bsuite": 2,
    "torch/BernoulliBandit-misc": 4,
    "torch/GaussianBandit-misc": 4,
    "gymnasium/CartPole-v1": 4,
    "gymnasium/HalfCheetah-v5": 17,
    "envpool/CartPole-v1": 4,
    "envpool/HalfCheetah-v4": 17,
    "brax/inverted_pendulum": 4,
    "playground/CartpoleBalance": 5,
    "brax/halfcheetah": 17,
    "brax/reacher": 11,
    "playground/CheetahRun": 17,
}
"""Size of an observation."""

SUBJECTS = [
    known("gymnax/CartPole-v1", 500, pushing),
    known("torch/CartPole-v1", 500, pushing),
    known("gymnax/Pendulum-v1", 200, nothing(1)),
    known("torch/Pendulum-v1", 200, nothing(1)),
    known("torch/DiscountingChain-bsuite", 100, always(0), starts=1),
    known("gymnax/Breakout-MinAtar", 1000, tracking, starts=2, image=BOARD),
    known("torch/Breakout-MinAtar", 1000, tracking, starts=2, image=BOARD),
    known("navix/Navix-Empty-8x8-v0", 100, always(2), starts=1, image=((8, 8, 3), "uint8")),
    known("navix/Navix-Empty-Random-6x6-v0", 100, always(0), image=((6, 6, 3), "uint8")),
    known("gymnasium/CartPole-v1", 500, pushing),
    known("gymnasium/HalfCheetah-v5", 1000, nothing(6)),
    known("gymnasium/Picture-v0", picture.LIMIT, always(0), image=(picture.SHAPE, "uint8")),
    known("envpool/CartPole-v1", 500, pushing),
    known("envpool/HalfCheetah-v4", 1000, nothing(6)),
]
SLOW = [
    known("torch/BernoulliBandit-misc", 100, always(0), starts=1),
    known("torch/GaussianBandit-misc", 100, always(0), starts=1),
    known("torch/Freeway-MinAtar", 2500, always(0), image=((10, 10, 7), "bool")),
    # These two always end before their time limit.
    Subject("torch/MemoryChain-bsuite", 0, starts=2, layout=((3,), "float32"), num_envs=NUM_ENVS),
    Subject("torch/UmbrellaChain-bsuite", 0, starts=4, layout=((3,), "float32"), num_envs=NUM_ENVS),
    Subject("torch/Asterix-MinAtar", starts=1, layout=BOARD, num_envs=NUM_ENVS),
    Subject("torch/SpaceInvaders-MinAtar", starts=1, layout=((10, 10, 6), "bool"), num_envs=NUM_ENVS),
    known("brax/inverted_pendulum", 1000, steering(0.3, 5.0, 0.0, 0.05)),
    known("playground/CartpoleBalance", 1000, nothing(1)),
    known("brax/halfcheetah", 1000, nothing(6)),
    known("brax/reacher", 1000, nothing(2)),
    known("navix/Navix-DoorKey-Random-5x5-v0", 100, always(0), image=((5, 5, 3), "uint8")),
    known("playground/CheetahRun", 1000, nothing(6)),
]
# Balls roll about by chance and end an episode sooner or later: for the comparison with the library alone.
OBSTACLES = known("navix/Navix-Dynamic-Obstacles-6x6-v0", 100, always(0), image=((6, 6, 3), "uint8"))
# Its episodes are too long to be played: for shapes and types alone.
PONG = known("envpool/Pong-v5", 27_000, always(0), image=((84, 84, 4), "uint8"))


TOLERANCE: dict[str, float] = dict.fromkeys(("brax/halfcheetah", "brax/reacher", "playground/CheetahRun"), 1e-3)
"""Of observations against the library's, where they come from differently compiled programs; 1e-5 otherwise."""


def parameters(subjects: list[Subject]) -> list[Any]:
    return [pytest.param(s, id=s.id, marks=[pytest.mark.slow] if s in (*SLOW, OBSTACLES) else []) for s in subjects]


ALL = parameters([*SUBJECTS, *SLOW])


@cache
def examined(subject: Subject) -> Examination:
    """The environment, whose programs and histories all tests share."""
    return Examination(subject)


COMBINED = [
    Subject(
        f"{id}+{first}frame_stack=2+sticky_actions=0.3+clip_reward=0.5+time_limit=25", layout=layout, num_envs=NUM_ENVS
    )
    for id, first, layout in (
        ("gymnax/CartPole-v1", "observe=2,0+", ((2, 2), "float32")),
        ("torch/CartPole-v1", "observe=2,0+", ((2, 2), "float32")),
        ("gymnasium/CartPole-v1", "observe=2,0+", ((2, 2), "float32")),
        ("gymnasium/Picture-v0", "", ((6, 5, 6), "uint8")),
        ("gymnax/Pendulum-v1", "", ((3, 2), "float32")),
    )
]
"""Every wrapper at once, on each kind of environment; only vectors are observed in part."""
GENERAL = [law for law in LAWS if law not in wrappers.KINDS]


def applies(law: str, subject: Subject) -> bool:
    """Whether the law says anything of the subject; checked, so that nothing is left out by mistake."""
    if law == "bounds":
        return envs.kind(subject.id) == "box"
    if law == "observe":
        return "observe" in subject.id
    return law not in ("torch", "state") or not subject.id.startswith("torch/")


def cases(subjects: list[Subject], laws: Iterable[str]) -> list[Any]:
    marks = [pytest.mark.slow]
    return [
        pytest.param(s, law, id=f"{s.id}-{law}", marks=marks if s in SLOW else [])
        for law in laws
        for s in subjects
        if applies(law, s)
    ]


@pytest.mark.parametrize(("subject", "law"), cases([*SUBJECTS, *SLOW], GENERAL))
def test_every_suite_keeps_the_laws(subject: Subject, law: str) -> None:
    found = judge(examined(subject), law)
    assert found.outcome == "pass", found.reason


@pytest.mark.parametrize(("subject", "law"), cases(COMBINED, LAWS))
def test_wrapped_environments_keep_the_laws(subject: Subject, law: str) -> None:
    found = judge(examined(subject), law)
    assert found.outcome == "pass", found.reason


@pytest.mark.parametrize("law", ["shapes", "torch"])
def test_shapes_and_types_of_pong(law: str) -> None:
    found = judge(examined(PONG), law)
    assert found.outcome == "pass", found.reason


@pytest.mark.parametrize("subject", ALL)
def test_kinds_of_actions_are_told_without_making_it(subject: Subject) -> None:
    assert examined(subject).env.actions.kind == envs.kind(subject.id)


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
    library, env, ours = LIBRARIES[suite](name), examined(subject).env, examined(subject).short
    assert subject.limit
    assert subject.limit > SHORT
    tolerance = TOLERANCE.get(subject.id, 1e-5)
    near = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
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
    assert examined(next(s for s in SUBJECTS if s.id == "gymnax/CartPole-v1")).short.step.terminated.any()


def without_numbers(leaf: Any) -> Any:
    """The leaf with NaN in the first environment where it holds real numbers."""
    leaf = np.array(leaf)
    if leaf.dtype.kind == "f":
        leaf[0] = np.nan
    return jnp.asarray(leaf)


@pytest.mark.parametrize("subject", [p for p in ALL if p.values[0].id.startswith(("brax/", "playground/"))])
def test_a_simulation_that_diverges_ends_its_episode_and_nothing_else(subject: Subject) -> None:
    env, (reset, step) = examined(subject).env, examined(subject).functions
    state = reset(env.random(0))
    broken = jax.tree.map(without_numbers, state.inner.state)
    inner = state.inner._replace(state=broken.replace(obs=state.obs))
    noise, action = env.draw(env.random(1), 1)[0], native(env, at_random(env, 0)(np.asarray(state.obs)))
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
    _ = examined(next(s for s in (*SUBJECTS, *SLOW) if s.id.startswith(suite))).env  # imports it without_warnings
    assert set(envs.SUITES[suite]) == registered(suite)


@pytest.mark.slow
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
