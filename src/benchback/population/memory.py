"""Whether a population fits in memory, told from shapes before anything is compiled."""

from dataclasses import dataclass
from typing import Any

import jax
import psutil

from benchback.agent import Agent, Backend
from benchback.errors import InputError
from benchback.population.members import view

SAVED_COPIES = 3
"""Copies of all states while a checkpoint is written: stacked by name, and twice as the bytes of the file."""
BATCH_COPIES = 3
"""Copies of a group's batch while it is learnt from: as collected, with advantages, and shuffled."""


@dataclass(frozen=True)
class Need:
    """Bytes that a population takes where its states are."""

    each: int
    """Of a member, with its copies in a checkpoint."""
    group: int
    """Of the batches of a group, once."""

    def total(self, size: int) -> int:
        """Of `size` members."""
        return size * self.each + self.group


def memory_need(agent: Agent, backend: Backend, *, unit: str, group: int) -> Need:
    """What members of the agent take, told from shapes."""
    single = view(agent, backend)
    state = jax.eval_shape(single.init, agent.key(0), agent.hyper)
    batch = _bytes(jax.eval_shape(single.rollout, state)[1])
    # In unit phase, the batches of all members wait for the update.
    return Need(_available()[1] * _bytes(state) + (batch if unit == "phase" else 0), BATCH_COPIES * group * batch)


def check_memory(agent: Agent, backend: Backend, *, unit: str, size: int, group: int) -> None:
    """Raise an InputError with the bytes of a member and the largest population that fits, unless `size` members do."""
    need, available = memory_need(agent, backend, unit=unit, group=group), _available()[0]
    each, largest = need.each, (available - need.group) // need.each
    if size > largest:
        fitting = f"at most {largest} do" if largest > 0 else "not even one does"
        remedy = "choose fewer --seeds or --population, or smaller networks, batches or replays"
        raise InputError(
            f"{size} members do not fit into the {available / 1e9:.3g} GB that are free: each takes {each:,} bytes, "
            f"with its copies in a checkpoint, so {fitting}; {remedy}"
        )


def _available() -> tuple[int, int]:
    """Free bytes where the states are, and how many copies of them are made there."""
    told = jax.local_devices()[0].memory_stats()
    if told and "bytes_limit" in told:
        return told["bytes_limit"] - told["bytes_in_use"], 1
    return psutil.virtual_memory().available, 1 + SAVED_COPIES


def _bytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
