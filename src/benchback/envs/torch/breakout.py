"""Breakout-MinAtar: keep a ball in play with a paddle and break bricks with it (Young & Tian 2019).

A 10 x 10 board. The ball moves one cell along a diagonal per step: directions 0 up left, 1 up right,
2 down right, 3 down left, so that `direction ^ 1` mirrors it at a wall, `3 - direction` at floor or ceiling,
and `direction ^ 2` sends it back where it came from. Integers are int32, bricks one byte a cell.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchback.envs.torch import Game

SIZE = 10
LAST = SIZE - 1


class State(NamedTuple):
    """Ball, paddle and bricks."""

    ball_y: Int[Tensor, "E"]
    ball_x: Int[Tensor, "E"]
    direction: Int[Tensor, "E"]
    paddle: Int[Tensor, "E"]
    brick: Bool[Tensor, "E 100"]
    strike: Bool[Tensor, "E"]
    """The ball hit a brick's cell in the last step; the next such cell is passed unharmed."""
    last_y: Int[Tensor, "E"]
    last_x: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 1"]) -> State:
    """Three full rows of bricks; the ball comes down from the left or the right edge."""
    right = (noise[:, 0] >= 0.5).to(torch.int32)
    ball_y = torch.full_like(right, 3)
    return State(
        ball_y=ball_y,
        ball_x=right * LAST,
        direction=right + 2,
        paddle=torch.full_like(right, 4),
        brick=full_rows(noise).repeat(len(noise), 1),
        strike=torch.zeros_like(right, dtype=torch.bool),
        last_y=ball_y,
        last_x=right * LAST,
    )


def advance(state: State, action: Int[Tensor, "E"]) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """Move paddle and ball; 1 for a broken brick; ends when the ball passes the paddle."""
    move = (action == 2).to(torch.int32) - (action == 1).to(torch.int32)
    paddle = (state.paddle + move).clamp(0, LAST)
    x, y, direction = fly(state)
    ceiling = y < 0
    y = y.clamp(min=0)
    direction = torch.where(ceiling, 3 - direction, direction)

    cell = board(y) == (y * SIZE + x)[:, None]
    on_brick = (state.brick & cell).any(-1) & ~ceiling
    broken = on_brick & ~state.strike
    brick = state.brick & ~(cell & broken[:, None])

    on_floor = ~on_brick & (y == LAST)
    brick = brick | ((on_floor & ~brick.any(-1))[:, None] & full_rows(brick))
    by_old_paddle = on_floor & (state.ball_x == paddle)
    by_new_paddle = on_floor & ~by_old_paddle & (x == paddle)
    direction = torch.where(broken | by_old_paddle, 3 - direction, direction)
    direction = torch.where(by_new_paddle, direction ^ 2, direction)
    y = torch.where(broken | by_old_paddle | by_new_paddle, state.ball_y, y)
    lost = on_floor & ~by_old_paddle & ~by_new_paddle
    moved = State(y, x, direction, paddle, brick, on_brick, state.ball_y, state.ball_x)
    return moved, broken.to(torch.float32), lost


def fly(state: State) -> tuple[Int[Tensor, "E"], Int[Tensor, "E"], Int[Tensor, "E"]]:
    """Where the ball would go (x, y), and its direction after the side walls."""
    to_right = (state.direction == 1) | (state.direction == 2)
    x = state.ball_x + 2 * to_right.to(torch.int32) - 1
    y = state.ball_y + 2 * (state.direction >= 2).to(torch.int32) - 1
    inside = x.clamp(0, LAST)
    return inside, y, torch.where(x == inside, state.direction, state.direction ^ 1)


def board(like: Tensor) -> Int[Tensor, "100"]:
    """The cells, counted row by row."""
    return torch.arange(SIZE * SIZE, dtype=torch.int32, device=like.device)


def full_rows(like: Tensor) -> Bool[Tensor, "1 100"]:
    """The three rows of bricks of a new wall."""
    cell = board(like)[None]
    return (cell >= SIZE) & (cell < 4 * SIZE)


def observe(state: State) -> Bool[Tensor, "E 400"]:
    """Four planes, the last axis of the board: paddle, ball, trail, bricks."""
    cell = board(state.paddle)
    paddle = cell == (LAST * SIZE + state.paddle)[:, None]
    ball = cell == (state.ball_y * SIZE + state.ball_x)[:, None]
    trail = cell == (state.last_y * SIZE + state.last_x)[:, None]
    return torch.stack([paddle, ball, trail, state.brick], -1).flatten(1)


GAME = Game(
    observation_size=SIZE * SIZE * 4,
    num_actions=3,
    noise_size=1,
    time_limit=1000,
    start=start,
    advance=advance,
    observe=observe,
)
