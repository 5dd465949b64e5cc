"""A JAX environment served to torch over DLPack: tensors are views of JAX's arrays, without a copy through host memory.

JAX's arrays are immutable, so such a tensor must not be written to, and the environment's buffers are never donated.
`__dlpack__` waits for the array, so a tensor is never read before it is computed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from benchback.agent import Weights
from benchback.envs.interface import Env, EnvState, Step
from benchback.envs.torch import random


def to_torch(env: Env) -> Env:
    """The JAX environment `env` with torch tensors at its interface, compiled by JAX."""
    noise = jax.eval_shape(lambda key: env.draw(key, 1), jax.random.key(0))
    is_key = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key), noise)

    first = jax.jit(env.reset)

    def reset(generator: torch.Generator) -> EnvState:
        high, low = _seed(generator)
        return served(first(_key(high, low)))

    # One program for the key and what is drawn from it: called by themselves its operations take 0.14 ms.
    @partial(jax.jit, static_argnums=2)
    def draw_in_jax(high: Any, low: Any, num_steps: int) -> Any:
        noise = env.draw(_key(high, low), num_steps)
        return jax.tree.map(lambda k, x: jax.random.key_data(x) if k else x, is_key, noise)

    def draw(generator: torch.Generator, num_steps: int) -> list[tuple[Any, np.int32]]:
        raw = draw_in_jax(*_seed(generator), num_steps)
        # The whole array and an index for each step: the compiled step slices it faster than Python could.
        return [(raw, np.int32(t)) for t in range(num_steps)]

    def step(state: EnvState, action: Any, noise: tuple[Any, Any]) -> tuple[EnvState, Step]:
        raw, t = noise
        noise = jax.tree.map(lambda k, x: jax.random.wrap_key_data(x[t]) if k else x[t], is_key, raw)
        following, outcome = env.step(state, jnp.asarray(action), noise)
        # The observation is also in the outcome: the program would return it twice.
        return following._replace(obs=None), outcome

    bridged = BridgedStep(step, jax.jit(step))
    return replace(env, framework="torch", random=random, reset=reset, draw=draw, step=bridged)


def eager(env: Env) -> Env:
    """The bridged environment with nothing in its step compiled."""
    return replace(env, step=env.step.eager())


@dataclass(frozen=True)
class BridgedStep:
    """An environment step called by torch and computed by JAX."""

    function: Callable[..., tuple[EnvState, Step]]
    """On JAX arrays, as written."""
    run: Callable[..., tuple[EnvState, Step]]
    """The same, compiled or eager."""

    def __call__(self, state: EnvState, action: Shaped[Tensor, "E *A"], noise: Any) -> tuple[EnvState, Step]:
        following, step = self.run(state.inner.state, _to_jax(action), noise)
        outcome = Step(*map(_to_torch, step))
        inner = JaxState(following._replace(obs=step.obs))
        return EnvState(inner, outcome.obs, None, None), outcome

    def eager(self) -> "BridgedStep":
        """The same step with every JAX operation dispatched separately."""
        return BridgedStep(self.function, _without_jit(self.function))


@dataclass(frozen=True)
class JaxState:
    """A JAX environment's state, opaque to torch."""

    state: EnvState

    def to_weights(self, prefix: str) -> Weights:
        """Its arrays as NumPy copies, under the names that the JAX family gives them."""
        leaves = jax.tree_util.tree_leaves_with_path(self.state)
        return {prefix + _path(path): np.array(leaf) for path, leaf in leaves}

    def from_weights(self, weights: Weights, prefix: str) -> EnvState:
        """A state like this one with the arrays of `weights`, served to torch."""

        def fill(path: Any, leaf: Any) -> Any:
            return jnp.array(weights[prefix + _path(path)], leaf.dtype)

        return served(jax.tree_util.tree_map_with_path(fill, self.state))


# In inference mode, as in a rollout: a compiled policy then gets only one kind of tensor.
@torch.inference_mode()
def served(state: EnvState) -> EnvState:
    """The JAX state with its observation as a tensor; the rest, episode statistics included, stays in JAX."""
    return EnvState(JaxState(state), _to_torch(state.obs), None, None)


def _to_torch(array: Shaped[jax.Array, "..."]) -> Shaped[Tensor, "..."]:
    # On the CPU there is no stream to agree on, and a bare capsule saves half of the conversion's time.
    return torch.from_dlpack(array.__dlpack__() if array.platform() == "cpu" else array)


def _to_jax(tensor: Shaped[Tensor, "..."]) -> Any:
    # jax.dlpack.from_dlpack spends 0.1 ms in Python; on the CPU jax reads a NumPy view for a tenth of that.
    return tensor.numpy() if tensor.device.type == "cpu" else jax.dlpack.from_dlpack(tensor)


def _seed(generator: torch.Generator) -> list[int]:
    """Two times 31 bits of the generator; the only synchronisation with the device, once per rollout."""
    return torch.randint(2**31, (2,), generator=generator, device=generator.device).tolist()


def _key(high: Any, low: Any) -> Any:
    """A JAX key from them."""
    return jax.random.fold_in(jax.random.key(high), low)


def _without_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    # Omitting jax.jit is not enough: a lax.cond outside a program is compiled at every call.
    def run(*arguments: Any) -> Any:
        with jax.disable_jit():
            return function(*arguments)

    return run


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
