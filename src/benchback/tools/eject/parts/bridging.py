"""A gymnax environment served to torch: what `envs/bridge.py` does, for noise that is always random keys."""

from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor

from benchback.envs.bridge import _key, _seed, _to_jax, _to_torch
from benchback.envs.interface import Env, EnvState, Step
from benchback.envs.torch import random


def to_torch(game: Env) -> Env:
    """A JAX environment, compiled by JAX, with torch tensors at its interface."""

    # In inference mode, as in a rollout: a compiled policy then gets only one kind of tensor.
    @torch.inference_mode()
    def reset(generator: torch.Generator) -> EnvState:
        high, low = _seed(generator)
        inner = jax.jit(game.reset)(_key(high, low))
        return EnvState(inner, _to_torch(inner.obs), None, None)

    @partial(jax.jit, static_argnums=2)
    def draw_in_jax(high: Any, low: Any, num_steps: int) -> Any:
        key = _key(high, low)
        return jax.random.key_data(game.draw(key, num_steps))

    def draw(generator: torch.Generator, num_steps: int) -> list[tuple[Any, np.int32]]:
        raw = draw_in_jax(*_seed(generator), num_steps)
        # The whole array and an index for each step: the compiled step slices it faster than Python could.
        return [(raw, np.int32(t)) for t in range(num_steps)]

    @jax.jit
    def step_in_jax(state: EnvState, action: Any, raw: Any, t: Any) -> tuple[EnvState, Step]:
        following, outcome = game.step(state, action, jax.random.wrap_key_data(raw[t]))
        # The observation is also in the outcome: the program would return it twice.
        return following._replace(obs=None), outcome

    def step(state: EnvState, action: Tensor, noise: tuple[Any, Any]) -> tuple[EnvState, Step]:
        chosen = _to_jax(action)
        following, computed = step_in_jax(state.inner, chosen, *noise)
        seen = Step(*map(_to_torch, computed))
        return EnvState(following._replace(obs=computed.obs), seen.obs, None, None), seen

    return Env(game.id, "torch", game.num_envs, game.observation_shape, game.actions, random, reset, draw, step)
