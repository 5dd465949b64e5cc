"""Any registered gymnasium environment, stepped one copy after another.

A plain loop instead of gymnasium's vector environment: it copies no dictionaries and is 1.5 times as fast on CartPole.
Box observations keep their shape and uint8, float64 becomes float32; Discrete observations become one-hot vectors, and
those of several parts (Dict, Tuple, MultiDiscrete, MultiBinary) one vector. MultiDiscrete actions become one number.

A name may say which module registers it, `my_module:MyEnv-v0`. Packages that register theirs by an entry point in
`gymnasium.envs` are asked when a name is not known: gymnasium itself no longer does so.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from math import prod
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs import registration
from gymnasium.error import DependencyNotInstalled, Error

from benchback.envs.external import Copies
from benchback.envs.interface import Box, Discrete
from benchback.envs.mujoco_warnings import without_mujoco_warnings
from benchback.errors import InputError, install, near
from benchback.plugins.imports import import_named, installed, load

GROUP = "gymnasium.envs"
COMPOUND = spaces.Dict | spaces.Tuple | spaces.MultiDiscrete | spaces.MultiBinary
"""Spaces of several parts."""
MOST_ACTIONS = 4096
"""Combinations of a MultiDiscrete action that are numbered at most."""


def check(name: str) -> None:
    """Raise an InputError that suggests a near one unless gymnasium has `name`."""
    registered(name)


def registered(name: str) -> str:
    """The name under which gymnasium has it, after importing the module that registers it."""
    module, _, own = name.rpartition(":")
    if module:
        import_named(module, f"env=gymnasium/{name}")
    if own not in gymnasium.registry:
        _ask_packages(own)
    if own not in gymnasium.registry:
        found = near(own, gymnasium.registry)
        meant = f"did you mean gymnasium/{found}?" if found else "gymnasium.pprint_registry() names them"
        why = f"importing {module} does not register it" if module else "is not registered"
        raise InputError(f"env=gymnasium/{name[:100]} {why}; {meant}")
    return own


def _ask_packages(name: str) -> None:
    """Let installed packages register their environments, if the name may be one of theirs."""
    namespace = name.rpartition("/")[0]
    for entry in installed(GROUP).values():
        own = None if entry.name.startswith("__") else entry.name
        if own is None or own == namespace:
            register: Any = load(entry)
            with registration.namespace(own) if own else nullcontext():
                register()


@cache
def kind(name: str) -> Literal["discrete", "box"]:
    """The kind of actions of the environment, which has to be created to find out."""
    with _made(name) as environment:
        return actions_of(environment.action_space, f"gymnasium/{name}").kind


@cache
def notes(name: str) -> tuple[str, ...]:
    """What is done to spaces that have several parts."""
    with _made(name) as environment:
        return space_notes(environment)


def make(name: str, num_envs: int, render_mode: str | None = None) -> Copies:
    """The environment `name`, `num_envs` times."""
    with _made(name, render_mode) as first:
        environments = [first, *(_make(name, None) for _ in range(num_envs - 1))]
    return copies(environments, f"gymnasium/{name}")


def copies(environments: Sequence[Any], id: str) -> Copies:
    """These gymnasium environments, which are alike, as copies of one."""
    first, num_envs = environments[0], len(environments)
    actions, encode = actions_of(first.action_space, id), encoding(first.observation_space)
    shape, dtype = layout(first.observation_space, id)
    prepare = preparation(first.action_space)

    def start(seed: int) -> np.ndarray:
        seeds = np.random.SeedSequence(seed).generate_state(num_envs).tolist()
        obs = np.empty((num_envs, *shape), dtype)
        for e, environment in enumerate(environments):
            obs[e] = encode(environment.reset(seed=seeds[e])[0])
        return obs

    def advance(action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        obs, reward = np.empty((num_envs, *shape), dtype), np.empty(num_envs, np.float32)
        terminated, truncated = np.empty(num_envs, bool), np.empty(num_envs, bool)
        for e, taken in enumerate(prepare(action)):
            seen, reward[e], terminated[e], truncated[e], _ = environments[e].step(taken)
            obs[e] = encode(seen)
        return obs, reward, terminated, truncated

    def restart(index: np.ndarray) -> np.ndarray:
        return np.stack([encode(environments[e].reset()[0]) for e in index]).astype(dtype)

    render = first.render if getattr(first, "render_mode", None) == "rgb_array" else None
    return Copies(shape, dtype, actions, start, advance, restart, render, space_notes(first))


def actions_of(space: Any, id: str) -> Discrete | Box:
    """Our action space for a gymnasium space; InputError if it is not supported."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box):
        return Box(tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        size = prod(choices(space))
        if size <= MOST_ACTIONS:
            return Discrete(size)
        raise InputError(
            f"env={id} takes actions of {space}, {size} combinations; at most {MOST_ACTIONS} are numbered: "
            "make it one with fewer, or with a Box action space"
        )
    raise InputError(f"env={id} takes actions of {space}; choose one with a Discrete or Box action space")


def choices(space: Any) -> list[int]:
    """The number of choices of each part of an action."""
    if isinstance(space, spaces.MultiBinary):
        return [2] * prod(space.shape)
    return [int(size) for size in space.nvec.ravel()]


def layout(space: Any, id: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an observation."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), np.dtype(np.float32)
    if isinstance(space, spaces.Box):
        return space.shape, np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
    if isinstance(space, COMPOUND) and space.is_np_flattenable:
        return (spaces.flatdim(space),), np.dtype(np.float32)
    raise InputError(f"env={id} has observations of {space}; choose one with a Discrete or Box observation space")


def encoding(space: Any) -> Callable[[Any], np.ndarray]:
    """A function from an observation of the space to an array of its layout."""
    if isinstance(space, spaces.Discrete):
        rows = np.eye(int(space.n), dtype=np.float32)
        return lambda obs: rows[int(obs) - int(space.start)]
    if isinstance(space, COMPOUND):
        return lambda obs: np.asarray(spaces.flatten(space, obs), np.float32)
    return np.asarray


def preparation(space: Any) -> Callable[[np.ndarray], Any]:
    """A function from the actions of all copies to a list with the action of each copy."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda action: (action + first).tolist()
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        sizes, start = choices(space), getattr(space, "start", 0)

        def parts(action: np.ndarray) -> np.ndarray:
            each = np.stack(np.unravel_index(action, sizes), -1).reshape(-1, *space.shape)
            return (each + start).astype(space.dtype)

        return parts
    return lambda action: action.astype(space.dtype).reshape(-1, *space.shape)


def space_notes(environment: Any) -> tuple[str, ...]:
    """What is done to spaces that have several parts, a sentence each."""
    seen, acts = environment.observation_space, environment.action_space
    found = []
    if isinstance(seen, COMPOUND) and seen.is_np_flattenable:
        kind, size = type(seen).__name__, spaces.flatdim(seen)
        found.append(f"{kind} observations are flattened to {size} numbers, discrete parts as one-hot vectors")
    if isinstance(acts, spaces.MultiDiscrete | spaces.MultiBinary):
        sizes = choices(acts)
        found.append(f"{type(acts).__name__} actions are flattened to the {prod(sizes)} combinations of {sizes}")
    return tuple(found)


@contextmanager
def _made(name: str, render_mode: str | None = None) -> Iterator[gymnasium.Env]:
    """The environment; InputError names the missing dependency if it cannot be created."""
    own = registered(name)
    try:
        with without_mujoco_warnings() if "mujoco" in str(gymnasium.spec(own).entry_point) else nullcontext():
            yield _make(name, render_mode)
    except DependencyNotInstalled as error:
        extra = "mujoco" if "mujoco" in str(error).lower() else None
        remedy = install(extra) if extra else "install what it names"
        raise InputError(f"env=gymnasium/{name} needs a package that is not installed ({error}); {remedy}") from None
    except Error as error:
        raise InputError(f"env=gymnasium/{name} cannot be made: {error}") from None


def _make(name: str, render_mode: str | None) -> gymnasium.Env:
    mode: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    return gymnasium.make(registered(name), disable_env_checker=True, **mode)
