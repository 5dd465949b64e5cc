"""Freeway-MinAtar: cross a road of eight lanes (Young & Tian 2019).

A board of 10 x 10 cells. The chicken moves in column 4; each of the eight inner rows is the lane of one car.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

SIZE, CARS, SPEEDS = 10, 8, 5
LAST = SIZE - 1
COLUMN = 4
REST = 3
"""Steps from one move of the chicken to the next."""


class State(NamedTuple):
    """The chicken's row and the steps until it can move; the cars, of which that in lane k is in row k + 1."""

    row: Int[Tensor, "E"]
    rest: Int[Tensor, "E"]
    car: Int[Tensor, "E 8"]
    """Column."""
    pause: Int[Tensor, "E 8"]
    """Steps until the car moves."""
    interval: Int[Tensor, "E 8"]
    """Steps between two moves, 1 to 5; negative for cars that drive to the left."""


def start(noise: Float[Tensor, "E 8"]) -> State:
    """All cars at the left edge."""
    interval = intervals(noise)
    car = torch.zeros_like(interval)
    row = torch.full_like(interval[:, 0], LAST)
    return State(row, torch.full_like(row, REST), car, interval.abs(), interval)


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 8"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """Move the chicken (0 stay, 1 up, 2 down), then the cars; 1 on the other side, where all speeds are drawn anew.

    A car sends the chicken back. Nothing but the time limit ends an episode.
    """
    moved = (action != 0) & (state.rest == 0)
    row = torch.where(moved, state.row + torch.where(action == 1, -1, 1), state.row).clamp(0, LAST).to(torch.int32)
    rest = torch.where(moved, REST, state.rest)
    across = row == 0
    row = torch.where(across, LAST, row)
    drawn = intervals(noise)
    interval = torch.where(across.unsqueeze(-1), drawn, state.interval)
    pause = torch.where(across.unsqueeze(-1), drawn.abs(), state.pause)

    drives = pause == 0
    car = torch.where(drives, state.car + interval.sign(), state.car).remainder(SIZE)
    lane = row.unsqueeze(-1) == torch.arange(1, CARS + 1, device=row.device)
    hit = (lane & ((state.car == COLUMN) | (car == COLUMN))).any(-1)
    following = State(
        row=torch.where(hit, LAST, row),
        rest=(rest - 1).clamp(min=0),
        car=car,
        pause=torch.where(drives, interval.abs(), pause - 1),
        interval=interval,
    )
    return following, across.to(torch.float32), torch.zeros_like(across)


def intervals(noise: Float[Tensor, "E 8"]) -> Int[Tensor, "E 8"]:
    """Intervals of cars, each of the ten equally likely: one number decides about speed and direction."""
    drawn = (2 * SPEEDS * noise).floor().to(torch.int32)
    return torch.where(drawn < SPEEDS, drawn - SPEEDS, drawn - (SPEEDS - 1))


def observe(state: State) -> Bool[Tensor, "E 10 10 7"]:
    """Seven planes, the last axis of the board: chicken, cars, and trails behind cars, a plane for each interval."""
    cell = torch.arange(SIZE, device=state.row.device)
    car = state.car.unsqueeze(-1) == cell
    trail = (state.car - state.interval.sign()).remainder(SIZE).unsqueeze(-1) == cell
    speed = state.interval.abs().unsqueeze(-1) == torch.arange(1, SPEEDS + 1, device=cell.device)
    lanes = torch.cat([car.unsqueeze(-1), trail.unsqueeze(-1) & speed.unsqueeze(-2)], -1)
    chicken = (state.row.unsqueeze(-1) == cell).unsqueeze(-1) & (cell == COLUMN)
    return torch.cat([chicken.unsqueeze(-1), nn.functional.pad(lanes, (0, 0, 0, 0, 1, 1))], -1)


GAME = Game(
    observation_shape=(SIZE, SIZE, 2 + SPEEDS),
    actions=Discrete(3),
    start_noise=CARS,
    step_noise=CARS,
    time_limit=2500,
    start=start,
    advance=advance,
    observe=observe,
)
