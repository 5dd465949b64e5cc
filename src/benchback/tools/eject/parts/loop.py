"""The training loop of an ejected file in the JAX family."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.linen import make
from benchback.tools.eject.parts.compiling import jit as compiled
from benchback.tools.eject.parts.gymnax_jax import environment

Agent = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""init, rollout and update."""


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
    """Each as one program; rollout and update may overwrite the state they are given."""
    return started(init), compiled(rollout), compiled(update)


def started(init: Callable[..., Any]) -> Callable[..., Any]:
    """The first program runs once, so that LLVM's optimiser would not pay off."""
    once = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(init, compiler_options=once)


def train(config: Config, seed: int, resume: Path | None = None) -> Iterator[tuple[int, Any, dict[str, float]]]:
    """Iterations done, state and metrics, after each iteration."""
    init, rollout, update = make(config, environment(config.num_envs))  # type: ignore[misc]
    state, done = init(jax.random.key(seed), config.hyper), 0
    if resume:
        state, done = load(resume, state)
    for iteration in range(done + 1, config.num_iterations + 1):
        state, batch = rollout(state)
        state, metrics = update(state, batch)
        yield iteration, state, {name: float(np.asarray(x)) for name, x in metrics.items()}


def mean_return(metrics: dict[str, Any]) -> Any:
    """The mean return of the episodes that ended."""
    return metrics["episode_return"]


def save(path: Path, state: Any, iteration: int) -> None:
    """Write the arrays of a state under their paths in it; of random keys, their raw data."""
    arrays = {"iteration": np.array(iteration)}
    for place, x in jax.tree_util.tree_leaves_with_path(state):
        name = path_of(place)
        if is_kept(name):
            arrays[name] = np.array(jax.random.key_data(x) if is_key(x) else x)
    save_file(arrays, path)


def load(path: Path, state: Any) -> tuple[Any, int]:
    """A state like the given one with the arrays of a file, and the iterations that were done."""
    found = load_file(path)

    def filled(place: Any, x: Any) -> Any:
        stored = jnp.array(stored_at(found, path_of(place), x))
        return stored if stored.dtype == x.dtype else jax.random.wrap_key_data(stored)

    return jax.tree_util.tree_map_with_path(filled, state), int(found["iteration"])


def path_of(place: Any) -> str:
    """The path of an array in a state."""
    return jax.tree_util.keystr(place, simple=True, separator="/")


def is_key(x: Any) -> bool:
    """Whether an array is of random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def is_kept(name: str) -> bool:
    """All arrays are."""
    return True


def is_kept_but_episodes(name: str) -> bool:
    """The state of an environment in Python cannot be written."""
    return "env" not in name.split("/")


def stored_at(found: dict[str, Any], name: str, x: Any) -> Any:
    """The array of that name."""
    return found[name]


def stored_or_new(found: dict[str, Any], name: str, x: Any) -> Any:
    """The array of that name, or the given one if there is none."""
    return found.get(name, x)
