"""From a study to a schedule: which run comes when, how long it will take, and when there are enough.

The schedule is a function of study and seed, so that it can be stored before the first run and continued by anyone.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from benchback import registry, stats
from benchback.errors import InputError
from benchback.measure.record import Cell, Slot
from benchback.measure.study import Study
from benchback.run import Run

SEED_STEP = 0x9E3779B1
"""Step between seeds: odd, so multiples are distinct modulo 2**32; near 2**32 / golden ratio, so they are far apart."""


def schedule(study: Study, seed: int) -> tuple[list[Cell], list[Slot]]:
    """The cells of a campaign and its runs in order.

    protocol: a block is one run of every variant of a group, back to back, in a random order that the next block
    reverses; blocks of different groups are shuffled, those of one group keep their order. One group also has the
    A/A twin of its cheapest cell. original: the published list from first to last, `repeats` times, without a twin;
    entry i of the list has the slots whose order is i modulo its length.
    """
    if seed < 0:
        raise InputError(f"seed={seed} must not be negative")
    if study.order == "original":
        return list(study.cells), list(_original(study, seed))
    cells = [*study.cells]
    if study.aa:
        cells.append(replace(min(cells, key=seconds_per_run), twin=True))
    groups = list(dict.fromkeys(cell.group for cell in cells))
    turns = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(groups)), study.min_blocks))
    slots: list[Slot] = []
    done: Counter[str] = Counter()
    for group in (groups[turn] for turn in turns):
        slots += _block(cells, group, done[group], seed, len(slots))
        done[group] += 1
    return cells, slots


def extend(
    cells: Sequence[Cell], slots: Sequence[Slot], group: str, blocks: int, seed: int, stratum: int = 0
) -> list[Slot]:
    """`blocks` more blocks of one group, to be run after all of `slots`; equal to those of a longer schedule.

    A stratum in which the group has no blocks yet starts from block 0.
    """
    members = {cell.id for cell in cells if cell.group == group}
    if not members:
        raise ValueError(f"no cell belongs to group {group}")
    first = 1 + max((s.block for s in slots if s.cell in members and s.stratum == stratum), default=-1)
    order = 1 + max((s.order for s in slots), default=-1)
    more: list[Slot] = []
    for block in range(first, first + blocks):
        more += _block(cells, group, block, seed, order + len(more), stratum)
    return more


def again(study: Study, slots: Sequence[Slot], seed: int, stratum: int) -> list[Slot]:
    """The whole schedule again for a new stratum, in the study's own order, to be run after all of `slots`."""
    order = 1 + max((s.order for s in slots), default=-1)
    return [replace(slot, order=order + slot.order, stratum=stratum) for slot in schedule(study, seed)[1]]


def block_seed(seed: int, block: int) -> int:
    """The seed that all variants of a block share: distinct for every block number of a campaign."""
    start = int(np.random.default_rng([seed, 1]).integers(2**32))
    return (start + block * SEED_STEP) % 2**32


