"""Acrobot-v1: swing the tip of a two-link pendulum above a line, driving the joint between the links.

The "book" equations of Sutton & Barto (1998), integrated by one fourth-order Runge-Kutta step. Both links
have mass, length and moment of inertia 1 and their centre of mass in the middle.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

GRAVITY = 9.8
CENTRE = 0.5
TIME_STEP = 0.2
MAX_VELOCITY1 = 4 * math.pi
MAX_VELOCITY2 = 9 * math.pi


class State(NamedTuple):
    """Angles of the two joints and their velocities."""

    motion: Float[Tensor, "E 4"]


def start(noise: Float[Tensor, "E 4"]) -> State:
    """Hanging down, almost at rest."""
    return State(noise * 0.2 - 0.1)


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """One step; every step costs 1 except the one that reaches the goal."""
    angle1, angle2, velocity1, velocity2 = integrate(state.motion, action - 1).unbind(-1)
    angle1, angle2 = wrap(angle1), wrap(angle2)
    velocity1 = velocity1.clamp(-MAX_VELOCITY1, MAX_VELOCITY1)
    velocity2 = velocity2.clamp(-MAX_VELOCITY2, MAX_VELOCITY2)
    terminated = -angle1.cos() - (angle2 + angle1).cos() > 1
    motion = torch.stack([angle1, angle2, velocity1, velocity2], -1)
    return State(motion), terminated.to(motion.dtype) - 1, terminated


def observe(state: State) -> Float[Tensor, "E 6"]:
    """Cosine and sine of each angle, and the velocities."""
    angle1, angle2, velocity1, velocity2 = state.motion.unbind(-1)
    return torch.stack([angle1.cos(), angle1.sin(), angle2.cos(), angle2.sin(), velocity1, velocity2], -1)


def integrate(motion: Float[Tensor, "E 4"], torque: Int[Tensor, "E"]) -> Float[Tensor, "E 4"]:
    """The motion one time step later, by the classical Runge-Kutta method."""
    rate1 = derivative(motion, torque)
    rate2 = derivative(motion + TIME_STEP / 2 * rate1, torque)
    rate3 = derivative(motion + TIME_STEP / 2 * rate2, torque)
    rate4 = derivative(motion + TIME_STEP * rate3, torque)
    return motion + TIME_STEP / 6 * (rate1 + 2 * (rate2 + rate3) + rate4)


def derivative(motion: Float[Tensor, "E 4"], torque: Int[Tensor, "E"]) -> Float[Tensor, "E 4"]:
    """Velocities and accelerations of both joints."""
    angle1, angle2, velocity1, velocity2 = motion.unbind(-1)
    sine, cosine = angle2.sin(), angle2.cos()
    inertia1 = cosine + (2 * CENTRE**2 + 3)
    inertia2 = CENTRE * cosine + (CENTRE**2 + 1)
    # cos(x - pi/2) of the original is sin(x).
    gravity2 = CENTRE * GRAVITY * (angle1 + angle2).sin()
    gravity1 = (CENTRE + 1) * GRAVITY * angle1.sin() + gravity2
    force1 = gravity1 - CENTRE * sine * velocity2 * (velocity2 + 2 * velocity1)
    force2 = torque - CENTRE * velocity1.square() * sine - gravity2
    ratio = inertia2 / inertia1
    acceleration2 = (force2 + ratio * force1) / ((CENTRE**2 + 1) - ratio * inertia2)
    acceleration1 = -(inertia2 * acceleration2 + force1) / inertia1
    return torch.stack([velocity1, velocity2, acceleration1, acceleration2], -1)


def wrap(angle: Float[Tensor, "E"]) -> Float[Tensor, "E"]:
    """The angle in [-pi, pi); angles already in the range are returned unchanged."""
    return angle - 2 * math.pi * ((angle + math.pi) / (2 * math.pi)).floor()


GAME = Game(
    observation_shape=(6,),
    actions=Discrete(3),
    start_noise=4,
    step_noise=0,
    time_limit=500,
    start=start,
    advance=advance,
    observe=observe,
)
