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
    state_type: type, layout: Any, config: Any, env: Any, *, init: Any, rollout: Any, update: Any, learn: Any, act: Any
) -> Agent:
    """Each as one program; rollout and update may overwrite the state they are given."""
    return started(init), compiled(rollout, (0,)), compiled(update, (0,))


def started(init: Callable[..., Any]) -> Callable[..., Any]:
    """The first program runs once, so that LLVM's optimiser would not pay off."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(init, compiler_options=options)


def train(config: Config, seed: int, resume: Path | None = None) -> Iterator[tuple[int, Any, dict[str, float]]]:
    """Iterations done, state and metrics, after each iteration."""
    init, rollout, update = make(config, environment(config.num_envs))
    state, done = init(jax.random.key(seed), config.hyper), 0
    if resume:
        state, done = load(resume, state)
    for iteration in range(done + 1, config.num_iterations + 1):
        state, batch = rollout(state)
        state, metrics = update(state, batch)
        yield iteration, state, {name: float(x) for name, x in jax.device_get(metrics).items()}


def save(path: Path, state: Any, iteration: int) -> None:
    """Write the arrays of a state."""
    save_file({name: np.array(x) for name, x in kept(arrays(state)).items()} | {"iteration": np.array(iteration)}, path)


def load(path: Path, state: Any) -> tuple[Any, int]:
    """A state like the given one with the arrays of a file, and the iterations that were done."""
    found = load_file(path)
    leaves, structure = jax.tree.flatten(state)
    data = [jnp.array(found.get(name, x)) for name, x in arrays(state).items()]
    filled = [x if x.dtype == leaf.dtype else jax.random.wrap_key_data(x) for leaf, x in zip(leaves, data, strict=True)]
    return jax.tree.unflatten(structure, filled), int(found["iteration"])


def arrays(state: Any) -> dict[str, Any]:
    """The arrays of a state by their paths in it; of random keys, their raw data."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}
    return {name: jax.random.key_data(x) if is_key(x) else x for name, x in named.items()}


def is_key(x: Any) -> bool:
    """Whether an array is of random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def kept(arrays: dict[str, Any]) -> dict[str, Any]:
    """All arrays."""
    return arrays


def kept_but_episodes(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays without those of episodes: the state of an environment in Python cannot be written."""
    return {name: x for name, x in arrays.items() if "env" not in name.split("/")}
