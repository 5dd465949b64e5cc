"""A ring buffer of transitions on the device, written in place if its buffers are donated.

Semantics, shared with torch: row `inserted % capacity` is written next, so the oldest rows are overwritten
first; rows are sampled uniformly, with replacement, from those written so far.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

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
    return jax.random.randint(key, shape, 0, jnp.minimum(inserted, _length(replay.data)))


def gather(replay: Replay, index: Int[Array, "..."]) -> Any:
    """The rows with these indices."""
    return jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), replay.data)


def _length(tree: Any) -> int:
    return jax.tree.leaves(tree)[0].shape[0]
