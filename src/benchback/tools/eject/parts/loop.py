"""The training loop of an ejected file in the JAX family."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.linen import make
from benchback.tools.eject.parts.compiling import jit as compiled
from benchback.tools.eject.parts.gymnax_jax import environment


class Agent(NamedTuple):
    """The algorithm as compiled functions. They may overwrite the state they are given: use the one they return."""

    init: Callable[..., Any]
    """(key, hyper-parameters) -> state."""
    rollout: Callable[..., tuple[Any, Any]]
    """State -> state, batch; steps the environment."""
    update: Callable[..., tuple[Any, dict[str, Any]]]
    """(state, batch) -> state, metrics; learns."""
    act: Callable[..., tuple[Any, Any]]
    """(state, (), observations) -> (), greedy actions."""


def agent(
    state_type: type, layout: Any, config: Any, env: Any, *, init: Any, rollout: Any, update: Any, learn: Any, act: Any
) -> Agent:
    """The algorithm made of these functions, each compiled."""
    return Agent(started(init), compiled(rollout, (0,)), compiled(update, (0,)), compiled(act, ()))


def started(init: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one program that runs once, so that LLVM's optimiser would not pay off."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(init, compiler_options=options)


def train(config: Config, seed: int, resume: Path | None = None) -> Iterator[tuple[int, Any, dict[str, float]]]:
    """Iterations done, state and metrics, after each iteration."""
    agent = make(config, environment(config.num_envs))
    state, done = agent.init(jax.random.key(seed), config.hyper), 0
    if resume:
        state, done = load(resume, state)
    for iteration in range(done + 1, config.num_iterations + 1):
        state, batch = agent.rollout(state)
        state, metrics = agent.update(state, batch)
        yield iteration, state, {name: float(x) for name, x in jax.device_get(metrics).items()}


def save(path: Path, state: Any, iteration: int) -> None:
    """Write all arrays of a state, by their paths in it."""
    arrays = {jax.tree_util.keystr(at, simple=True, separator="/"): x for at, x in kept(data_of(state))}
    save_file({name: np.array(x) for name, x in arrays.items()} | {"iteration": np.array(iteration)}, path)


def load(path: Path, state: Any) -> tuple[Any, int]:
    """A state like the given one with the arrays of a file, and the iterations that were done."""
    found = load_file(path)

    def fill(at: Any, x: Any) -> Any:
        return jnp.array(found.get(jax.tree_util.keystr(at, simple=True, separator="/"), x), x.dtype)

    filled = jax.tree_util.tree_map_with_path(fill, data_of(state))
    keys = jax.tree.map(lambda x, y: jax.random.wrap_key_data(y) if is_key(x) else y, state, filled)
    return keys, int(found["iteration"])


def data_of(state: Any) -> Any:
    """The state with random keys as their raw data."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, state)


def is_key(x: Any) -> bool:
    """Whether an array is of random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def kept(state: Any) -> list[tuple[Any, Any]]:
    """Arrays of a state with their paths."""
    return jax.tree_util.tree_leaves_with_path(state)


def kept_but_episodes(state: Any) -> list[tuple[Any, Any]]:
    """Arrays of a state with their paths, without those of episodes: an environment in Python cannot be stored."""
    return [(at, x) for at, x in jax.tree_util.tree_leaves_with_path(state) if "env" not in jax.tree_util.keystr(at)]
