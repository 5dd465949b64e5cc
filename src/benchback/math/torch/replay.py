"""A ring buffer of transitions in preallocated tensors, written in place.

Semantics, shared with JAX: row `inserted % capacity` is written next, so the oldest rows are overwritten
first; rows are sampled uniformly, with replacement, from those written so far.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from benchback.math.records import Replay


def empty_replay(example: Any, capacity: int) -> Replay:
    """An empty replay for `capacity` transitions like `example`, a record of the tensors of one transition."""
    room = (torch.zeros((capacity, *x.shape), dtype=x.dtype, device=x.device) for x in example)
    return Replay(type(example)(*room))


def insert(replay: Replay, inserted: int, rows: Any) -> Replay:
    """The replay after inserting rows `[N, ...]`, oldest first; `inserted` rows were inserted before.

    If there are more rows than its capacity, the last are kept. The count is a Python int, so reading it does not
    synchronise with the device.
    """
    capacity, number = len(replay.data[0]), len(rows[0])
    kept = min(number, capacity)
    at = (inserted + number - kept) % capacity
    before_end = min(kept, capacity - at)
    for room, new in zip(replay.data, rows, strict=True):
        new = new[number - kept :]
        room[at : at + before_end].copy_(new[:before_end])
        room[: kept - before_end].copy_(new[before_end:])
    return replay


def sample_indices(
    generator: torch.Generator, replay: Replay, inserted: int, shape: tuple[int, ...]
) -> Int[Tensor, "..."]:
    """Indices of rows written so far, sampled uniformly with replacement."""
    size = min(inserted, len(replay.data[0]))
    return torch.randint(size, shape, generator=generator, device=generator.device)


def gather(replay: Replay, index: Int[Tensor, "B"]) -> Any:
    """The rows with these indices."""
    return type(replay.data)(*(x.index_select(0, index) for x in replay.data))
