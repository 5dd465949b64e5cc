"""How many times as fast as each peer benchback is meant to be, and what became of it.

A target is met by the faster of our sides of a family. It counts as met, too, where that side runs at 85 % of what
the machine can do at most: nothing that computes the same could be much faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

FAMILIES = {"JAX": ("purejax", "purejax_reordered"), "PyTorch": ("pytorch", "pytorch_native")}
NEAR_LIMIT = 0.85
"""Share of the limit at which a target counts as met."""


@dataclass(frozen=True)
class Target:
    """A ratio to reach."""

    workload: str
    family: str
    peer: str
    ratio: float


TARGETS = (
    *(Target("A", "JAX", peer, 1.8) for peer in ("purejax_style", "rejax")),
    *(Target(work, "JAX", peer, 1.5) for work in "BC" for peer in ("purejax_style", "rejax")),
    Target("D", "JAX", "purejax_style_dqn", 1.3),
    Target("D", "JAX", "rejax_dqn", 2.0),
    Target("E", "JAX", "rejax_td3", 2.0),
    Target("F", "JAX", "brax_ppo", 1.3),
    *(Target(work, "PyTorch", "stable_baselines3", 2.0) for work in "ABG"),
    Target("D", "PyTorch", "stable_baselines3_dqn", 2.0),
    Target("E", "PyTorch", "stable_baselines3_td3", 2.0),
    Target("H", "PyTorch", "sb3_contrib", 2.0),
)


@dataclass(frozen=True)
class Reached:
    """What became of a target."""

    target: Target
    side: str
    """The faster of our sides."""
    ratio: dict[str, Any]
    """{ratio, low, high, blocks} of its speed over the peer's."""
    limit: float | None
    """Its share of the limit."""

    @property
    def verdict(self) -> Literal["met", "at the limit", "not met"]:
        """Whether it was reached."""
        if self.ratio["ratio"] >= self.target.ratio:
            return "met"
        return "at the limit" if self.limit is not None and self.limit >= NEAR_LIMIT else "not met"


def reached(lines: Sequence[dict[str, Any]], targets: Sequence[Target] = TARGETS) -> list[Reached]:
    """The targets whose sides were measured, from the lines of `summarise`."""
    by_place = {(line["workload"], line["side"]): line for line in lines}
    found = []
    for target in targets:
        ratios = by_place.get((target.workload, target.peer), {"ratios": {}})["ratios"]
        able = [side for side in FAMILIES[target.family] if side in ratios]
        if able:
            side = max(able, key=lambda name: ratios[name]["ratio"])
            limit = by_place[target.workload, side]["limit"]
            found.append(Reached(target, side, ratios[side], limit))
    return found
