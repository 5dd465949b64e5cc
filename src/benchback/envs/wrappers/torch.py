"""Wrappers of native torch environments: no operation synchronises or branches, so that they compile with the step.

A time limit is not here: an environment of tensors cannot be reset for some copies from outside without computing it
at every step. The suite `torch` has its own, which a wrapper shortens.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from benchback.envs.interface import Discrete, Env, EnvState
from benchback.envs.wrappers import Wrapper
from benchback.envs.wrappers.arrays import StickyParts, clip_reward, frame_stack, observe, sticky_actions
from benchback.errors import InputError


def wrap(env: Env, wrappers: Sequence[Wrapper]) -> Env:
    """The environment with all wrappers but a time limit."""
    for name, value in wrappers:
        match name:
            case "clip_reward":
                env = clip_reward(env, torch, value)
            case "frame_stack":
                env = frame_stack(env, torch, value)
            case "observe":
                env = observe(env, torch, value)
            case "sticky_actions":
                env = sticky_actions(env, torch, value, _sticky_parts(env))
            case _:
                raise InputError(f"env={env.id} is of torch tensors and cannot be reset from outside; limit it inside")
    return env


def _sticky_parts(env: Env) -> StickyParts:
    discrete = isinstance(env.actions, Discrete)
    shape = (env.num_envs,) if discrete else (env.num_envs, env.actions.size)

    # One more column of the environment's noise: as a tensor it can be part of a compiled loop.
    def draw(generator: torch.Generator, num_steps: int) -> Float[Tensor, "T E K"]:
        own = env.draw(generator, num_steps)
        if not (isinstance(own, Tensor) and own.ndim == 3 and own.is_floating_point()):
            raise InputError(f"env={env.id}: sticky_actions needs noise of real numbers of shape [T, E, K]")
        uniform = torch.rand((num_steps, env.num_envs, 1), generator=generator, device=generator.device)
        return torch.cat([own, uniform], -1)

    def split(noise: Float[Tensor, "E K"]) -> tuple[Float[Tensor, "E L"], Float[Tensor, "E"]]:
        return noise[:, :-1], noise[:, -1]

    def no_action(state: EnvState) -> Shaped[Tensor, "E *A"]:
        return torch.zeros(shape, dtype=torch.int64 if discrete else torch.float32, device=state.obs.device)

    return StickyParts(draw, split, no_action, lambda x, other: x.to(other.dtype))
