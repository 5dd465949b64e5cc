"""The replay: one meaning in both twins, exact at its end, uniform, and never copied."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from representatives import representatives

from benchback import envs, registry
from benchback.agent import start
from benchback.algorithms.dqn.config import Config
from benchback.backends.torch_state import copy
from benchback.math import jax as jax_math
from benchback.math import torch as torch_math
from benchback.math.jax.replay import scale_bits

JAX_FAMILY = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]


class Record(NamedTuple):
    """A transition in all types that environments have."""

    obs: Any
    action: Any
    terminated: Any


def rows(number: int, start: int) -> Record:
    """`number` rows that tell when they were inserted, counted from `start`."""
    time = np.arange(start, start + number)
    return Record(np.stack([time, -time], -1).astype(np.float32), time.astype(np.int32), time % 3 == 0)


EXAMPLE = Record(*(x[0] for x in rows(1, 0)))


class Twin(NamedTuple):
    """One family's replay, on NumPy arrays at its border."""

    math: Any
    place: Any
    read: Any
    random: Any
    counter: Any
    """The number of rows ever inserted, as the family counts: on the device, or known to Python."""

    def empty(self, capacity: int) -> Any:
        return self.math.empty_replay(Record(*map(self.place, EXAMPLE)), capacity)

    def insert(self, replay: Any, inserted: int, record: Record) -> Any:
        return self.math.insert(replay, self.counter(inserted), Record(*map(self.place, record)))

    def held(self, replay: Any) -> Record:
        return Record(*map(self.read, replay.data))


TWINS = {
    "jax": Twin(jax_math, jnp.asarray, np.asarray, jax.random.key, jnp.int32),
    "torch": Twin(torch_math, torch.as_tensor, copy, lambda seed: torch.Generator().manual_seed(seed), int),
}


@pytest.mark.parametrize(
    "sizes",
    [
        (3, 3, 3, 3, 3, 3, 3, 3),  # does not divide the capacity: every way to cross the end
        (7, 7),
        (5, 9, 1),  # more than fit, in the middle
        (6, 23, 2, 7),  # several times what fits
    ],
)
@pytest.mark.parametrize("twin", TWINS)
def test_the_last_rows_are_kept_each_in_its_place(twin: str, sizes: tuple[int, ...]) -> None:
    capacity, inserted = 7, 0
    replay = TWINS[twin].empty(capacity)
    for size in sizes:
        replay = TWINS[twin].insert(replay, inserted, rows(size, inserted))
        inserted += size
        held = TWINS[twin].held(replay)
        for time in range(max(0, inserted - capacity), inserted):
            for found, expected in zip(held, rows(1, time), strict=True):
                np.testing.assert_array_equal(found[time % capacity], expected[0])


def test_twins_hold_the_same() -> None:
    held = []
    for twin in TWINS.values():
        replay, inserted = twin.empty(11), 0
        for i in range(9):
            size = 3 if i % 2 else 9
            replay = twin.insert(replay, inserted, rows(size, 100 * i))
            inserted += size
        held.append(twin.held(replay))
    for ours, theirs in zip(*held, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("twin", TWINS)
def test_a_replay_keeps_the_types_of_its_example(twin: str) -> None:
    replay = TWINS[twin].insert(TWINS[twin].empty(3), 0, rows(2, 0)._replace(action=np.array([4, 5], np.uint8)))
    held = TWINS[twin].held(replay)
    assert [x.dtype for x in held] == [np.float32, np.int32, np.bool_]
    assert held.action[:2].tolist() == [4, 5]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("inserted", "written"), [(5, 5), (8, 8), (19, 8)])
def test_rows_are_drawn_uniformly_from_those_written(twin: str, inserted: int, written: int) -> None:
    math = TWINS[twin].math
    replay = TWINS[twin].insert(TWINS[twin].empty(8), 0, rows(inserted, 0))
    random, counter = TWINS[twin].random(3), TWINS[twin].counter(inserted)
    index = TWINS[twin].read(math.sample_indices(random, replay, counter, (4, 2000)))
    count = np.bincount(index.ravel(), minlength=8)
    assert count[written:].sum() == 0
    # Chi-square with at most 7 degrees of freedom: 30 is exceeded once in ten thousand.
    assert ((count[:written] - 8000 / written) ** 2 / (8000 / written)).sum() < 30
    assert (index[0] != index[1]).any()


