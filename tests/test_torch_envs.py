"""Native torch environments: the same games as gymnax's, with fresh starts and statistics around them."""

import inspect
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import gymnax
import jax
import numpy as np
import pytest
import torch
from torch import Tensor
from torch_twins import TWINS, game, in_numpy, to_gymnax

from benchback.envs import SUITES
from benchback.envs.interface import Discrete, Env, EnvState, Step
from benchback.envs.names import MINATAR
from benchback.envs.torch import MODULES, Game, make

E, T = 8, 300
N = E * T
STARTS = 4000
NAMES = SUITES["torch"]
BOARDS = [name for name in NAMES if TWINS[name].anywhere]
TOLERANCE = 5e-6
REAL_REWARDS = ("Pendulum-v1", "GaussianBandit-misc")
"""Games whose rewards are computed by real arithmetic; all others earn a few exact numbers."""


class Played(NamedTuple):
    """What was played in an environment."""

    env: Env
    states: list[EnvState]
    """Before each step, and the last one."""
    actions: list[Tensor]
    keys: Any
    """From which gymnax would have drawn what the steps were given, `[T, E]`."""
    noise: list[Tensor]
    """Of the steps themselves, without that of resets."""
    steps: list[Step]


@cache
def play(name: str, num_steps: int) -> Played:
    """Half of the environments in random hands, half in skilful ones; some close to their time limit."""
    twin, env = TWINS[name], make(name, E)
    generator, keys = env.random(1), jax.random.split(jax.random.key(1), (num_steps, E))
    state = close_to_limit(env.reset(generator), twin.limit)
    draw, own_part = step_noise(name), slice(game(name).start_noise, None)
    states, actions, own, steps = [], [], [], []
    for t, noise in enumerate(env.draw(generator, num_steps)):
        action = random_action(env, generator)
        if twin.skilful:
            action[1::2] = twin.skilful(state.obs)[1::2]
        if draw:
            noise[:, own_part] = draw(keys[t], state)
        states.append(state)
        actions.append(action)
        own.append(noise[:, own_part])
        state, step = env.step(state, action, noise)
        steps.append(step)
    return Played(env, [*states, state], actions, keys, own, steps)


def close_to_limit(state: EnvState, limit: int) -> EnvState:
    """Every other pair of environments close to the time limit, unless an episode is so short that it is reached."""
    late = torch.where(torch.arange(E) % 4 < 2, 0, limit - 7 * torch.arange(E)).to(torch.int32)
    if not hasattr(state.inner, "time"):
        return state._replace(episode_length=late)
    if type(state.inner).__module__.endswith(("memory_chain", "umbrella_chain")):  # they end before, if they can
        return state._replace(episode_length=late, inner=state.inner._replace(time=late))
    return state


def random_action(env: Env, generator: torch.Generator) -> Tensor:
    """Integers; or real numbers, some of them beyond the bounds."""
    if isinstance(env.actions, Discrete):
        return torch.randint(env.actions.size, (E,), generator=generator)
    bound = 1.5 * torch.tensor(env.actions.high)
    return bound * (2 * torch.rand((E, env.actions.size), generator=generator) - 1)


def step_noise(name: str) -> Any:
    """(keys, state) -> uniform numbers that stand for what gymnax draws from these keys in these states."""
    given = TWINS[name].step_noise
    if not given:
        return None
    draw = jax.jit(jax.vmap(given))

    def noise(key: Any, state: EnvState) -> Tensor:
        twin = to_gymnax(name, in_numpy(state.inner), state.episode_length.numpy())
        return torch.tensor(np.asarray(draw(key, twin)))

    return noise


def stacked(records: list[Any]) -> Any:
    """A list of equal trees of tensors as one tree of NumPy arrays."""
    if isinstance(records[0], Tensor):
        return torch.stack(records).numpy()
    parts = [stacked(list(part)) for part in zip(*records, strict=True)]
    return type(records[0])(*parts)


def flat(tree: Any) -> Any:
    """The arrays of a tree with time and environments as one axis."""
    if isinstance(tree, np.ndarray | jax.Array):
        return tree.reshape(tree.shape[0] * tree.shape[1], *tree.shape[2:])
    return type(tree)(*map(flat, tree))


