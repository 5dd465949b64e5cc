"""Minibatches without a sort.

`jax.random.permutation` sorts, which on a CPU costs more than the whole update of a small network. A shuffle
needs only a keyed bijection on {0 .. n-1}; a short Feistel network is one, and it vectorises.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32

from benchback.math.jax.sharding import split_rows

ROUNDS, ROUNDS_OF_SMALL = 6, 12
SMALL_BITS = 6
"""Few bits mix slowly: with halves of two bits, 6 rounds leave neighbours among 12 rows adjacent 4 % too often."""


def rounds(size: int) -> int:
    """Number of rounds after which distances between neighbours are those of a random permutation."""
    return ROUNDS_OF_SMALL if _bits(size) <= SMALL_BITS else ROUNDS


def _bits(size: int) -> int:
    return max(2, (size - 1).bit_length())


def permutation(key: Key[Array, ""], size: int) -> Int[Array, "{size}"]:
    """A pseudo-random permutation of 0 .. size-1."""
    return _permutation(jax.random.bits(key, (rounds(size),), jnp.uint32), size)


def _permutation(round_key: UInt32[Array, "R"], size: int) -> Int[Array, "{size}"]:
    """The permutation determined by the keys of all rounds.

    An alternating Feistel network on the smallest power of two that holds `size`; where size is not a
    power of two, values outside are mapped again until they are inside (cycle walking), which
    keeps it a bijection.
    """
    bits = _bits(size)
    index = _feistel(jnp.arange(size, dtype=jnp.uint32), round_key, bits)
    if size != 1 << bits:
        index = jax.lax.while_loop(
            lambda i: jnp.any(i >= size),
            lambda i: jnp.where(i >= size, _feistel(i, round_key, bits), i),
            index,
        )
    return index.astype(jnp.int32)


def _feistel(x: UInt32[Array, "N"], round_key: UInt32[Array, "R"], bits: int) -> UInt32[Array, "N"]:
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1
    low, high = x & low_mask, x >> low_bits
    for i in range(len(round_key)):
        if i % 2:
            low = low ^ (_scramble(high, round_key[i]) & low_mask)
        else:
            high = high ^ (_scramble(low, round_key[i]) & high_mask)
    return (high << low_bits) | low


def _scramble(x: UInt32[Array, "N"], key: UInt32[Array, ""]) -> UInt32[Array, "N"]:
    x = (x ^ key) * jnp.uint32(0x9E3779B1)
    x = (x ^ (x >> 15)) * jnp.uint32(0x85EBCA77)
    return x ^ (x >> 13) ^ (key >> 7)


def minibatch_indices(
    key: Key[Array, ""], *, batch_size: int, num_epochs: int, num_minibatches: int
) -> Int[Array, "updates minibatch"]:
    """Row indices of each gradient step: every row once per epoch, in a new random order."""
    round_key = jax.random.bits(key, (num_epochs, rounds(batch_size)), jnp.uint32)
    order = jax.vmap(lambda keys: _permutation(keys, batch_size))(round_key)
    return order.reshape(num_epochs * num_minibatches, batch_size // num_minibatches)


def take(data: Any, index: Int[Array, "B"]) -> Any:
    """The given rows of every array in `data`."""
    rows = jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds", unique_indices=True), data)
    return split_rows(rows)
