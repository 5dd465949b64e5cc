"""SpaceInvaders-MinAtar: shoot aliens that come down and shoot back (Young & Tian 2019).

A board of 10 x 10 cells, with the cannon in the last row. Nothing is random: every episode starts alike.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from benchback.envs.interface import Discrete
from benchback.envs.torch import Game

SIZE = 10
LAST = SIZE - 1
SHOT_INTERVAL, ALIEN_SHOT_INTERVAL = 5, 10
MOVE_INTERVAL, SHORTEST_INTERVAL = 12, 6
"""Steps between two moves of the first wave of aliens, and of the last that is faster than the one before."""


class State(NamedTuple):
    """The cannon's column, maps of bullets and aliens, and timers."""

    cannon: Int[Tensor, "E"]
    bullet: Bool[Tensor, "E 10 10"]
    alien_bullet: Bool[Tensor, "E 10 10"]
    alien: Bool[Tensor, "E 10 10"]
    direction: Int[Tensor, "E"]
    """Of the aliens: -1 left, 1 right."""
    shot_timer: Int[Tensor, "E"]
    alien_shot_timer: Int[Tensor, "E"]
    move_timer: Int[Tensor, "E"]
    move_interval: Int[Tensor, "E"]


def start(noise: Float[Tensor, "E 0"]) -> State:
    """A wave of aliens."""
    zero = torch.zeros(len(noise), dtype=torch.int32, device=noise.device)
    empty = torch.zeros((len(noise), SIZE, SIZE), dtype=torch.bool, device=noise.device)
    return State(
        cannon=zero + 5,
        bullet=empty,
        alien_bullet=empty,
        alien=empty | wave(zero),
        direction=zero - 1,
        shot_timer=zero,
        alien_shot_timer=zero + ALIEN_SHOT_INTERVAL,
        move_timer=zero + MOVE_INTERVAL,
        move_interval=zero + MOVE_INTERVAL,
    )


def advance(
    state: State, action: Int[Tensor, "E"], noise: Float[Tensor, "E 0"]
) -> tuple[State, Float[Tensor, "E"], Bool[Tensor, "E"]]:
    """Player (0 wait, 1 left, 2 right, 3 fire), bullets, aliens, shots; 1 for each alien hit.

    A bullet or an alien that reaches the cannon ends the episode, and so do aliens that would leave the board.
    """
    state, shot = play(state, action)
    state, caught = march(state)
    state, hits = shoot(state)
    cleared = ~state.alien.any(-1).any(-1)
    faster = cleared & (state.move_interval > SHORTEST_INTERVAL)
    state = state._replace(
        alien=state.alien | (cleared[:, None, None] & wave(cleared)),
        shot_timer=(state.shot_timer - 1).clamp(min=0),
        alien_shot_timer=state.alien_shot_timer - 1,
        move_timer=state.move_timer - 1,
        move_interval=torch.where(faster, state.move_interval - 1, state.move_interval),
    )
    return state, hits, shot | caught


def play(state: State, action: Int[Tensor, "E"]) -> tuple[State, Bool[Tensor, "E"]]:
    """The player's action, after which all bullets fly one cell; whether one hits the cannon."""
    fires = (action == 3) & (state.shot_timer == 0)
    bullet = state.bullet | (fires[:, None, None] & at_cannon(state.cannon))
    step = (action == 2).to(torch.int32) - (action == 1).to(torch.int32)
    cannon = (state.cannon + step).clamp(0, LAST)
    alien_bullet = nn.functional.pad(state.alien_bullet[:, :-1], (0, 0, 1, 0))
    state = state._replace(
        cannon=cannon,
        bullet=nn.functional.pad(bullet[:, 1:], (0, 0, 0, 1)),
        alien_bullet=alien_bullet,
        shot_timer=torch.where(fires, SHOT_INTERVAL, state.shot_timer),
    )
    return state, (alien_bullet & at_cannon(cannon)).any(-1).any(-1)


def march(state: State) -> tuple[State, Bool[Tensor, "E"]]:
    """Aliens move sideways, or down at an edge, if it is time; whether they have reached the cannon or the ground."""
    alien, place = state.alien, at_cannon(state.cannon)
    moves = state.move_timer == 0
    left = state.direction < 0
    turns = moves & torch.where(left, alien[:, :, 0].any(-1), alien[:, :, LAST].any(-1))
    sideways = torch.where(left[:, None, None], alien.roll(-1, 2), alien.roll(1, 2))
    moved = torch.where(turns[:, None, None], alien.roll(1, 1), sideways)
    moved = torch.where(moves[:, None, None], moved, alien)
    caught = ((alien | moved) & place).any(-1).any(-1) | (turns & alien[:, LAST].any(-1))
    left_over = alien.sum((-2, -1)).to(torch.int32)
    state = state._replace(
        alien=moved,
        direction=torch.where(turns, -state.direction, state.direction),
        move_timer=torch.where(moves, left_over.minimum(state.move_interval), state.move_timer),
    )
    return state, caught


def shoot(state: State) -> tuple[State, Float[Tensor, "E"]]:
    """The lowest alien of the column nearest to the cannon shoots, if it is time; how many aliens were hit."""
    cell = torch.arange(SIZE, device=state.cannon.device)
    now = state.alien_shot_timer == 0
    # Of two columns at the same distance the left one; there is no such distance as SIZE.
    distance = SIZE * (cell - state.cannon.unsqueeze(-1)).abs() + cell
    distance = torch.where(state.alien.any(1), distance, SIZE * SIZE)
    nearest = (distance == distance.amin(-1, keepdim=True)) & (now & state.alien.any(-1).any(-1)).unsqueeze(-1)
    lowest = (state.alien * cell.unsqueeze(-1)).amax(1)
    shooter = nearest.unsqueeze(1) & (cell.unsqueeze(-1) == lowest.unsqueeze(1))
    hit = state.alien & state.bullet
    state = state._replace(
        alien=state.alien & ~hit,
        bullet=state.bullet & ~hit,
        alien_bullet=state.alien_bullet | shooter,
        alien_shot_timer=torch.where(now, ALIEN_SHOT_INTERVAL, state.alien_shot_timer),
    )
    return state, hit.sum((-2, -1)).to(torch.float32)


def at_cannon(cannon: Int[Tensor, "E"]) -> Bool[Tensor, "E 10 10"]:
    """The map of the cannon."""
    cell = torch.arange(SIZE, device=cannon.device)
    return (cell == LAST).unsqueeze(-1) & (cell == cannon.unsqueeze(-1)).unsqueeze(-2)


def wave(like: Tensor) -> Bool[Tensor, "10 10"]:
    """The map of a new wave of aliens."""
    cell = torch.arange(SIZE, device=like.device)
    return (cell < 4).unsqueeze(-1) & (cell >= 2) & (cell < 8)


def observe(state: State) -> Bool[Tensor, "E 10 10 6"]:
    """Six planes, the last axis of the board: cannon, aliens, aliens if they go left, if right, both sides' bullets."""
    left = (state.direction < 0)[:, None, None]
    aliens = state.alien, state.alien & left, state.alien & ~left
    return torch.stack([at_cannon(state.cannon), *aliens, state.bullet, state.alien_bullet], -1)


GAME = Game(
    observation_shape=(SIZE, SIZE, 6),
    actions=Discrete(4),
    start_noise=0,
    step_noise=0,
    time_limit=1000,
    start=start,
    advance=advance,
    observe=observe,
)
