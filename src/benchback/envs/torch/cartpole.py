"""CartPole-v1: balance a pole on a cart by pushing it left or right (Barto, Sutton & Anderson 1983)."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1
HALF_LENGTH = 0.5
POLE_MOMENT = POLE_MASS * HALF_LENGTH
FORCE = 10.0
TIME_STEP = 0.02
MAX_ANGLE = 12 * 2 * math.pi / 360
MAX_POSITION = 2.4


class State(NamedTuple):
    """Position and velocity of the cart, angle and angular velocity of the pole."""

    motion: Float[Tensor, "E 4"]


def start(noise: Float[Tensor, "E 4"]) -> State:
    """Close to upright and at rest."""
    return State(noise * 0.1 - 0.05)


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """One Euler step; a step from a state that has not ended always earns 1."""
    _, velocity, angle, angular_velocity = state.motion.unbind(-1)
    sine, cosine = angle.sin(), angle.cos()
    force = action * (2 * FORCE) - FORCE
    push = (force + POLE_MOMENT * angular_velocity.square() * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (4 / 3 - POLE_MASS / TOTAL_MASS * cosine.square())
    angular_acceleration = (GRAVITY * sine - cosine * push) / inertia
    acceleration = push - POLE_MOMENT / TOTAL_MASS * angular_acceleration * cosine
    rate = torch.stack([velocity, acceleration, angular_velocity, angular_acceleration], -1)
    motion = state.motion + TIME_STEP * rate
    terminated = (motion[:, 0].abs() > MAX_POSITION) | (motion[:, 2].abs() > MAX_ANGLE)
    return State(motion), torch.ones_like(velocity), terminated


def observe(state: State) -> Float[Tensor, "E 4"]:
    """The observation is the state itself."""
    return state.motion


GAME = Game(
    observation_shape=(4,),
    actions=Discrete(2),
    start_noise=4,
    step_noise=0,
    time_limit=500,
    start=start,
    advance=advance,
    observe=observe,
)
