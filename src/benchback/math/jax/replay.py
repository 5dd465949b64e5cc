"""A ring buffer of transitions on the device, written in place if its buffers are donated.

Semantics, shared with torch: row `inserted % capacity` is written next, so the oldest rows are overwritten
first; rows are sampled uniformly, with replacement, from those written so far.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32

from benchback.math.records import Replay


def empty_replay(example: Any, capacity: int) -> Replay:
    """An empty replay for `capacity` transitions like `example`, a record of the arrays of one transition."""
    return Replay(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example))


def insert(replay: Replay, inserted: Int[Array, ""], rows: Any) -> Replay:
    """The replay after inserting rows `[N, ...]`, oldest first; `inserted` rows were inserted before.

    If there are more rows than its capacity, the last are kept.
    """
    capacity, number = _length(replay.data), _length(rows)
    kept = min(number, capacity)
    at = (inserted + (number - kept) + jnp.arange(kept)) % capacity

    def write(room: Any, new: Any) -> Any:
        new = new[number - kept :].astype(room.dtype)
        return room.at[at].set(new, mode="promise_in_bounds", unique_indices=True)

    return Replay(jax.tree.map(write, replay.data, rows))


def sample_indices(
    key: Key[Array, ""], replay: Replay, inserted: Int[Array, ""], shape: tuple[int, ...]
) -> Int[Array, "..."]:
    """Indices of rows written so far, sampled uniformly with replacement."""
    return draw_below(key, shape, jnp.minimum(inserted, _length(replay.data)))


def draw_below(key: Key[Array, ""], shape: tuple[int, ...], limit: Int[Array, ""]) -> Int[Array, "..."]:
    """Integers drawn uniformly from 0 to limit - 1.

    One draw where jax.random.randint has three, of which each is a loop of its own on a CPU.
    """
    return scale_bits(jax.random.bits(key, shape, jnp.uint32), limit)


def scale_bits(bits: UInt32[Array, "..."], limit: Int[Array, ""]) -> Int[Array, "..."]:
    """floor(bits x limit / 2^32) in 32-bit arithmetic; each value of random bits is met within limit / 2^32 as often.

    Multiplied in halves of 16 bits: (2^16 a + b) (2^16 c + d) = 2^32 a c + 2^16 (a d + b c) + b d.
    """
    limit_bits = limit.astype(jnp.uint32)
    a, b, c, d = bits >> 16, bits & 0xFFFF, limit_bits >> 16, limit_bits & 0xFFFF
    middle = a * d + (b * d >> 16)
    carry = (b * c + (middle & 0xFFFF)) >> 16
    return (a * c + (middle >> 16) + carry).astype(jnp.int32)


def gather(replay: Replay, index: Int[Array, "..."]) -> Any:
    """The rows with these indices."""
    return jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), replay.data)


def _length(tree: Any) -> int:
    return jax.tree.leaves(tree)[0].shape[0]
