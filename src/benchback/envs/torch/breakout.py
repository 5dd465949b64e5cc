"""Breakout-MinAtar: keep a ball in play with a paddle and break bricks with it (Young & Tian 2019).

A board of 10 x 10 cells, counted row by row. The ball moves one cell along a diagonal per step.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

SIZE = 10
LAST = SIZE - 1


class State(NamedTuple):
    """Ball, paddle and bricks, and where the ball was."""

    ball_y: Int[Tensor, "E"]
    ball_x: Int[Tensor, "E"]
    velocity_y: Int[Tensor, "E"]
    """1 down, -1 up."""
    velocity_x: Int[Tensor, "E"]
    paddle: Int[Tensor, "E"]
    brick: Bool[Tensor, "E 100"]
    strike: Bool[Tensor, "E"]
    """Whether the ball hit a brick in the last step; it passes the next brick without breaking it."""
    last_y: Int[Tensor, "E"]
    last_x: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 1"]) -> State:
    """A new wall; the ball comes down from the left or the right edge."""
    right = (noise[:, 0] >= 0.5).to(torch.int32)
    ball_y, ball_x = torch.full_like(right, 3), LAST * right
    return State(
        ball_y=ball_y,
        ball_x=ball_x,
        velocity_y=torch.ones_like(right),
        velocity_x=1 - 2 * right,
        paddle=torch.full_like(right, 4),
        brick=wall(right),
        strike=torch.zeros_like(right, dtype=torch.bool),
        last_y=ball_y,
        last_x=ball_x,
    )


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """Move paddle and ball (0 stay, 1 left, 2 right); 1 for a broken brick; ends when the ball is lost."""
    move = torch.where(action == 1, -1, action // 2).to(torch.int32)
    paddle = (state.paddle + move).clamp(0, LAST)
    x, y = state.ball_x + state.velocity_x, state.ball_y + state.velocity_y
    side, ceiling = (x < 0) | (x > LAST), y < 0
    x, y = x.clamp(0, LAST), y.clamp(min=0)

    cell = (y * SIZE + x).long().unsqueeze(-1)
    hit = state.brick.gather(1, cell).squeeze(-1)
    on_brick = hit & ~ceiling
    broken = on_brick & ~state.strike
    brick = state.brick.scatter(1, cell, (hit & ~broken).unsqueeze(-1))

    on_floor = ~on_brick & (y == LAST)
    brick = brick | ((on_floor & ~brick.any(-1)).unsqueeze(-1) & wall(paddle))
    by_old_paddle = on_floor & (state.ball_x == paddle)
    by_new_paddle = on_floor & (x == paddle) & ~by_old_paddle
    back = broken | by_old_paddle | by_new_paddle
    moved = State(
        ball_y=torch.where(back, state.ball_y, y),
        ball_x=x,
        velocity_y=torch.where(back | ceiling, -state.velocity_y, state.velocity_y),
        velocity_x=torch.where(side ^ by_new_paddle, -state.velocity_x, state.velocity_x),
        paddle=paddle,
        brick=brick,
        strike=on_brick,
        last_y=state.ball_y,
        last_x=state.ball_x,
    )
    return moved, broken.to(torch.float32), on_floor & ~back


def wall(like: Int[Tensor, "E"]) -> Bool[Tensor, "E 100"]:
    """Three rows of bricks below an empty one."""
    rows = torch.ones((len(like), 3 * SIZE), dtype=torch.bool, device=like.device)
    return nn.functional.pad(rows, (SIZE, 6 * SIZE))


def observe(state: State) -> Bool[Tensor, "E 10 10 4"]:
    """Four planes, the last axis of the board: paddle, ball, trail, bricks."""
    cell = [
        LAST * SIZE + state.paddle,
        state.ball_y * SIZE + state.ball_x,
        state.last_y * SIZE + state.last_x,
    ]
    index = torch.stack([4 * x + plane for plane, x in enumerate(cell)], -1)
    bricks = nn.functional.pad(state.brick.unsqueeze(-1), (3, 0)).flatten(1)
    return bricks.scatter(1, index.long(), True).unflatten(1, (SIZE, SIZE, 4))


GAME = Game(
    observation_shape=(SIZE, SIZE, 4),
    actions=Discrete(3),
    start_noise=1,
    step_noise=0,
    time_limit=1000,
    start=start,
    advance=advance,
    observe=observe,
)
