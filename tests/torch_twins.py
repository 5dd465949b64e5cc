"""Native torch environments and their twins in gymnax: states and random numbers of the one as those of the other.

gymnax draws from keys; a native game is given uniform numbers. What gymnax draws from a key is drawn here in the same
way, and told in uniform numbers from which the game must make the same.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from torch import Tensor

from benchback.envs.torch import MODULES, Game

Random = np.random.Generator


class Twin(NamedTuple):
    """What is known of a game, and how its state and its random numbers correspond to gymnax's."""

    limit: int
    to_gymnax: Callable[[Any], dict[str, Any]]
    """Native state in NumPy arrays -> the fields of gymnax's that both have."""
    start_noise: Callable[[Any], Any]
    """Key of a reset -> uniform numbers."""
    step_noise: Callable[[Any, Any], Any] | None = None
    """(key of a step, gymnax's state) -> uniform numbers; None where a step draws none."""
    other: dict[str, Any] = {}  # noqa: RUF012
    """Fields of gymnax's state that the native one does without -> a value."""
    skilful: Callable[[Any], Any] | None = None
    """Observation -> action of a player that reaches parts of a game that a random one does not."""
    starts: int | None = None
    """Number of first observations; None where no two are alike."""
    ends: bool = True
    """Whether anything but the time limit ends an episode."""
    anywhere: Callable[[Random, int], dict[str, np.ndarray]] | None = None
    """(random, N) -> N native states, whether or not they can be reached."""


def game(name: str) -> Game:
    return import_module(f"benchback.envs.torch.{MODULES[name]}").GAME


def uniform(size: int) -> Callable[[Any], Any]:
    """What gymnax draws with `jax.random.uniform`, or compares with a probability."""
    return lambda key: jax.random.uniform(key, (size,))


def nothing(key: Any) -> Any:
    return jnp.zeros(0)


def within(key: Any, drawn: Any, size: Any) -> Any:
    """A uniform number for each of the integers, anywhere in the part of [0, 1) that stands for it."""
    drawn = jnp.atleast_1d(drawn)
    place = jax.random.uniform(jax.random.fold_in(key, 1), drawn.shape, minval=0.01, maxval=0.99)
    return (drawn + place) / size


