"""MountainCar-v0: rock an underpowered car out of a valley (Moore 1990)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GOAL_POSITION = 0.5
FORCE = 0.001
GRAVITY = 0.0025


class State(NamedTuple):
    """Position and velocity of the car."""

    motion: Float[Tensor, "E 2"]


def start(noise: Float[Tensor, "E 1"]) -> State:
    """At rest near the bottom of the valley."""
    position = noise * 0.2 - 0.6
    return State(torch.cat([position, torch.zeros_like(position)], -1))


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """One step; every step costs 1."""
    position, velocity = state.motion.unbind(-1)
    velocity = velocity + (action - 1) * FORCE - (3 * position).cos() * GRAVITY
    velocity = velocity.clamp(-MAX_SPEED, MAX_SPEED)
    position = (position + velocity).clamp(MIN_POSITION, MAX_POSITION)
    # The left wall stops the car.
    velocity = torch.where(position == MIN_POSITION, velocity.clamp(min=0), velocity)
    terminated = (position >= GOAL_POSITION) & (velocity >= 0)
    return State(torch.stack([position, velocity], -1)), torch.full_like(position, -1), terminated


def observe(state: State) -> Float[Tensor, "E 2"]:
    """The observation is the state itself."""
    return state.motion


GAME = Game(
    observation_shape=(2,),
    actions=Discrete(3),
    start_noise=1,
    step_noise=0,
    time_limit=200,
    start=start,
    advance=advance,
    observe=observe,
)
