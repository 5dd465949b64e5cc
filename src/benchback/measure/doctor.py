"""Whether this machine is fit to measure on: its properties, its noise, and what to change."""

import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchback import stats
from benchback.measure import machine

LEAST_FREE_BYTES = 2 << 30
LEAST_MEMORY_BYTES = 4 << 30
STILL = 0.02
"""Spread of the canary below which small differences can be found."""


def examine(seconds: float, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """The whole examination, with an A/A comparison that lasts `seconds`."""
    fingerprint = machine.fingerprint()
    before = machine.sample()
    first, second = pairs(seconds, progress)
    noise = machine.between(before, machine.sample())
    spread = {name: spread_of([x[name] for x in (*first, *second)]) for name in ("matmul_s", "memcpy_s")}
    same = stats.compare("A/A", [x["matmul_s"] for x in first], [x["matmul_s"] for x in second])
    found = {"machine": fingerprint, "noise": noise, "spread": spread, "aa": same, "caches": cache_settings()}
    needed = stats.minimum_detectable_effect(math.sqrt(2) * spread["matmul_s"], 5)
    found |= {"detectable_with_5_blocks": needed, "free_bytes": shutil.disk_usage(Path.cwd()).free}
    return found | {"advice": advice(found)}


def pairs(seconds: float, progress: Callable[[str, int, int], None]) -> tuple[list[Any], list[Any]]:
    """Canaries in pairs, each in a fresh process, in an order that alternates."""
    sides: tuple[list[Any], list[Any]] = ([], [])
    started = time.monotonic()
    while time.monotonic() - started < seconds or len(sides[0]) < 3:
        progress("A/A", int(time.monotonic() - started), int(seconds))
        order = (0, 1) if len(sides[0]) % 2 else (1, 0)
        for side in order:
            sides[side].append(machine.canary())
    return sides


def spread_of(values: Sequence[float]) -> float:
    """Relative spread, robust to outliers: 1.4826 x median absolute deviation / median."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(x - middle) for x in values) / middle


def cache_settings() -> dict[str, str]:
    """Compile caches that this shell has switched on; campaigns replace them by private ones."""
    names = ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XLA_FLAGS")
    return {name: os.environ[name] for name in names if name in os.environ}


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
            f"the same work varies by {found['spread']['matmul_s']:.1%} from process to process: plan more blocks; "
            f"with 5, differences below {found['detectable_with_5_blocks']:.1%} stay hidden"
        )
    if found["aa"].verdict in ("faster", "slower"):
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