class Transitions(NamedTuple):
    """N states, and what is done in each."""

    inner: Any
    time: np.ndarray
    action: np.ndarray
    key: Any
    noise: np.ndarray


class Outcome(NamedTuple):
    """What becomes of N states."""

    obs: Any
    state: Any
    """gymnax's."""
    reward: Any
    terminated: Any
    truncated: Any


@cache
def gymnax_program(name: str) -> Any:
    environment, params = gymnax.make(name)

    def one(key: Any, state: Any, action: Any) -> Outcome:
        obs, state, reward, terminated, _ = environment.step_env(key, state, action, params)
        return Outcome(obs, state, reward, terminated, environment.is_truncated(state, params))

    return jax.jit(jax.vmap(one))


def of_gymnax(name: str, given: Transitions) -> Outcome:
    """What gymnax makes of the transitions."""
    found = gymnax_program(name)(given.key, to_gymnax(name, given.inner, given.time), given.action)
    found = jax.tree.map(np.asarray, found)
    if name == "Asterix-MinAtar":  # what it keeps in slots that are empty is without effect
        entities = found.state.entities
        found = found._replace(state=found.state.replace(entities=entities * entities[..., 4:]))
    return found


def of_game(rules: Game, name: str, given: Transitions) -> Outcome:
    """What the rules make of the transitions."""
    inner = type(rules.start(torch.zeros(1, rules.start_noise)))(*map(torch.tensor, given.inner))
    inner, reward, terminated = rules.advance(inner, torch.tensor(given.action), torch.tensor(given.noise))
    time = given.time + 1
    state = to_gymnax(name, in_numpy(inner), time)
    return Outcome(rules.observe(inner).numpy(), state, reward.numpy(), terminated.numpy(), time >= rules.time_limit)


@cache
def on_the_way(name: str, num_steps: int) -> tuple[Transitions, Outcome]:
    """Every state that was played, and what gymnax makes of it."""
    played = play(name, num_steps)
    before = stacked(played.states[:-1])
    action, noise = stacked(played.actions), stacked(played.noise)
    given = Transitions(*map(flat, (before.inner, before.episode_length, action, played.keys, noise)))
    return given, of_gymnax(name, given)


@cache
def from_anywhere(name: str) -> tuple[Transitions, Outcome]:
    """States that need not be reached in play, and what gymnax makes of them."""
    rules, random, anywhere = game(name), np.random.default_rng(0), TWINS[name].anywhere
    assert anywhere
    assert isinstance(rules.actions, Discrete)
    arrays = {field: x.astype(np.int32) if x.dtype.kind == "i" else x for field, x in anywhere(random, N).items()}
    inner, time = type(rules.start(torch.zeros(1, rules.start_noise)))(**arrays), np.zeros(N, np.int32)
    keys, action = jax.random.split(jax.random.key(2), N), random.integers(0, rules.actions.size, N)
    noise, draw = np.zeros((N, 0), np.float32), TWINS[name].step_noise
    if draw:
        noise = np.asarray(jax.jit(jax.vmap(draw))(keys, to_gymnax(name, inner, time)))
    given = Transitions(inner, time, action, keys, noise)
    return given, of_gymnax(name, given)


def differences(name: str, ours: Outcome, theirs: Outcome) -> list[str]:
    """What differs between outcomes, each named."""
    exact = {x: (getattr(ours, x), getattr(theirs, x)) for x in ("terminated", "truncated")}
    near = {"obs": (ours.obs, theirs.obs)}
    (near if name in REAL_REWARDS else exact)["reward"] = ours.reward, theirs.reward
    for field in {x.name for x in fields(ours.state)} - TWINS[name].other.keys():
        pair = getattr(ours.state, field), getattr(theirs.state, field)
        (near if pair[0].dtype.kind == "f" else exact)[field] = pair
    found = [field for field, (x, y) in exact.items() if not np.array_equal(x, np.broadcast_to(y, x.shape))]
    return found + [field for field, (x, y) in near.items() if not np.allclose(x, y, rtol=TOLERANCE, atol=TOLERANCE)]


