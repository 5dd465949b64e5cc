"""The training loop of an ejected file that trains several seeds in one program."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.linen import make
from benchback.tools.eject.parts.compiling import jit as compiled
from benchback.tools.eject.parts.gymnax_jax import environment
from benchback.tools.eject.parts.loop import Agent, load, started
from benchback.tools.eject.parts.splitting import split, with_arrays

MEMBERS = 1
COUNTERS = ("adam_count",)


def agent(
    state_type: type,
    layout: Any,
    config: Any,
    env: Any,
    *,
    init: Any,
    rollout: Any,
    update: Any,
    learn: Any,
    act: Any,
    initial_memory: Any = None,
) -> Agent:
    """Each as one program for all members; rollout and update may overwrite the state they are given."""
    return started(in_turn(init)), compiled(side_by_side(rollout)), compiled(side_by_side(update))


def split_agent(
    state_type: type,
    config: Any,
    env: Any,
    *,
    init: Any,
    rollout: Any,
    update: Any,
    learn: Any,
    act: Any,
    initial_memory: Any = None,
) -> Agent:
    """Each as one program of arrays for all members; rollout and update may overwrite the state they are given."""

    def init_arrays(key: Any, hyper: Any) -> Any:
        return split(init(key, hyper))

    steps = side_by_side(with_arrays(rollout)), side_by_side(with_arrays(update))
    return started(in_turn(init_arrays)), compiled(steps[0]), compiled(steps[1])


def in_turn(init: Callable[..., Any]) -> Callable[..., Any]:
    """The states of all members, one after another: a wide batched QR can stop XLA's CPU threads for ever."""

    def init_all(keys: Any, hyper: Any) -> Any:
        state = jax.lax.map(lambda given: init(*given), (keys, hyper))
        return jax.tree_util.tree_map_with_path(lambda place, x: x[0] if is_counter(place) else x, state)

    return init_all


def side_by_side(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for all members; counters are the same for all, so that what depends on them is decided once."""

    def run(state: Any, *arguments: Any) -> Any:
        axes = jax.tree_util.tree_map_with_path(lambda place, x: None if is_counter(place) else 0, state)
        return jax.vmap(function, in_axes=(axes, *(0 for _ in arguments)), out_axes=(axes, 0))(state, *arguments)

    return run


def is_counter(place: Any) -> bool:
    """Whether an array of a state counts something."""
    return any(name in COUNTERS for name in jax.tree_util.keystr(place, simple=True, separator="/").split("/"))


def train(config: Config, seed: int, resume: Path | None = None) -> Iterator[tuple[int, Any, dict[str, np.ndarray]]]:
    """Iterations done, state and metrics of all members, after each iteration; member i has the seed `seed` + i."""
    init, rollout, update = make(config, environment(config.num_envs))  # type: ignore[misc]
    keys = jax.vmap(jax.random.key)(np.arange(seed, seed + MEMBERS, dtype=np.uint32))
    state, done = init(keys, jax.tree.map(lambda x: jnp.full(MEMBERS, x, float), config.hyper)), 0
    if resume:
        state, done = load(resume, state)
    for iteration in range(done + 1, config.num_iterations + 1):
        state, batch = rollout(state)
        state, metrics = update(state, batch)
        yield iteration, state, {name: np.asarray(x) for name, x in metrics.items()}


def mean_return(metrics: dict[str, Any]) -> Any:
    """The mean return of the members that ended an episode."""
    return jnp.nanmean(metrics["episode_return"])
