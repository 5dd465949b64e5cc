"""Whether this machine can measure: what it can detect, its properties, its noise, and what to change."""

import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchback import stats
from benchback.measure import canary, machine

LEAST_FREE_BYTES = 2 << 30
LEAST_MEMORY_BYTES = 4 << 30
ROBUST = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""
STILL = 0.02
"""Spread of the canary below which small differences can be found."""
FEWEST_BLOCKS, MOST_BLOCKS = 5, 30
"""Blocks with which a comparison begins, and after which it ends whatever its precision."""
ROUNDS = 10
"""Pairs of turns in a block, from which its one ratio is made."""
FEWEST_PAIRS = 5
"""Pairs of which the lowest and the highest can be left out."""
FINEST, COARSEST = 0.001, 1.0
"""Detectable differences are given within these limits: the canary resolves none below, and none above is of use."""


@dataclass(frozen=True)
class Ability:
    """The smallest difference (a ratio - 1) that so many blocks detect with 80 % power."""

    detectable: float
    blocks: int


def trimmed_estimate(log_ratio: Sequence[float]) -> stats.Estimate:
    """The mean without the lowest and highest fifth, with its error and freedom (Yuen 1974).

    A pair in which one turn was interrupted says nothing about the work. With h of n values kept and the others
    replaced by the nearest kept one, error = s_w sqrt((n - 1) / (h (h - 1))), freedom = h - 1.
    """
    ordered, cut = np.sort(log_ratio), len(log_ratio) // 5
    middle = ordered[cut : len(ordered) - cut]
    kept = len(middle)
    spread = float(np.clip(ordered, middle[0], middle[-1]).std(ddof=1))
    error = spread * math.sqrt((len(ordered) - 1) / (kept * (kept - 1)))
    return stats.Estimate(float(middle.mean()), error, float(kept - 1))


def ability(found: stats.Estimate, pairs: int) -> Ability:
    """What blocks of ROUNDS pairs detect, where `pairs` of them have given this estimate.

    With the fewest blocks that detect differences of the margin of equivalence, or with the most there may be.
    """
    spread = found.error * math.sqrt(pairs / ROUNDS)
    effects = {n: stats.minimum_detectable_effect(spread, n) for n in range(FEWEST_BLOCKS, MOST_BLOCKS + 1)}
    blocks = next((n for n, effect in effects.items() if effect <= stats.MARGIN), MOST_BLOCKS)
    return Ability(min(max(effects[blocks], FINEST), COARSEST), blocks)


def examine(seconds: float, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """The whole examination, with an A/A comparison that lasts `seconds`."""
    fingerprint = machine.fingerprint()
    before = machine.sample()
    first, second = pairs(seconds, progress)
    noise = machine.between(before, machine.sample())
    spread = {name: spread_of([x[name] for x in (*first, *second)]) for name in ("matmul_s", "memcpy_s")}
    same = trimmed_estimate([math.log(a["matmul_s"] / b["matmul_s"]) for a, b in zip(first, second, strict=True)])
    low, high = stats.interval(same)
    found = {"machine": fingerprint, "noise": noise, "spread": spread, "caches": cache_settings()}
    found |= {"aa": {"ratio": math.exp(same.mean), "low": low, "high": high, "pairs": len(first)}}
    found |= asdict(ability(same, len(first))) | {"free_bytes": shutil.disk_usage(Path.cwd()).free}
    return found | {"obstacles": obstacles(found), "advice": advice(found)}


def pairs(seconds: float, progress: Callable[[str, int, int], None]) -> tuple[list[Any], list[Any]]:
    """Canaries in pairs, each in a fresh process, in an order that alternates."""
    sides: tuple[list[Any], list[Any]] = ([], [])
    started = time.monotonic()
    while time.monotonic() - started < seconds or len(sides[0]) < FEWEST_PAIRS:
        progress("A/A", int(time.monotonic() - started), int(seconds))
        order = (0, 1) if len(sides[0]) % 2 else (1, 0)
        for side in order:
            sides[side].append(canary.run())
    return sides


def spread_of(values: Sequence[float]) -> float:
    """Relative spread, robust to outliers: 1.4826 x median absolute deviation / median."""
    middle = statistics.median(values)
    return ROBUST * statistics.median(abs(x - middle) for x in values) / middle


def cache_settings() -> dict[str, str]:
    """Compile caches that this shell has switched on; campaigns replace them by private ones."""
    names = ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XLA_FLAGS")
    return {name: os.environ[name] for name in names if name in os.environ}


def obstacles(found: Mapping[str, Any]) -> list[str]:
    """Why this machine cannot measure; empty if it can."""
    lines = []
    if found["detectable"] > stats.MARGIN:
        lines.append(f"even {found['blocks']} blocks only find differences from {found['detectable']:.1%} on")
    if copies_differ(found["aa"]):
        lines.append(f"two copies of the same work differ by {abs(found['aa']['ratio'] - 1):.1%}")
    if found["free_bytes"] < LEAST_FREE_BYTES:
        lines.append(f"only {found['free_bytes'] / 1e9:.1f} GB are free here")
    return lines


def copies_differ(same: Mapping[str, float]) -> bool:
    """Whether the A/A comparison finds a difference that matters."""
    return not same["low"] <= 1 <= same["high"] and abs(math.log(same["ratio"])) > math.log1p(stats.MARGIN)


def advice(found: Mapping[str, Any]) -> list[str]:
    """What to change, most important first; empty if nothing needs to be."""
    facts, noise = found["machine"], found["noise"]
    lines = []
    if noise.get("steal", 0.0) > machine.LIMITS["steal"]:
        lines.append(f"the hypervisor takes {noise['steal']:.1%} of the processor: use a machine of your own, or wait")
    if noise.get("other_load", 0.0) > machine.LIMITS["other_load"]:
        lines.append(f"other programs keep {noise['other_load']:.2f} processors busy: close them")
    if noise.get("throttled", 0.0) > machine.LIMITS["throttled"]:
        lines.append("a quota stops this group of processes: raise its CPU limit")
    if facts.get("governor") not in (None, "performance"):
        lines.append(f"the processor's governor is {facts['governor']}: set it to performance")
    if found["spread"]["matmul_s"] > STILL:
        lines.append(
            f"the same work varies by {found['spread']['matmul_s']:.1%} from process to process: use mains power, "
            "disable turbo, wait until other work has ended"
        )
    if copies_differ(found["aa"]):
        lines.append("two copies of the same work came out different: measure again before believing any figure")
    if facts["cpus_allowed"] < 2:
        lines.append("one processor must serve coordinator and worker: allow at least two")
    if facts["memory_bytes"] < LEAST_MEMORY_BYTES:
        lines.append("less than 4 GB of memory: large models will not fit")
    if found["free_bytes"] < LEAST_FREE_BYTES:
        lines.append(f"{found['free_bytes'] / 1e9:.1f} GB free here: compile caches and stores need at least 2")
    if "XLA_FLAGS" in found["caches"]:
        lines.append("XLA_FLAGS is set in this shell; campaigns do not pass it on, other commands do")
    return lines