@pytest.mark.parametrize("limit", [1, 3, 65_535, 65_536, 65_537, 1_000_000, 2**31 - 1])
def test_bits_are_scaled_as_in_64_bit_arithmetic(limit: int) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 10_000, np.uint64)
    bits[:4] = 0, 2**16 - 1, 2**31, 2**32 - 1
    scaled = scale_bits(jnp.asarray(bits.astype(np.uint32)), jnp.asarray(limit))
    np.testing.assert_array_equal(scaled, bits * np.uint64(limit) >> np.uint64(32))


@pytest.mark.parametrize("twin", TWINS)
def test_what_is_replayed_are_the_rows_asked_for(twin: str) -> None:
    replay = TWINS[twin].insert(TWINS[twin].empty(8), 0, rows(8, 0))
    index = np.array([7, 0, 0, 3])
    for found, expected in zip(TWINS[twin].math.gather(replay, TWINS[twin].place(index)), rows(8, 0), strict=True):
        np.testing.assert_array_equal(TWINS[twin].read(found), expected[index])


def test_torch_writes_where_the_rows_lie() -> None:
    replay = TWINS["torch"].empty(8)
    before = [x.data_ptr() for x in replay.data]
    for i in range(3):
        replay = TWINS["torch"].insert(replay, 5 * i, rows(5, 5 * i))
    assert [x.data_ptr() for x in replay.data] == before


# No copy of the buffer, neither by a step nor by a program of several: what a program needs beside the buffer is
# asked of the compiler. Time follows memory: what is not written cannot take time.

CAPACITY = 200_000
FEW_BYTES = 200_000
"""More than all the rest of such an agent takes, and a fiftieth of its replay."""


def compiled(function: Any, *arguments: Any) -> Any:
    """What the compiler says of the memory of a program that may consume its first argument."""
    return jax.jit(function, donate_argnums=0).lower(*arguments).compile().memory_analysis()


def test_inserting_rows_takes_no_room() -> None:
    replay = TWINS["jax"].empty(CAPACITY)
    memory = compiled(jax_math.insert, replay, jnp.int32(0), Record(*map(jnp.asarray, rows(10, 0))))
    assert memory.alias_size_in_bytes == CAPACITY * 13
    assert memory.temp_size_in_bytes < FEW_BYTES


@cache
def agent_of(name: str) -> Any:
    make, backend = registry.load("dqn", name)
    config = Config(num_envs=2, replay_capacity=CAPACITY, learning_starts=6, minibatch_size=4, hidden_sizes=(8,))
    agent = make(config, envs.make("gymnax/CartPole-v1", 2, "jax"))
    return agent if name != "nnx" else backend.modes["split"](backend.units["chunk"](agent, 3))


@pytest.mark.parametrize("name", representatives(JAX_FAMILY))
def test_training_takes_no_room_for_another_replay(name: str) -> None:
    """Also where iterations are fused, gradient steps are conditional and rows are read where they are written."""
    agent = agent_of(name)
    state = start(agent, 0)
    if name == "nnx":
        memory = agent.iterate.lower(state).compile().memory_analysis()
    else:
        _, backend = registry.load("dqn", name)
        memory = compiled(backend.units["chunk"](agent, 3).iterate, state)
    assert memory.alias_size_in_bytes > CAPACITY * 41
    assert memory.temp_size_in_bytes < FEW_BYTES


def test_a_copy_would_be_noticed() -> None:
    """The same measurement on a program that hands the replay to somebody who keeps it."""

    def keeping(state: Any) -> Any:
        following, batch = agent_of("purejax").rollout(state)
        following, _ = agent_of("purejax").update(following, batch)
        return following, state.replay

    memory = compiled(keeping, start(agent_of("purejax"), 0))
    needed = memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    assert needed > CAPACITY * 41


def test_torch_trains_without_another_replay() -> None:
    make, _ = registry.load("dqn", "pytorch")
    config = Config(num_envs=2, replay_capacity=5, learning_starts=6, minibatch_size=4, hidden_sizes=(8,))
    agent = make(config, envs.make("torch/CartPole-v1", 2, "torch"))
    state = start(agent, 0)
    before = [x.data_ptr() for x in state.replay.data]
    for _ in range(6):
        state, _ = agent.update(*agent.rollout(state))
    assert state.replay_inserted == 12
    assert [x.data_ptr() for x in state.replay.data] == before
