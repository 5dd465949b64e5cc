"""How many members run side by side: what the second-level cache holds, or what is measured to be fastest.

Too few, and each operation is a call on a small array; too many, and parameters, moments and activations of a group
leave the cache between two uses. Every candidate is a program of its own, so measuring costs as many compilations.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax

from benchback.agent import Agent, Backend, Role, start
from benchback.population.members import execute, role_of, view

USED_OFTEN = (Role.NETWORK, Role.TARGET, Role.OPTIMISER)
"""Roles of what every gradient step reads or writes whole; a replay is hardly touched."""
TYPICAL_CACHE_BYTES = 2**20
LARGEST = 64


@dataclass(frozen=True)
class Choice:
    """A group size, and where it comes from."""

    group: int
    seconds_per_member: dict[int, float]
    """Group size -> seconds that an iteration takes for one member; empty if nothing was measured."""
    bytes_per_member: int
    """Parameters, target parameters and moments."""

    def __str__(self) -> str:
        """The choice in one line, for a log."""
        if not self.seconds_per_member:
            return f"groups of {self.group}: each member uses {self.bytes_per_member / 1e3:.0f} kB at every step"
        measured = ", ".join(f"{group}: {1e3 * x:.2f} ms" for group, x in sorted(self.seconds_per_member.items()))
        return f"groups of {self.group}: an iteration of one member takes, by group size, {measured}"


def likely_group(agent: Agent, backend: Backend, size: int) -> Choice:
    """The largest power of two whose members fit into the second-level cache, at most `size`; nothing is run."""
    state = jax.eval_shape(view(agent, backend).init, agent.key(0), agent.hyper)
    used = member_bytes(agent, state)
    fitting = max(1, min(cache_bytes() // used, LARGEST))
    return Choice(min(size, 1 << (fitting.bit_length() - 1)), {}, used)


def choose_group(agent: Agent, backend: Backend, mode: str, size: int, *, seconds: float = 1.0) -> Choice:
    """The fastest of the likely group size, half and twice of it, each measured for `seconds` after compiling.

    A population of one group is timed for an iteration at a time, in turns. On the processor it was written on the
    measurement takes three compilations of about 10 s each.
    """
    likely = likely_group(agent, backend, size)
    candidates = sorted({max(1, likely.group // 2), likely.group, min(size, 2 * likely.group)})
    programs = {g: execute(agent, backend, mode, "iteration", 1, size=g, group=g) for g in candidates}
    states = {group: _advance(program, start(program, 0)) for group, program in programs.items()}
    durations_s: dict[int, list[float]] = {group: [] for group in candidates}
    while sum(map(sum, durations_s.values())) < seconds * len(candidates):
        for group, program in programs.items():
            started = time.perf_counter()
            states[group] = _advance(program, states[group])
            durations_s[group].append(time.perf_counter() - started)
    found = {group: median(durations) / group for group, durations in durations_s.items()}
    return Choice(min(found, key=found.__getitem__), found, likely.bytes_per_member)


def _advance(program: Agent, state: Any) -> Any:
    """The state after an iteration, computed."""
    assert program.iterate is not None
    return jax.block_until_ready(program.iterate(state))[0]


def member_bytes(agent: Agent, state: Any) -> int:
    """Bytes of one agent that every gradient step uses."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return sum(x.size * x.dtype.itemsize for path, x in leaves if role_of(agent, path) in USED_OFTEN)


def cache_bytes() -> int:
    """Size of the processor's second-level cache; a typical one where the system does not tell."""
    told = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    if not told.exists():
        return TYPICAL_CACHE_BYTES
    size = told.read_text().strip()
    return int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]]