@pytest.mark.parametrize("num_steps", [T, pytest.param(20 * T, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_every_transition_equals_gymnax(name: str, num_steps: int) -> None:
    played, (given, theirs) = play(name, num_steps), on_the_way(name, num_steps)
    step, after = flat(stacked(played.steps)), flat(stacked(played.states[1:]))
    # Where an episode has ended, what follows is a new one.
    going_on = ~(step.terminated | step.truncated)
    reached = to_gymnax(name, after.inner, after.episode_length)
    state = jax.tree.map(lambda x, y: np.where(going_on.reshape(-1, *[1] * (x.ndim - 1)), x, y), reached, theirs.state)
    ours = Outcome(step.final_obs, state, step.reward, step.terminated, step.truncated)
    assert differences(name, ours, theirs) == []
    assert theirs.terminated.any() == TWINS[name].ends, "the players must reach an end, if there is one"
    assert theirs.truncated.any(), "the players must reach a time limit"
    assert len(np.unique(given.action)) > 1


@pytest.mark.parametrize("name", BOARDS)
def test_boards_equal_gymnax_from_any_state(name: str) -> None:
    given, theirs = from_anywhere(name)
    assert differences(name, of_game(game(name), name, given), theirs) == []
    for outcome in (theirs.reward, *([theirs.terminated] if TWINS[name].ends else [])):
        assert 0 < (outcome > 0).sum() < N


@cache
def gymnax_starts(name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Uniform numbers, and first observations and states that gymnax makes of them."""
    environment, params = gymnax.make(name)

    def one(key: Any) -> Any:
        return TWINS[name].start_noise(key), *environment.reset_env(key, params)

    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), STARTS))
    return jax.tree.map(np.asarray, found)


def start_differences(rules: Game, name: str) -> list[str]:
    """What differs of first states and observations, with the same random numbers."""
    noise, obs, theirs = gymnax_starts(name)
    inner = rules.start(torch.tensor(noise))
    ours, unknown = to_gymnax(name, in_numpy(inner), np.zeros(STARTS, np.int32)), np.zeros(STARTS, bool)
    begun = Outcome(rules.observe(inner).numpy(), ours, unknown, unknown, unknown)
    return differences(name, begun, begun._replace(obs=obs, state=theirs))


@pytest.mark.parametrize("name", NAMES)
def test_every_start_equals_gymnax(name: str) -> None:
    assert start_differences(game(name), name) == []


MISTAKES = {
    "CartPole-v1": [("12 * 2", "11 * 2"), ("4 / 3 - ", "4 / 3 + ")],
    "Acrobot-v1": [("angle1, angle2 = wrap(angle1), wrap(angle2)", ""), ("rate1 + 2 * (", "rate1 + (")],
    "MountainCar-v0": [("velocity.clamp(min=0)", "velocity"), ("(action - 1)", "action")],
    "Pendulum-v1": [
        ("cost = wrap(angle)", "cost = angle"),
        ("velocity.clamp(-MAX_SPEED, MAX_SPEED)", "velocity"),
        (".clamp(-MAX_TORQUE, MAX_TORQUE)", ""),
        ("math.pi * angle", "angle"),
    ],
    "DiscountingChain-bsuite": [
        ("state.time == 0", "state.time >= 0"),
        ("30, 100)", "30, 99)"),
        ("BEST_REWARD = 0,", "BEST_REWARD = 1,"),
        ("time - 1, time", "time, time"),
    ],
    "MemoryChain-bsuite": [
        ("(state.time - 1).clamp(min=0)", "state.time"),
        (">= LENGTH", ">= LENGTH - 1"),
        ("< 0.5", ">= 0.5"),
        ("state.time == LENGTH", "state.time >= LENGTH"),
    ],
    "UmbrellaChain-bsuite": [
        ("noise[:, 0] < 0.5)", "noise[:, 0] >= 0.5)"),
        ("has == state.need", "has != state.need"),
        ("state.time == 0", "state.time >= 0"),
        ("need, has = ", "has, need = "),
    ],
    "BernoulliBandit-misc": [
        ("< probability", "< 1 - probability"),
        ("1 - arm, arm", "arm, 1 - arm"),
        ("SELDOM, 1 - SELDOM", "1 - SELDOM, SELDOM"),
        ("2 * state.time", "state.time"),
    ],
    "GaussianBandit-misc": [
        ("2**0.5 * ", ""),
        ("DEVIATION = -1.0, 1.0, 0.1", "DEVIATION = -1.0, 1.0, 0.11"),
        ("action == 0", "action == 1"),
    ],
    "Asterix-MinAtar": [
        ("(SLOTS * first).floor() + 1", "-1"),
        ("torch.where(found, empty, tried)", "empty"),
        ("kind < GOLD_PROBABILITY", "kind < 0.5"),
        ("state.ramp_index % 2 == 1", "state.ramp_index % 2 == 0"),
        ("state.ramp_timer >= 0", "state.ramp_timer > 0"),
        ("filled & ~(met_later & state.gold)", "filled"),
        ("clamp(1, LAST - 1)", "clamp(0, LAST)"),
        ("spawn_interval > 1) | (", "spawn_interval > 1) & ("),
    ],
    "Breakout-MinAtar": [
        ("side ^ by_new_paddle", "side"),
        ("on_brick & ~state.strike", "on_brick"),
        ("on_floor & ~brick.any(-1)", "~brick.any(-1)"),
    ],
    "Freeway-MinAtar": [
        ("(state.car == COLUMN) | (car == COLUMN)", "car == COLUMN"),
        ("across.unsqueeze(-1), drawn.abs()", "across.unsqueeze(-1), state.pause"),
        ("drawn < SPEEDS, drawn - SPEEDS", "drawn < SPEEDS, -1 - drawn"),
        (".remainder(SIZE)", ".clamp(0, LAST)"),
        ("REST = 3", "REST = 2"),
    ],
    "SpaceInvaders-MinAtar": [
        (".abs() + cell", ".abs() - cell"),
        ("(alien | moved) & place", "moved & place"),
        (" | (turns & alien[:, LAST].any(-1))", ""),
        ("left_over.minimum(state.move_interval)", "state.move_interval"),
        ("state.move_interval > SHORTEST_INTERVAL", "state.move_interval > 5"),
        ("alien.roll(1, 1)", "sideways"),
        (".amax(1)", ".amin(1)"),
    ],
}
"""Game -> pieces of its source and what a mistake makes of each."""


@pytest.mark.parametrize("name", NAMES)
def test_mistakes_in_the_rules_are_caught(name: str) -> None:
    source = inspect.getsource(import_module(f"benchback.envs.torch.{MODULES[name]}"))
    missed = []
    for right, wrong in MISTAKES[name]:
        assert right in source
        module: dict[str, Any] = {"__name__": "mistaken"}
        exec(source.replace(right, wrong, 1), module)
        if not caught(module["GAME"], name):
            missed.append((right, wrong))
    assert missed == []


def caught(rules: Game, name: str) -> bool:
    """Whether rules differ from gymnax's in a start, on the way or from anywhere."""
    examples = [on_the_way(name, T), *([from_anywhere(name)] if name in BOARDS else [])]
    found = (differences(name, of_game(rules, name, given), theirs) for given, theirs in examples)
    return any(found) or bool(start_differences(rules, name))


@pytest.mark.parametrize("name", NAMES)
def test_starts_follow_gymnax_distribution(name: str) -> None:
    env, n = make(name, STARTS), STARTS
    ours, (_, theirs, _) = env.reset(env.random(0)).obs.numpy().astype(float), gymnax_starts(name)
    assert ours.shape == theirs.shape
    for x, y in zip(ours.reshape(n, -1).T, theirs.astype(float).reshape(n, -1).T, strict=True):
        grid = np.sort(np.concatenate([x, y]))
        distance = np.searchsorted(np.sort(x), grid, "right") - np.searchsorted(np.sort(y), grid, "right")
        assert np.abs(distance).max() / n < 0.05  # Kolmogorov and Smirnov: exceeded once in 10,000 trials


@pytest.mark.parametrize("name", NAMES)
def test_ended_episodes_begin_anew_and_others_go_on(name: str) -> None:
    env, states, *_, steps = play(name, T)
    step = stacked(steps)
    done = step.terminated | step.truncated
    np.testing.assert_array_equal(step.obs, stacked(states[1:]).obs)
    np.testing.assert_array_equal(step.obs[~done], step.final_obs[~done])
    begun = np.unique(step.obs[done], axis=0)
    assert len(begun) == (TWINS[name].starts or done.sum()), "no two starts may be alike, if there are more than a few"
    first = make(name, STARTS).reset(env.random(0)).obs.numpy().astype(float)
    assert (begun >= first.min(0) - 0.01).all()
    assert (begun <= first.max(0) + 0.01).all()


@pytest.mark.parametrize("name", NAMES)
def test_episode_statistics_are_those_of_a_plain_count(name: str) -> None:
    _, states, *_, steps = play(name, T)
    step = stacked(steps)
    total, length = np.zeros(E), states[0].episode_length.numpy().copy()
    for t in range(T):
        total, length = total + step.reward[t], length + 1
        np.testing.assert_allclose(step.episode_return[t], total, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(step.episode_length[t], length)
        done = step.terminated[t] | step.truncated[t]
        total[done], length[done] = 0, 0
    np.testing.assert_allclose(states[-1].episode_return, total, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(states[-1].episode_length, length)


def some_action(env: Env, **options: Any) -> Tensor:
    discrete = isinstance(env.actions, Discrete)
    shape, dtype = ((E,), torch.long) if discrete else ((E, env.actions.size), torch.float32)
    return torch.ones(shape, dtype=dtype, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_asks_nothing_of_the_device(name: str) -> None:
    """Meta tensors have no values: whatever waits for one or branches on it fails."""
    env = make(name, E)
    generator = env.random(0)
    state, noise = env.reset(generator), env.draw(generator, 1)[0]
    inner = type(state.inner)(*(x.to("meta") for x in state.inner))
    state = EnvState(inner, *(x.to("meta") for x in state[1:]))
    state, step = env.step(state, some_action(env, device="meta"), noise.to("meta"))
    assert {x.device.type for x in (*step, *state.inner, *state[1:])} == {"meta"}


@pytest.mark.parametrize("name", NAMES)
def test_a_step_keeps_types_and_leaves_its_arguments_alone(name: str) -> None:
    env = make(name, E)
    generator = env.random(0)
    state, noise = env.reset(generator), env.draw(generator, 1)[0]
    tensors = [*state.inner, *state[1:], noise]
    copies = [x.clone() for x in tensors]
    following, step = env.step(state, some_action(env), noise)
    assert all(torch.equal(x, y) for x, y in zip(tensors, copies, strict=True))
    # A type or a stride that changed between the first step and the next would compile a program twice.
    for x, y in zip([*following.inner, *following[1:]], tensors, strict=False):
        assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride())
    assert state.obs.dtype == (torch.bool if name in MINATAR else torch.float32)
    assert state.obs.shape == step.final_obs.shape == (E, *env.observation_shape)
    assert step.reward.dtype == torch.float32
    assert {step.terminated.dtype, step.truncated.dtype} == {torch.bool}


@pytest.mark.parametrize("name", NAMES)
def test_members_of_a_vmapped_step_are_steps_alone(name: str) -> None:
    played, at = play(name, T), (40, 60)
    state = refilled([played.states[t] for t in at])
    noise = played.env.draw(played.env.random(5), len(at))
    together = torch.vmap(played.env.step)(state, torch.stack([played.actions[t] for t in at]), noise)
    for i, t in enumerate(at):
        alone = played.env.step(played.states[t], played.actions[t], noise[i])
        for one, many in zip(alone, together, strict=True):
            mine, theirs = tensors_of(one), tensors_of(many)
            assert all(torch.equal(x, y[i]) for x, y in zip(mine, theirs, strict=True))


def refilled(states: list[EnvState]) -> EnvState:
    """States as one, with a member axis."""
    inner = type(states[0].inner)(*map(torch.stack, zip(*(x.inner for x in states), strict=True)))
    return EnvState(inner, *map(torch.stack, zip(*(x[1:] for x in states), strict=True)))


def tensors_of(tree: Any) -> list[Tensor]:
    return [tree] if isinstance(tree, Tensor) else [x for part in tree for x in tensors_of(part)]
