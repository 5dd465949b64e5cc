"""Asterix-MinAtar: collect treasure and avoid enemies, which cross the board in rows of their own (Young & Tian 2019).

A board of 10 x 10 cells. Each of the eight inner rows is a slot for one enemy or treasure; spawns and moves become more
frequent with time.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

SIZE, SLOTS = 10, 8
LAST = SIZE - 1
RAMP_INTERVAL = 100
GOLD_PROBABILITY = 1 / 3


class State(NamedTuple):
    """The player, what is in each slot, and timers."""

    x: Int[Tensor, "E"]
    y: Int[Tensor, "E"]
    column: Int[Tensor, "E 8"]
    """Of the entity in a slot, in row slot + 1; has no meaning where the slot is empty, as the next two have none."""
    rightward: Bool[Tensor, "E 8"]
    gold: Bool[Tensor, "E 8"]
    filled: Bool[Tensor, "E 8"]
    spawn_interval: Int[Tensor, "E"]
    spawn_timer: Int[Tensor, "E"]
    move_interval: Int[Tensor, "E"]
    move_timer: Int[Tensor, "E"]
    ramp_timer: Int[Tensor, "E"]
    ramp_index: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 0"]) -> State:
    """The player in the middle of an empty board."""
    zero = torch.zeros(len(noise), dtype=torch.int32, device=noise.device)
    column = zero.unsqueeze(-1).repeat(1, SLOTS)
    empty = torch.zeros_like(column, dtype=torch.bool)
    return State(
        x=zero + 5,
        y=zero + 5,
        column=column,
        rightward=empty,
        gold=empty,
        filled=empty,
        spawn_interval=zero + 10,
        spawn_timer=zero + 10,
        move_interval=zero + 5,
        move_timer=zero + 5,
        ramp_timer=zero + RAMP_INTERVAL,
        ramp_index=zero,
    )


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 4"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """Spawn, move the player (0 stay, 1 left, 2 up, 3 right, 4 down) and the others; 1 for treasure, enemies end it."""
    state = spawn(state, noise)
    x = (state.x + direction(action, 3) - direction(action, 1)).clamp(0, LAST)
    y = (state.y + direction(action, 4) - direction(action, 2)).clamp(1, LAST - 1)
    in_row = y.unsqueeze(-1) == rows(y)
    met = state.filled & in_row & (state.column == x.unsqueeze(-1))
    filled = state.filled & ~(met & state.gold)

    moving = (state.move_timer == 0).unsqueeze(-1) & filled
    column = torch.where(moving, state.column + torch.where(state.rightward, 1, -1), state.column).to(torch.int32)
    filled = filled & (column >= 0) & (column <= LAST)
    met_later = moving & in_row & (column == x.unsqueeze(-1))
    filled = filled & ~(met_later & state.gold)

    met = met | met_later
    state = count_down(state._replace(x=x, y=y, column=column, filled=filled))
    return state, (met & state.gold).any(-1).to(torch.float32), (met & ~state.gold).any(-1)


def spawn(state: State, noise: Float[Tensor, "E 4"]) -> State:
    """An enemy or treasure at the edge of an empty row, if it is time.

    As in gymnax: slots are tried in random order without the first. If none of the others is empty, the last of them
    is cleared.
    """
    side, kind, first, rank = noise.unsqueeze(-1).unbind(1)
    tried = rows(state.x) != (SLOTS * first).floor() + 1
    empty = tried & ~state.filled
    found = empty.any(-1, keepdim=True)
    open = torch.where(found, empty, tried)
    nth = (rank * open.sum(-1, keepdim=True)).floor() + 1
    now = (state.spawn_timer == 0).unsqueeze(-1) & open & (open.cumsum(-1) == nth)
    rightward = side < 0.5
    return state._replace(
        column=torch.where(now, torch.where(rightward, 0, LAST), state.column).to(torch.int32),
        rightward=torch.where(now, rightward, state.rightward),
        gold=torch.where(now, kind < GOLD_PROBABILITY, state.gold),
        filled=torch.where(now, found, state.filled),
        spawn_timer=torch.where(state.spawn_timer == 0, state.spawn_interval, state.spawn_timer),
    )


def count_down(state: State) -> State:
    """Timers one step later; from time to time spawns, and every other time moves, become more frequent."""
    move_timer = torch.where(state.move_timer == 0, state.move_interval, state.move_timer)
    ramping = (state.spawn_interval > 1) | (state.move_interval > 1)
    waiting = ramping & (state.ramp_timer >= 0)
    harder = ramping & ~waiting
    faster = harder & (state.move_interval != 0) & (state.ramp_index % 2 == 1)
    return state._replace(
        spawn_timer=state.spawn_timer - 1,
        move_timer=move_timer - 1,
        ramp_timer=torch.where(waiting, state.ramp_timer - 1, RAMP_INTERVAL),
        move_interval=torch.where(faster, state.move_interval - 1, state.move_interval),
        spawn_interval=torch.where(harder & (state.spawn_interval > 1), state.spawn_interval - 1, state.spawn_interval),
        ramp_index=torch.where(harder, state.ramp_index + 1, state.ramp_index),
    )


def direction(action: Int[Tensor, "E"], value: int) -> Int[Tensor, "E"]:
    """1 where the action has this value, 0 elsewhere."""
    return (action == value).to(torch.int32)


def rows(like: Int[Tensor, "E"]) -> Int[Tensor, "8"]:
    """The row of each slot."""
    return torch.arange(1, SLOTS + 1, device=like.device)


def observe(state: State) -> Bool[Tensor, "E 10 10 4"]:
    """Four planes, the last axis of the board: player, enemies, trails behind what moves, treasure."""
    cell = torch.arange(SIZE, device=state.x.device)
    column, filled = state.column.unsqueeze(-1), state.filled.unsqueeze(-1)
    entity, gold = filled & (column == cell), state.gold.unsqueeze(-1)
    trail = filled & (column - torch.where(state.rightward, 1, -1).unsqueeze(-1) == cell)
    inner = torch.stack([entity & ~gold, trail, entity & gold], -1)
    player = (state.y.unsqueeze(-1) == cell).unsqueeze(-1) & (state.x.unsqueeze(-1) == cell).unsqueeze(-2)
    return torch.cat([player.unsqueeze(-1), nn.functional.pad(inner, (0, 0, 0, 0, 1, 1))], -1)


GAME = Game(
    observation_shape=(SIZE, SIZE, 4),
    actions=Discrete(5),
    start_noise=0,
    step_noise=4,
    time_limit=1000,
    start=start,
    advance=advance,
    observe=observe,
)
