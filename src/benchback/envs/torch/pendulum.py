"""Pendulum-v1: swing a pendulum up with a weak motor and hold it there."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benchback.envs.interface import Box
from benchback.envs.torch import Game

GRAVITY = 10.0
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
TIME_STEP = 0.05


class State(NamedTuple):
    """Angle, 0 upright and not wrapped, and angular velocity."""

    motion: Float[Tensor, "E 2"]


def start(noise: Float[Tensor, "E 2"]) -> State:
    """At any angle, slowly turning."""
    angle, velocity = (2 * noise - 1).unbind(-1)
    return State(torch.stack([math.pi * angle, velocity], -1))


def advance(
    state: State, action: Float[Tensor, "E 1"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """One Euler step; costs are those of the state before it. Nothing but the time limit ends an episode."""
    angle, velocity = state.motion.unbind(-1)
    torque = action[:, 0].to(angle.dtype).clamp(-MAX_TORQUE, MAX_TORQUE)
    cost = wrap(angle).square() + 0.1 * velocity.square() + 0.001 * torque.square()
    velocity = velocity + (1.5 * GRAVITY * angle.sin() + 3 * torque) * TIME_STEP
    velocity = velocity.clamp(-MAX_SPEED, MAX_SPEED)
    angle = angle + velocity * TIME_STEP
    return State(torch.stack([angle, velocity], -1)), -cost, torch.zeros_like(cost, dtype=torch.bool)


def observe(state: State) -> Float[Tensor, "E 3"]:
    """Cosine and sine of the angle, and the velocity."""
    angle, velocity = state.motion.unbind(-1)
    return torch.stack([angle.cos(), angle.sin(), velocity], -1)


def wrap(angle: Float[Tensor, "E"]) -> Float[Tensor, "E"]:
    """The angle in [-pi, pi)."""
    return (angle + math.pi).remainder(2 * math.pi) - math.pi


GAME = Game(
    observation_shape=(3,),
    actions=Box((-MAX_TORQUE,), (MAX_TORQUE,)),
    start_noise=2,
    step_noise=0,
    time_limit=200,
    start=start,
    advance=advance,
    observe=observe,
)
