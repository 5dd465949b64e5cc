"""Native torch environments, so that PyTorch can be measured without JAX in its process.

One file per game. A game is pure arithmetic on tensors, equal transition by transition to gymnax 1.0.1's
game of the same name; what all games share (time limit, resets, episode statistics) is here. No operation
synchronises with the device or branches on a value, so that a step can be part of a compiled program. Random numbers
are drawn outside: a game is given uniform ones and makes of them what it needs.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from benchback.envs.interface import Box, Discrete, Env, EnvState, Step

MODULES = {
    "CartPole-v1": "cartpole",
    "Acrobot-v1": "acrobot",
    "MountainCar-v0": "mountain_car",
    "Pendulum-v1": "pendulum",
    "DiscountingChain-bsuite": "discounting_chain",
    "MemoryChain-bsuite": "memory_chain",
    "UmbrellaChain-bsuite": "umbrella_chain",
    "BernoulliBandit-misc": "bernoulli_bandit",
    "GaussianBandit-misc": "gaussian_bandit",
    "Asterix-MinAtar": "asterix",
    "Breakout-MinAtar": "breakout",
    "Freeway-MinAtar": "freeway",
    "SpaceInvaders-MinAtar": "space_invaders",
}


class Game(NamedTuple):
    """The rules of an environment, for all copies at once. Its state is a NamedTuple of `[E, ...]` tensors."""

    observation_shape: tuple[int, ...]
    actions: Discrete | Box
    start_noise: int
    """Number of uniform random numbers per start."""
    step_noise: int
    """Number of uniform random numbers per step."""
    time_limit: int
    start: Callable[[Float[Tensor, "E K"]], Any]
    """Uniform noise -> state."""
    advance: Callable[
        [Any, Shaped[Tensor, "E *A"], Float[Tensor, "E L"]], tuple[Any, Float[Tensor, "E"], Bool[Tensor, "E"]]
    ]
    """(state, action, uniform noise) -> state, reward, terminated; clips actions of a box to its bounds."""
    observe: Callable[[Any], Shaped[Tensor, "E *O"]]
    """State -> observation."""


def make(name: str, num_envs: int, time_limit: int | None = None) -> Env:
    """The environment `name`, `num_envs` times, on the device of the generator it is reset with.

    `time_limit` shortens the game's own.
    """
    game = import_module(f"{__name__}.{MODULES[name]}").GAME
    game = game._replace(time_limit=min(game.time_limit, time_limit or game.time_limit))
    return vectorise(game, f"torch/{name}", num_envs)


def random(seed: int) -> torch.Generator:
    """A source of randomness on torch's default device."""
    return torch.Generator(torch.get_default_device()).manual_seed(seed)


def vectorise(game: Game, id: str, num_envs: int) -> Env:
    """Any Game as an Env."""

    def reset(generator: torch.Generator) -> EnvState:
        inner = game.start(draw(generator, 1)[0, :, : game.start_noise])
        zero = torch.zeros(num_envs, device=generator.device)
        return EnvState(inner, game.observe(inner), zero, zero.to(torch.int32))

    def draw(generator: torch.Generator, num_steps: int) -> Float[Tensor, "T E K"]:
        size = (num_steps, num_envs, game.start_noise + game.step_noise)
        return torch.rand(size, generator=generator, device=generator.device)

    def step(state: EnvState, action: Shaped[Tensor, "E *A"], noise: Float[Tensor, "E K"]) -> tuple[EnvState, Step]:
        inner, reward, terminated = game.advance(state.inner, action, noise[:, game.start_noise :])
        final_obs = game.observe(inner)
        episode_return = state.episode_return + reward
        episode_length = state.episode_length + 1
        truncated = episode_length >= game.time_limit
        ongoing = ~(terminated | truncated)
        # Checking whether any episode ended would synchronise with the device: resets are always computed.
        fresh = game.start(noise[:, : game.start_noise])
        inner = type(inner)(*(_where(ongoing, x, y) for x, y in zip(inner, fresh, strict=True)))
        obs = game.observe(inner)
        outcome = Step(obs, reward, terminated, truncated, final_obs, episode_return, episode_length)
        return EnvState(inner, obs, episode_return * ongoing, episode_length * ongoing), outcome

    return Env(id, "torch", num_envs, game.observation_shape, game.actions, random, reset, draw, step)


def _where(mask: Bool[Tensor, "E"], x: Shaped[Tensor, "E ..."], y: Shaped[Tensor, "E ..."]) -> Any:
    return torch.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, y)