def _block(cells: Sequence[Cell], group: str, block: int, seed: int, order: int, stratum: int = 0) -> list[Slot]:
    """One block; its order depends only on the arguments, and an odd block reverses the even one before it."""
    members = [cell.id for cell in cells if cell.group == group]
    turn = [members[i] for i in np.random.default_rng([seed, int(group, 16), block // 2]).permutation(len(members))]
    if block % 2:
        turn.reverse()
    shared = block_seed(seed, block)
    return [Slot(cell, block, shared, order + i, stratum) for i, cell in enumerate(turn)]


def _original(study: Study, seed: int) -> Iterator[Slot]:
    """The list as published. A cell that it holds twice has two blocks in each pass."""
    done: Counter[str] = Counter()
    for order, entry in enumerate(study.entries * study.repeats):
        block = done[entry.cell.id]
        done[entry.cell.id] += 1
        yield Slot(entry.cell.id, block, block_seed(seed, block), order)


def minimum_detectable_effect(n: int, cv: float) -> float:
    """The smallest relative difference that n blocks find 8 times in 10, where runs vary by `cv` (0.01 for 1 %).

    The log ratio of two independent runs varies by sqrt(2) cv. NaN for one block.
    """
    return stats.minimum_detectable_effect(math.sqrt(2) * cv, n)


TYPICAL_CV = 0.01
"""Spread between runs assumed before any is measured; earlier work on a quiet machine saw 0.0022 (median) to 0.012
(90th percentile)."""


@dataclass(frozen=True)
class Mode:
    """Rough cost of a way to run, one CPU core: seconds to compile, per vectorised step, per gradient step."""

    compile_s: float
    step_s: float
    gradient_s: float


# Seen once on a shared two-core AMD machine with one thread, PPO on CartPole. Good to a factor of two.
COMPILED = Mode(9.0, 4e-5, 1e-5)
MODES = {
    "jax": {"eager": Mode(25.0, 0.1, 0.1), "none": Mode(15.0, 1e-4, 1e-3)},
    "torch": {
        "none": Mode(2.0, 3e-3, 5e-3),
        "env_jit": Mode(3.0, 3e-4, 5e-3),
        "script": Mode(8.0, 3e-4, 3e-3),
        "compile": Mode(36.0, 3e-4, 1.5e-3),
    },
}
START_S = 6.0
"""Seconds to start Python and import a framework."""
CROSSING_S = 2e-4
"""Seconds of a round trip to a Python environment."""
COPY_S = {"gymnasium": 3e-5, "envpool": 1e-5}
"""Seconds of a step of one copy of such an environment, by suite."""
RATE = 40e9
"""Floating-point operations per second of one thread in matrix products."""
CANARY_S = 1.0
"""Seconds of the two canaries of a block."""
MODEL_ERROR = 2.0
"""Factor by which the cost model may be off, either way."""
OBSERVATION = {
    "Asterix-MinAtar": 400,
    "Breakout-MinAtar": 400,
    "Freeway-MinAtar": 700,
    "SpaceInvaders-MinAtar": 600,
    "Pong-v5": 28224,
    "Navix-Empty-8x8-v0": 192,
    "Navix-Empty-16x16-v0": 768,
    "humanoid": 244,
    "humanoidstandup": 244,
}
"""Observation sizes of the large environments; the cost model treats the others alike."""
SIMULATED = {"brax": (60.0, 2e-4), "playground": (60.0, 2.5e-4)}
"""Suite -> seconds to compile its simulation, and per step of one environment, a cheetah's."""
RUN_BYTES = 6_000
"""Bytes of a stored run without its samples."""
CALL_BYTES = 350
"""Bytes of the samples of one call of the program."""
LOG_BYTES = 64 * 1024


def seconds_per_run(cell: Cell) -> float:
    """Seconds of a run of the cell by a rough model: start, compile, then matrix products and overhead per step."""
    run = cell.run
    family = registry.BACKENDS[run["backend"]].family
    mode = MODES[family].get(run["mode"], MODES["torch"]["compile"] if family == "torch" else COMPILED)
    config = Run.from_dict(dict(run)).config
    suite, _, name = run["env"].partition("/")
    width = [OBSERVATION.get(name, 6), *config.hidden, 2]
    weights = 2 * sum(a * b for a, b in pairwise(width))
    # A forward pass is 2 operations per weight and sample, a gradient three times that.
    products_s = 2 * weights * (config.batch_size + 3 * config.gradient_rows) / (RATE * cell.threads)
    compile_s, simulation_s = SIMULATED.get(suite, (0.0, 0.0))
    crossing_s = CROSSING_S + COPY_S[suite] * config.num_envs if suite in COPY_S else 0.0
    steps_s = config.batch_size / config.num_envs * (mode.step_s + crossing_s) + config.batch_size * simulation_s
    iteration_s = products_s + steps_s + config.updates_per_iteration * mode.gradient_s
    return START_S + mode.compile_s + compile_s + config.num_iterations * iteration_s


@dataclass(frozen=True)
class Cost:
    """Cost of a campaign: with the fewest blocks, and if every group needs the most."""

    runs: int
    seconds: float
    low_s: float
    high_s: float
    bytes: int
    most_runs: int
    most_seconds: float
    most_bytes: int
    """Bytes with a full log for every run."""
    measured: int
    """Cells whose time was measured before; those of the others come from a model good to a factor of two."""


def estimate(study: Study, measured: Mapping[str, Sequence[float]] | None = None) -> Cost:
    """Time and disk of a campaign; `measured` has the seconds that earlier runs of a cell took, by cell id."""
    cells, slots = schedule(study, 0)
    spread = {cell.id: _duration(cell, (measured or {}).get(cell.id, ())) for cell in cells}
    runs = Counter(slot.cell for slot in slots)
    group = {cell.id: cell.group for cell in cells}
    blocks = len({(group[slot.cell], slot.block) for slot in slots})
    canary_s = CANARY_S * blocks if study.order == "protocol" else 0.0
    low_s, seconds, high_s = (canary_s + sum(n * spread[id][i] for id, n in runs.items()) for i in range(3))
    stored = sum(runs[cell.id] * _bytes(cell) for cell in cells)
    growth = study.max_blocks / study.min_blocks if study.order == "protocol" else 1.0
    most_runs = round(len(slots) * growth)
    return Cost(
        runs=len(slots),
        seconds=seconds,
        low_s=low_s,
        high_s=high_s,
        bytes=stored,
        most_runs=most_runs,
        most_seconds=seconds * growth,
        most_bytes=round(stored * growth) + most_runs * LOG_BYTES,
        measured=sum(1 for cell in cells if (measured or {}).get(cell.id)),
    )


def _duration(cell: Cell, earlier: Sequence[float]) -> tuple[float, float, float]:
    """Low, middle and high seconds of a run: as measured, else by the model."""
    if len(earlier):
        return min(earlier), statistics.median(earlier), max(earlier)
    seconds = seconds_per_run(cell)
    return seconds / MODEL_ERROR, seconds, seconds * MODEL_ERROR


def _bytes(cell: Cell) -> int:
    length = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
    return RUN_BYTES + CALL_BYTES * (cell.run["num_iterations"] // length)