def motion(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda inner: dict(zip(names, np.moveaxis(inner.motion, -1, 0), strict=True))


# Breakout


def of_breakout(inner: Any) -> dict[str, Any]:
    return {
        "ball_y": inner.ball_y,
        "ball_x": inner.ball_x,
        "ball_dir": np.where(inner.velocity_y < 0, (1 + inner.velocity_x) // 2, (5 - inner.velocity_x) // 2),
        "pos": inner.paddle,
        "brick_map": inner.brick.reshape(*inner.brick.shape[:-1], 10, 10).astype(np.float32),
        "strike": inner.strike,
        "last_y": inner.last_y,
        "last_x": inner.last_x,
    }


def any_breakout(random: Random, n: int) -> dict[str, np.ndarray]:
    wall = random.random((n, 100)) < random.choice([0, 0.01, 0.5], (n, 1))
    return {
        "ball_y": random.integers(0, 9, n),
        "ball_x": random.integers(0, 10, n),
        "velocity_y": random.choice([-1, 1], n),
        "velocity_x": random.choice([-1, 1], n),
        "paddle": random.integers(0, 10, n),
        "brick": wall & (np.arange(100) // 10 < 4),
        "strike": random.random(n) < 0.5,
        "last_y": random.integers(0, 10, n),
        "last_x": random.integers(0, 10, n),
    }


def follow_ball(obs: Any) -> Any:
    plane = obs.long()
    ball, paddle = plane[..., 1].sum(1).argmax(-1), plane[:, 9, :, 0].argmax(-1)
    return (ball < paddle) + 2 * (ball > paddle).long()


# Asterix


def of_asterix(inner: Any) -> dict[str, Any]:
    row = np.broadcast_to(np.arange(1, 9), inner.column.shape)
    entities = np.stack([inner.column, row, inner.rightward, inner.gold, inner.filled], -1).astype(np.int32)
    return {
        "player_x": inner.x,
        "player_y": inner.y,
        "spawn_speed": inner.spawn_interval,
        "spawn_timer": inner.spawn_timer,
        "move_speed": inner.move_interval,
        "move_timer": inner.move_timer,
        "ramp_timer": inner.ramp_timer,
        "ramp_index": inner.ramp_index,
        "entities": entities * inner.filled[..., None],
    }


def spawned(key: Any, state: Any) -> Any:
    """Side, kind, the slot that is not tried, and which of the open ones is taken."""
    from gymnax.environments.minatar.asterix import while_sample_slots

    side_key, kind_key, slot_key = jax.random.split(key, 3)
    left = 1 - jax.random.choice(side_key, jnp.array([1, 0]))
    kind = 1 - jax.random.uniform(kind_key, (1,))  # choice with probabilities looks the complement up
    order = jax.random.permutation(slot_key, jnp.arange(8))
    slot, found = while_sample_slots(slot_key, state.entities[:, 4])
    tried = jnp.arange(8) != order[0]
    open = jnp.where(found, tried & (state.entities[:, 4] == 0), tried)
    rank = (open & (jnp.arange(8) < slot)).sum()
    parts = within(side_key, left, 2), kind, within(kind_key, order[0], 8), within(slot_key, rank, open.sum())
    return jnp.concatenate(parts)


def any_asterix(random: Random, n: int) -> dict[str, np.ndarray]:
    full = random.choice([0.3, 0.9, 1.0], (n, 1))
    x, y = random.integers(0, 10, n), random.integers(1, 9, n)
    return {
        "x": x,
        "y": y,
        # Often near the player.
        "column": np.where(random.random((n, 8)) < 0.5, x[:, None] + random.integers(-1, 2, (n, 8)), 3).clip(0, 9),
        "rightward": random.random((n, 8)) < 0.5,
        "gold": random.random((n, 8)) < 0.5,
        "filled": random.random((n, 8)) < full,
        "spawn_interval": random.integers(1, 11, n),
        "spawn_timer": random.integers(0, 3, n),
        "move_interval": random.integers(0, 6, n),
        "move_timer": random.integers(0, 3, n),
        "ramp_timer": random.integers(-1, 3, n),
        "ramp_index": random.integers(0, 10, n),
    }


# Freeway


def of_freeway(inner: Any) -> dict[str, Any]:
    row = np.broadcast_to(np.arange(1, 9), inner.car.shape)
    cars = np.stack([inner.car, row, inner.pause, inner.interval], -1).astype(np.int32)
    return {"pos": inner.row, "cars": cars, "move_timer": inner.rest}


def drawn_cars(key: Any, state: Any = None) -> Any:
    """Speed and direction of each car, of ten possible pairs."""
    speed_key, direction_key = jax.random.split(key)
    speed = jax.random.randint(speed_key, (8,), 1, 6)
    direction = jax.random.choice(direction_key, jnp.array([-1, 1]), (8,))
    return within(key, jnp.where(direction < 0, 5 - speed, 4 + speed), 10)


def any_freeway(random: Random, n: int) -> dict[str, np.ndarray]:
    return {
        "row": random.integers(1, 10, n),
        "rest": random.integers(0, 3, n),
        "car": random.choice([0, 3, 4, 5, 9], (n, 8)),
        "pause": random.integers(0, 4, (n, 8)),
        "interval": random.integers(1, 6, (n, 8)) * random.choice([-1, 1], (n, 8)),
    }


def always_up(obs: Any) -> Any:
    return obs.new_ones(len(obs)).long()


# SpaceInvaders


def of_space_invaders(inner: Any) -> dict[str, Any]:
    return {
        "pos": inner.cannon,
        "f_bullet_map": inner.bullet.astype(np.float32),
        "e_bullet_map": inner.alien_bullet.astype(np.float32),
        "alien_map": inner.alien.astype(np.float32),
        "alien_dir": inner.direction,
        "enemy_move_interval": inner.move_interval,
        "alien_move_timer": inner.move_timer,
        "alien_shot_timer": inner.alien_shot_timer,
        "shot_timer": inner.shot_timer,
    }


def any_space_invaders(random: Random, n: int) -> dict[str, np.ndarray]:
    share = random.choice([0, 0.003, 0.1, 0.5], (n, 1, 1))
    edge = np.ones((10, 10), bool)
    edge[:, [0, 9]] = False
    return {
        "cannon": random.integers(0, 10, n),
        "bullet": random.random((n, 10, 10)) < 0.2,
        "alien_bullet": random.random((n, 10, 10)) < 0.1,
        "alien": (random.random((n, 10, 10)) < share) & np.where(random.random((n, 1, 1)) < 0.5, edge, True),
        "direction": random.choice([-1, 1], n),
        "shot_timer": random.integers(0, 3, n),
        "alien_shot_timer": random.integers(0, 3, n),
        "move_timer": random.integers(0, 3, n),
        "move_interval": random.integers(5, 13, n),
    }


def aim_and_fire(obs: Any) -> Any:
    """Fire below aliens, go to the right elsewhere."""
    plane = obs.long()
    below = (plane[:, 9, :, 0] * plane[..., 1].amax(1)).any(-1)
    return 2 + below.long()


# Bandits


def of_bernoulli_bandit(inner: Any) -> dict[str, Any]:
    return {
        "last_action": inner.arm,
        "last_reward": inner.reward.astype(np.int32),
        "reward_probs": inner.probability,
        "exp_reward_best": inner.probability.max(-1),
    }


def of_gaussian_bandit(inner: Any) -> dict[str, Any]:
    return {"last_action": inner.arm, "last_reward": inner.reward, "mu": inner.mean}


def which_arm(key: Any) -> Any:
    first = jax.random.choice(key, jnp.array([0, 1]), (1,))
    return within(key, first, 2)


# Chains


def of_discounting_chain(inner: Any) -> dict[str, Any]:
    return {"context": inner.choice, "rewards": np.broadcast_to(REWARDS, (*inner.choice.shape, 5))}


REWARDS = np.array([1.1, 1, 1, 1, 1], np.float32)


def remembered_bit(key: Any) -> Any:
    return jax.random.uniform(jax.random.split(key)[0], (1,))


def need_and_umbrella(key: Any) -> Any:
    need_key, has_key, _ = jax.random.split(key, 3)
    return jnp.stack([jax.random.uniform(need_key), jax.random.uniform(has_key)])


def random_reward(key: Any, state: Any) -> Any:
    return jax.random.uniform(jax.random.split(key)[0], (1,))


def repeat_what_is_shown(obs: Any) -> Any:
    return (obs[:, 2] > 0).long()


TWINS = {
    "CartPole-v1": Twin(
        500,
        motion("x", "x_dot", "theta", "theta_dot"),
        uniform(4),
        skilful=lambda obs: (obs[:, 2] + obs[:, 3] > 0).long(),
    ),
    "Acrobot-v1": Twin(
        500,
        motion("joint_angle1", "joint_angle2", "velocity_1", "velocity_2"),
        uniform(4),
        skilful=lambda obs: 2 * (obs[:, 5] > 0).long(),
    ),
    "MountainCar-v0": Twin(
        200, motion("position", "velocity"), uniform(1), skilful=lambda obs: 2 * (obs[:, 1] >= 0).long()
    ),
    "Pendulum-v1": Twin(
        200,
        motion("theta", "theta_dot"),
        uniform(2),
        other={"last_u": 0.0},
        skilful=lambda obs: 2 * obs[:, 2:].sign(),
        ends=False,
    ),
    "DiscountingChain-bsuite": Twin(100, of_discounting_chain, nothing, starts=1, ends=False),
    "MemoryChain-bsuite": Twin(
        1000,
        lambda inner: {"context": inner.bit[..., None], "query": np.zeros_like(inner.bit)},
        remembered_bit,
        other={"total_perfect": 0, "total_regret": 0.0},
        skilful=repeat_what_is_shown,
        starts=2,
    ),
    "UmbrellaChain-bsuite": Twin(
        100,
        lambda inner: {"need_umbrella": inner.need, "has_umbrella": inner.has},
        need_and_umbrella,
        random_reward,
        other={"total_regret": 0},
        starts=4,
    ),
    "BernoulliBandit-misc": Twin(
        100, of_bernoulli_bandit, which_arm, lambda key, state: uniform(1)(key), starts=1, ends=False
    ),
    "GaussianBandit-misc": Twin(
        100, of_gaussian_bandit, uniform(1), lambda key, state: uniform(1)(key), starts=1, ends=False
    ),
    "Asterix-MinAtar": Twin(
        1000,
        of_asterix,
        nothing,
        spawned,
        other={"shot_timer": 0, "terminal": False},
        starts=1,
        anywhere=any_asterix,
    ),
    "Breakout-MinAtar": Twin(
        1000,
        of_breakout,
        lambda key: within(key, jax.random.choice(key, jnp.array([0, 1])), 2),
        other={"terminal": False},
        skilful=follow_ball,
        starts=2,
        anywhere=any_breakout,
    ),
    "Freeway-MinAtar": Twin(
        2500,
        of_freeway,
        drawn_cars,
        drawn_cars,
        other={"terminal": False},
        skilful=always_up,
        ends=False,
        anywhere=any_freeway,
    ),
    "SpaceInvaders-MinAtar": Twin(
        1000,
        of_space_invaders,
        nothing,
        other={"ramp_index": 0, "ramping": True, "terminal": False},
        skilful=aim_and_fire,
        starts=1,
        anywhere=any_space_invaders,
    ),
}


def to_gymnax(name: str, inner: Any, time: np.ndarray) -> Any:
    """Native states in gymnax's own type; leading axes are kept."""
    twin, state_type = TWINS[name], import_module(type(gymnax.make(name)[0]).__module__).EnvState
    other = {field: np.full(time.shape, x) for field, x in twin.other.items()}
    # Bandits count time in real numbers.
    counted = time.astype(np.float32) if name.endswith("Bandit-misc") else time
    return state_type(time=counted, **twin.to_gymnax(inner), **other)


def in_numpy(tree: Any) -> Any:
    """The tensors of a tree as NumPy arrays."""
    if isinstance(tree, Tensor):
        return tree.numpy()
    return type(tree)(*map(in_numpy, tree))
