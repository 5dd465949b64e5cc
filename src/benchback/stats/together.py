"""Break-even of many agents in one program: from how many on it is done before as many runs of one agent each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Together:
    """From how many agents on one program is done first."""

    agents: int | None
    """It is done first with so many and with any more up to `most`; None if it is not even with those."""
    most: int
    """Agents up to which it was measured."""


def together_break_even(together_s: Mapping[int, float], alone_s: float, at_once: int = 1, least: int = 1) -> Together:
    """Against runs of one agent, of which `at_once` run at a time and each takes `alone_s`, without slowing each other.

    `together_s` has the seconds of one program by its number of agents, in between they are interpolated linearly:
    T(n) <= ceil(n / at_once) alone_s for this n, which is at least `least`, and all larger ones.
    """
    if not together_s or min(together_s) < 1 or at_once < 1 or not alone_s > 0:
        raise ValueError(f"no break-even of {dict(together_s)} with runs of {alone_s} s, {at_once} at once")
    known = sorted(together_s)
    agents = np.arange(min(max(known[0], least), known[-1]), known[-1] + 1)
    one_program = np.interp(agents, known, [together_s[n] for n in known])
    behind = np.flatnonzero(one_program > np.ceil(agents / at_once) * alone_s)
    if not len(behind):
        return Together(int(agents[0]), known[-1])
    first = int(behind[-1]) + 1
    return Together(int(agents[first]) if first < len(agents) else None, known[-1])


def per_added_agent(one_bytes: float, many_bytes: float, agents: int) -> float:
    """Bytes that each agent beyond the first adds to a process."""
    return (many_bytes - one_bytes) / (agents - 1) if agents > 1 else math.nan
