"""What an iteration of a work asks of the machine at least: products of matrices, and bytes that go through memory.

Every side gets the same list and times it by itself after its training: how near a side is to what the machine can do
is then a fraction, for peers as for benchback. Operations between products, which all sides have, are in none of it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from benchback.algorithms.fields import Rows
from benchback.measure.flops import Sizes

FLOAT = 4
"""Bytes of a float32."""
MOVES_OF_WEIGHTS = 8
"""Of each weight in a gradient step of Adam: weight and two moments read and written, the gradient written and read."""
SCALARS = 4
"""Of a transition besides observation and action: reward, end, log-probability or next value, advantage."""


class Products(NamedTuple):
    """Products [rows, inputs] x [inputs, outputs] of an iteration."""

    count: float
    """How many of them; part of one where a step happens in some iterations only."""
    rows: int
    inputs: int
    outputs: int


def demand(config: Any, observation_size: int, action_size: int, agents: int = 1) -> dict[str, Any]:
    """JSON-able: products, operations in them, and bytes of one iteration of `agents` agents."""
    sizes = layers(config, observation_size, action_size)
    products = [*_products(config, sizes)]
    return {
        "products": [list(x) for x in products],
        "flops": agents * sum(2 * x.count * x.rows * x.inputs * x.outputs for x in products),
        "bytes": agents * _bytes(config, sizes, observation_size + action_size),
        "agents": agents,
    }


def layers(config: Any, observation_size: int, action_size: int) -> dict[str, Sizes]:
    """Network -> inputs and outputs of its layers."""
    if getattr(config, "recurrent", False):
        (width,) = config.hidden
        return {
            "encoder": [(observation_size, width)],
            "gru": [(width, 3 * width)],
            "memory": [(width, 3 * width)],
            "actor": [(width, width), (width, action_size)],
            "critic": [(width, width), (width, 1)],
        }
    ends = {"actor": (observation_size, action_size), "critic": (observation_size, 1)}
    if config.algorithm == "dqn":
        ends = {"critic": (observation_size, action_size)}
    if config.algorithm == "td3":
        critic = observation_size + action_size, 1
        ends = {"actor": ends["actor"], "critic1": critic, "critic2": critic}
    return {name: list(pairwise((first, *config.hidden, last))) for name, (first, last) in ends.items()}


def _products(config: Any, sizes: Mapping[str, Sizes]) -> Iterator[Products]:
    rows_of = dict(config.network_rows)
    steps = config.updates_per_iteration
    batch = config.gradient_rows // steps
    acting = {"critic"} if config.algorithm == "dqn" else {"actor", "encoder", "gru"}
    if "gru" in rows_of:
        yield from _recurrent(config, sizes["memory"][0])
    for name, rows in rows_of.items():
        acted = min(rows.forward, config.batch_size) if name in acting else 0
        rest = rows.forward - acted
        yield from _forward(sizes[name], acted / config.num_envs, config.num_envs)
        # Values of a rollout are one call for all its rows; targets of a gradient step one call for a minibatch.
        calls = rest / batch if config.algorithm in ("dqn", "td3") else 1
        yield from _forward(sizes[name], calls if rest else 0, batch if calls != 1 else rest)
        yield from _backward(sizes[name], rows, batch)


def _forward(sizes: Sizes, count: float, rows: int) -> Iterator[Products]:
    if count:
        yield from (Products(count, rows, i, o) for i, o in sizes)


def _backward(sizes: Sizes, rows: Rows, batch: int) -> Iterator[Products]:
    own, through = rows.gradient / batch, rows.input_gradient / batch
    yield from _forward(sizes, own + through, batch)
    for layer, (i, o) in enumerate(sizes):
        yield Products(own, i, batch, o)
        inputs = own + through if layer or rows.follows else through
        if inputs:
            yield Products(inputs, batch, o, i)


def _recurrent(config: Any, size: Any) -> Iterator[Products]:
    """Of the memory's kernel: one product after another, but for its gradient, which is one for all time steps."""
    i, o = size
    sequences = config.num_envs // config.num_minibatches
    in_time = config.num_steps * config.updates_per_iteration
    yield Products(config.num_steps, config.num_envs, i, o)
    yield Products(in_time, sequences, i, o)
    yield Products(in_time, sequences, o, i)
    yield Products(config.updates_per_iteration, i, sequences * config.num_steps, o)


def _bytes(config: Any, sizes: Mapping[str, Sizes], row: int) -> float:
    """Through memory, as if nothing stayed in a cache: transitions, weights with their moments, hidden layers."""
    transition = FLOAT * (row + SCALARS)
    moved = transition * (config.batch_size + config.gradient_rows)
    for name, rows in config.network_rows.items():
        weights = sum(i * o + o for i, o in sizes[name])
        steps = rows.gradient * config.updates_per_iteration / config.gradient_rows
        hidden = sum(o for _, o in sizes[name])
        # Written on the way forward, and in gradient steps read on the way back.
        written = rows.forward + 2 * (rows.gradient + rows.input_gradient)
        moved += FLOAT * (MOVES_OF_WEIGHTS * steps * weights + hidden * written)
    return moved
