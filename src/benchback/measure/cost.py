"""A rough model of what runs cost, for planning: good to a factor of two, and replaced by times once measured."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from benchback import registry
from benchback.envs.ids import split
from benchback.measure.record import Cell
from benchback.measure.study import Study
from benchback.plugins.towers import TOWERS
from benchback.stats.relay import FEWEST_ROUNDS
from benchback.training.run import AlgorithmConfig, Run

FEWEST_WARM = 3
"""Fewest calls of a program before its first turn in a relay: one compiles, and a second may compile again."""


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
ATARI = (84, 84, 4)
IMAGES = {
    "Asterix-MinAtar": (10, 10, 4),
    "Breakout-MinAtar": (10, 10, 4),
    "Freeway-MinAtar": (10, 10, 7),
    "SpaceInvaders-MinAtar": (10, 10, 6),
    "Pong-v5": ATARI,
    "Navix-Empty-8x8-v0": (8, 8, 3),
    "Navix-Empty-16x16-v0": (16, 16, 3),
}
"""Shapes of images; the cost model takes others for Atari's."""
OBSERVATION = {**{name: math.prod(shape) for name, shape in IMAGES.items()}, "humanoid": 244, "humanoidstandup": 244}
"""Observation sizes of the large environments; the cost model treats the others alike."""
SIMULATED = {"brax": (60.0, 2e-4), "playground": (60.0, 2.5e-4)}
"""Suite -> seconds to compile its simulation, and per step of one environment, a cheetah's."""


MEMBERS_COMPILE = 1.4
"""Seconds to compile a population, relative to one agent: its loop over groups, and the start of its members."""
MEMBER_START_S = 1e-3
"""Seconds to initialise another member."""
CACHED_S = 3.0
"""Seconds to load compiled programs instead of compiling them."""


def seconds_per_run(cell: Cell) -> float:
    """Seconds of a whole run of the cell by a rough model: start, compile, then its iterations."""
    return start_seconds(cell) + cell.run["num_iterations"] * iteration_seconds(cell)


def start_seconds(cell: Cell) -> float:
    """Seconds until a program runs for the first time: imports, compilation, and the first states of its members."""
    suite = split(cell.run["env"]).suite
    compile_s = _mode(cell).compile_s * (MEMBERS_COMPILE if cell.members > 1 else 1.0)
    return START_S + compile_s + SIMULATED.get(suite, (0.0, 0.0))[0] + (cell.members - 1) * MEMBER_START_S


def iteration_seconds(cell: Cell) -> float:
    """Seconds of an iteration of all members: matrix products, the environment, overhead per step and gradient step."""
    run, mode = cell.run, _mode(cell)
    config = Run.from_dict(dict(run)).config
    suite = split(run["env"]).suite
    products_s = iteration_flops(cell) / (RATE * cell.threads)
    simulation_s = SIMULATED.get(suite, (0.0, 0.0))[1]
    crossing_s = CROSSING_S + COPY_S[suite] * config.num_envs if suite in COPY_S else 0.0
    steps_s = config.batch_size / config.num_envs * (mode.step_s + crossing_s) + config.batch_size * simulation_s
    return cell.members * (products_s + steps_s + config.updates_per_iteration * mode.gradient_s)


def iteration_flops(cell: Cell) -> float:
    """Floating-point operations of the matrix products of an agent's iteration: actor and critic, or one trunk."""
    config = Run.from_dict(dict(cell.run)).config
    shared = cell.network in TOWERS and TOWERS[cell.network].shared
    weights = (1 if shared else 2) * sum(a * b for a, b in _products(cell, config))
    if cell.network in registry.RECURRENT:  # one encoder, two sides of three gates, and a hidden layer in each head
        inputs, width = OBSERVATION.get(split(cell.run["env"]).name, 6), config.hidden[0]
        weights += 8 * width**2 - inputs * width
    # A forward pass is 2 operations per weight and sample, a gradient three times that.
    return 2.0 * weights * (config.batch_size + 3 * config.gradient_rows)


def _products(cell: Cell, config: AlgorithmConfig) -> Iterable[tuple[int, int]]:
    """Inputs and outputs of the layers of one network; of a convolution the inputs at all its places."""
    name, tower = split(cell.run["env"]).name, TOWERS.get(cell.network)
    if tower is None:
        return pairwise([OBSERVATION.get(name, 6), *config.hidden, 2])
    image = IMAGES.get(name, ATARI)
    return [*tower.products(image), *pairwise([math.prod(tower.image(image)), *config.hidden, 2])]


def relay_seconds(cell: Cell, study: Study, variants: int, block: int) -> float:
    """Seconds that a cell adds to a relay of so many variants: its start, its warm-up and its turns."""
    start_s, iteration_s = start_seconds(cell), iteration_seconds(cell)
    if study.keep_caches and block:
        start_s = min(start_s, START_S + CACHED_S)
    warm_s = (Run.from_dict(dict(cell.run)).config.iterations_before_learning + FEWEST_WARM) * iteration_s
    return start_s + warm_s + max(study.relay_s / variants, FEWEST_ROUNDS * iteration_s)


def _mode(cell: Cell) -> Mode:
    family, name = registry.BACKENDS[cell.run["backend"]].family, cell.run["mode"]
    return MODES[family].get(name, MODES["torch"]["compile"] if family == "torch" else COMPILED)
